"""Moving snapshots between the store and files, and pinning them."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import click

from streamfreq.cli.output import note, print_json, size
from streamfreq.cli.stored import LATEST, Stored
from streamfreq.clock import SystemClock
from streamfreq.errors import SnapshotRefused, UsageError
from streamfreq.snapshots import open_lease, read_snapshot_file, write_snapshot_file
from streamfreq.snapshots.base import PublisherLease

_LEASE_RETRY_SECONDS = 0.25


def export_snapshot(
    stored: Stored, reference: str, file: Path, force: bool, *, as_json: bool
) -> None:
    """Write the snapshot to `file`; raises UsageError when it is there already (unless `force`)."""
    if file.exists() and not force:
        raise UsageError(f"{file} is there already; --force overwrites it")
    snapshot = stored.read(reference)
    written = write_snapshot_file(snapshot, file)
    if as_json:
        print_json({"version": snapshot.version, "file": str(file), "bytes": written})
    else:
        click.echo(f"wrote version {snapshot.version} to {file} ({size(written)})")


def import_snapshot(stored: Stored, file: Path, *, as_json: bool) -> None:
    """Publish the snapshot in `file` as the job's newest version.

    1. Read and check the file.
    2. Take the publisher's lease, waiting as long as one that nobody renews may last.
    3. Number it one above the latest version and give it the job's name.
    4. Publish it under the lease's fencing token, in an epoch of its own: its offsets are not to
       be compared with those of the job.
    5. End that epoch, so that a daemon of the job begins the next; give the lease back.

    Raises SnapshotRefused when the job's latest snapshot has another tokenizer: readers would take
    one token for another; and for a bad file. Raises UsageError while another publisher holds the
    lease.
    """
    snapshot = read_snapshot_file(file)  # 1
    latest = stored.store.load()
    if latest is not None and latest.tokenizer_fingerprint != snapshot.tokenizer_fingerprint:
        raise SnapshotRefused(
            f"{file}: made with tokenizer {snapshot.tokenizer_name} "
            f"{snapshot.tokenizer_fingerprint[:12]}, but {stored.where} has "
            f"{latest.tokenizer_name} {latest.tokenizer_fingerprint[:12]}; "
            "import it into another --job"
        )
    config = stored.config
    holder = f"import:{socket.gethostname()}:{os.getpid()}"
    lease = open_lease(config.redis, config.snapshots, config.job, holder)
    fence = _acquire(lease, config.snapshots.lease_seconds)  # 2
    if fence is None:
        raise UsageError(
            f"a daemon of {stored.where} is publishing; stop it first, or import with another --job"
        )
    try:
        version = stored.store.latest_version() + 1  # 3
        numbered = replace(snapshot, version=version, job=config.job, epoch=SystemClock().now_ms())
        stored.store.publish(numbered, fence)  # 4
        stored.store.end_epoch()  # 5
    finally:
        lease.release()
    if as_json:
        print_json({"version": version, "job": config.job, "file": str(file)})
    else:
        click.echo(f"published {file} as version {version} of job {config.job}")


def set_pinned(stored: Stored, reference: str, pinned: bool, *, as_json: bool) -> None:
    """Pin or unpin a version; raises UsageError when it is not kept."""
    if reference == LATEST:
        version = stored.store.latest_version()
    elif reference.isdecimal():
        version = int(reference)
    else:
        raise UsageError(f"{reference}: give a version number, or latest")
    if not stored.store.set_pinned(version, pinned):
        raise UsageError(stored.missing(version))
    if as_json:
        print_json({"version": version, "pinned": pinned})
    else:
        click.echo(f"version {version} is {'pinned' if pinned else 'no longer pinned'}")


def _acquire(lease: PublisherLease, lease_seconds: float) -> int | None:
    """The fencing token; waits for a lease that a dead publisher left behind to run out."""
    deadline = time.monotonic() + lease_seconds + _LEASE_RETRY_SECONDS
    waiting = False
    while (fence := lease.acquire()) is None and time.monotonic() < deadline:
        if not waiting:
            note("another publisher holds the lease; waiting to see whether it is alive")
            waiting = True
        time.sleep(_LEASE_RETRY_SECONDS)
    return fence
