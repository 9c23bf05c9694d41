"""Loading: one TOML file, then the environment, then --set; each overrides the one before.

This is the only place of the package that reads the environment's STREAMFREQ__ variables.
"""

from __future__ import annotations

import math
import os
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError, model_validator

from streamfreq.config.fields import Path as FieldPath
from streamfreq.config.fields import annotation_at, dotted
from streamfreq.config.ineffective import ineffective
from streamfreq.config.problems import problem_lines
from streamfreq.config.sections import Config, Section
from streamfreq.config.show import show_config
from streamfreq.errors import ConfigError

__all__ = ["ENV_PREFIX", "ineffective", "load_config", "load_sections", "show_config"]

ENV_PREFIX = "STREAMFREQ__"


T = TypeVar("T", bound=Section)


def load_config(
    path: Path | None,
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    needs_source: bool = True,
) -> Config:
    """The configuration of a TOML file (None: no file), the environment, and KEY=VALUE overrides.

    A variable STREAMFREQ__KAFKA__TOPICS sets kafka.topics, whatever its case; an override
    kafka.topics=a,b wins over it. Their values are read as TOML where the field is a number, a
    truth value, a list or a table, else they are plain text. env: None is the process's own.
    needs_source=False is for commands that read no source: topics or paths may be missing.

    Raises ConfigError whose message has one line for each mistake.
    """
    model: type[Config] = Config if needs_source else _ConfigWithoutSource
    return load_sections(model, path, overrides=overrides, env=env)


def load_sections(
    root: type[T],
    path: Path | None,
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    prefix: str = ENV_PREFIX,
    program: str = "streamfreq",
) -> T:
    """`load_config` for any tree of sections.

    prefix begins the names of its variables; `program init FILE` writes an example of it.
    """
    base = "the defaults" if path is None else str(path)
    layers = _Layers(_read_file(path, program), base, root)
    for name, value in _variables(os.environ if env is None else env, prefix):
        layers.set(name[len(prefix) :].split("__"), value, name, any_case=True)
    for number, override in enumerate(overrides, start=1):
        key, equals, value = override.partition("=")
        if not (key.strip() and equals):
            layers.problems.append(
                f"--set number {number}: write it KEY=VALUE, like --set kafka.topics=a,b"
            )
            continue
        layers.set(key.strip().split("."), value, f"--set {key.strip()}")
    try:
        config = root.model_validate(layers.data)
    except ValidationError as error:
        layers.problems.extend(problem_lines(error, layers.origin, root))
    else:
        layers.problems.extend(_not_numbers(layers.data))
    if layers.problems:
        raise ConfigError("\n".join(layers.problems))
    return config


class _ConfigWithoutSource(Config):
    """For commands that read no source: topics or paths may be missing."""

    @model_validator(mode="after")
    def _source_is_complete(self) -> _ConfigWithoutSource:
        return self


@dataclass
class _Layers:
    """The merged values, and for each overridden path where its value came from."""

    data: dict[str, Any]
    base: str
    root: type[Section]
    origins: dict[FieldPath, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def set(self, names: list[str], text: str, origin: str, *, any_case: bool = False) -> None:
        """Put the value of `text` at the path `names`, over what stands there."""
        table: Any = self.data
        path: list[str | int] = []
        for depth, name in enumerate(names):
            if not isinstance(table, dict):
                where = dotted(tuple(path))
                self.problems.append(f"{where} is no table: give it whole (from {origin})")
                return
            known = _same_name(name, table, tuple(path), self.root) if any_case else name
            path.append(known)
            if depth == len(names) - 1:
                table[known] = _parse(text, tuple(path), self.root)
                self.origins[tuple(path)] = origin
            else:
                table = table.setdefault(known, {})

    def origin(self, path: FieldPath) -> str:
        """Where the value at `path` came from: set there, above it, or below it; else the file."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        below = [origin for key, origin in self.origins.items() if key[: len(path)] == path]
        return below[-1] if below else self.base


def _read_file(path: Path | None, program: str) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; `{program} init {path}` writes an example"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: nested too deeply") from None


def _variables(env: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    """Our variables, those of whole sections before those of single fields."""
    ours = [name for name in env if name.upper().startswith(prefix)]
    for name in sorted(ours, key=lambda name: (name.count("__"), name)):
        yield name, env[name]


def _same_name(name: str, table: Mapping[str, Any], path: FieldPath, root: type[Section]) -> str:
    """The name as the file or the section spells it; else in lower case."""
    folded = name.lower()
    fields = getattr(annotation_at(path, root), "model_fields", {})
    return next((key for key in (*table, *fields) if key.lower() == folded), folded)


def _parse(text: str, path: FieldPath, root: type[Section]) -> Any:
    """The value of `text` for the field at `path`."""
    annotation = annotation_at(path, root)
    if annotation is SecretStr:
        return text
    text = text.strip()
    value = _toml(text)
    if annotation is str or typing.get_origin(annotation) is typing.Literal:
        return value if isinstance(value, str) else text
    if typing.get_origin(annotation) is list:
        return value if isinstance(value, list) else text
    return text if value is None else value


def _toml(text: str) -> Any:
    """The value of TOML text: a number, truth value, string, list or table; None for others."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    value = parsed.get("value")
    fits = len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict)
    return value if fits else None


def _not_numbers(value: object, path: FieldPath = ()) -> Iterator[str]:
    """A line for every NaN, which no field allows."""
    if isinstance(value, float) and math.isnan(value):
        yield f"{dotted(path)} = nan: must be a number"
    elif isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _not_numbers(item, (*path, key))
