"""Snapshot files: the same bytes that the stores keep, written whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from streamfreq.codec import Snapshot, decode_snapshot, encode_snapshot
from streamfreq.errors import UsageError


def write_snapshot_file(snapshot: Snapshot, path: Path | str) -> int:
    """Write `snapshot` to `path` and return its size in bytes; a reader never sees a part of it.

    1. Write a hidden file beside it and force it to the disk.
    2. Rename it over `path`.
    3. Force the rename to the disk.

    Raises UsageError when the file can't be written; an older file at `path` stays then.
    """
    target = Path(path)
    data = encode_snapshot(snapshot)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:  # 1
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)  # 2
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)  # 3
    except OSError as error:
        raise UsageError(f"{target}: can't be written ({error.strerror})") from None
    return len(data)


def read_snapshot_file(path: Path | str) -> Snapshot:
    """The snapshot in a file.

    Raises UsageError when the file can't be read, SnapshotRefused when its bytes can't be used.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: can't be read ({error.strerror})") from None
    return decode_snapshot(data, str(path))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
