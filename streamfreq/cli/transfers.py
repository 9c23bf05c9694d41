"""Moving snapshots between the store and files, and pinning them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from streamfreq.cli.output import print_json, size
from streamfreq.cli.stored import LATEST, Stored
from streamfreq.clock import SystemClock
from streamfreq.errors import SnapshotRefused, UsageError
from streamfreq.snapshots import read_snapshot_file, write_snapshot_file


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
    store, job = stored.store, stored.config.job
    with stored.publishing("; or import with another --job") as fence:  # 2
        # Not below what readers have got, even where the store has lost it.
        version = max(store.latest_version(), store.floor().version) + 1  # 3
        epoch = max(SystemClock().now_ms(), store.epoch() + 1)
        numbered = replace(snapshot, version=version, job=job, epoch=epoch)
        store.publish(numbered, fence)  # 4
        store.end_epoch()  # 5
    if as_json:
        print_json({"version": version, "job": job, "file": str(file)})
    else:
        click.echo(f"published {file} as version {version} of job {job}")


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
