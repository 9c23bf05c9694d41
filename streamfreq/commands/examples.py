"""Writing an example configuration, never over a file that is there unless told to."""

from __future__ import annotations

from pathlib import Path

from streamfreq.errors import UsageError


def write_example(file: Path, text: str, *, force: bool) -> None:
    """Write `text` to `file`; raises UsageError when it is there already or can't be written."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{file} is there already; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"{file} can't be written ({error.strerror})") from None
