"""The package's own source, parsed once, for the rules to look at."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streamfreq", "trainer")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path in the repository, its text, its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """The dotted name that imports it."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def at(self, node: ast.AST, what: str = "") -> str:
        """`path:line what`, for the message of a failed check."""
        return f"{self.path}:{getattr(node, 'lineno', 1)} {what}".rstrip()


@cache
def sources() -> tuple[Source, ...]:
    """Every module of both packages."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(parse(path) for path in paths)


def parse(path: Path) -> Source:
    """Read and parse one file."""
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


def parse_text(text: str, path: str = "streamfreq/example.py") -> Source:
    """A source that is only in the test, to show that a rule can fail."""
    return Source(path, text, ast.parse(text))


@cache
def repository_files() -> tuple[Path, ...]:
    """Every file that is tracked, or would be by `git add .`; without git, every file."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = {".git", ".venv", ".cache"}
        paths = [
            path
            for path in ROOT.rglob("*")
            if not hidden & set(path.relative_to(ROOT).parts) and "__pycache__" not in path.parts
        ]
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


def imports(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Each import anywhere in the file: the node and the dotted name of the module."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def calls_and_names(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Each name or attribute in use, dotted and with imported names spelled out.

    `from time import time as now; now()` yields `time.time`.
    """
    origin: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            origin |= {a.asname or a.name.split(".")[0]: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            origin |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and (name := _dotted(node)):
            first, _, rest = name.partition(".")
            full = origin.get(first, first)
            yield node, f"{full}.{rest}" if rest else full


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""
