"""Models for others to load: `save_pretrained` folders, each with a file that tells its origin."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamfreq.errors import ConfigError

__all__ = ["PROVENANCE_FILE", "copy_tokenizer", "export_model", "git_revision"]

log = logging.getLogger("trainer.export")

PROVENANCE_FILE = "provenance.json"
_TOKENIZER_FILES = (
    *("tokenizer*.json", "vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("*.model", "*.tiktoken", "chat_template*"),
)
_NAME = re.compile(r"step-(\d{10})")


def export_model(
    folder: Path,
    step: int,
    keep: int,
    provenance: Mapping[str, Any],
    write_model: Callable[[Path], None],
) -> Path:
    """Export below `folder` by a temporary name and a rename; the last `keep` exports stay.

    write_model fills a folder with model and tokenizer; `provenance` becomes provenance.json
    beside them. Raises ConfigError when the folder can't be written.
    """
    target = folder / f"step-{step:010d}"
    temporary = folder / f".{target.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write_model(temporary)
        text = json.dumps(provenance, ensure_ascii=False, indent=2)
        (temporary / PROVENANCE_FILE).write_text(text + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except OSError as error:
        raise ConfigError(
            f"output: the model of step {step} can't be written to {folder} ({error.strerror}); "
            "make room there or name another folder"
        ) from error
    older = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))[:-keep]
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    log.info("exported the model of step %d to %s", step, target)
    return target


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer's files, so that the folder is complete; one from the hub stays there."""
    files = [source] if source.is_file() else []
    for pattern in _TOKENIZER_FILES if source.is_dir() else ():
        files += source.glob(pattern)
    for file in files:
        shutil.copyfile(file, folder / file.name)


def git_revision(folder: Path) -> str:
    """The commit that `folder` is checked out at, with "+changes" if it differs; "" without git."""
    revision = _git(folder, "rev-parse", "HEAD")
    if not revision:
        return ""
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{revision}+changes" if changed else revision


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
