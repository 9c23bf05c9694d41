"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamfreq.commands.secrets import keep_secret

if TYPE_CHECKING:
    from streamfreq.config import Config
    from streamfreq.config.sections import Section

T = TypeVar("T", bound="Section")


@dataclass(frozen=True, slots=True)
class ConfigArguments:
    """What the user said about the configuration on the command line."""

    file: Path | None
    settings: tuple[str, ...]
    show: bool

    def load(
        self, *, needs_source: bool = True, more: Mapping[str, str | None] | None = None
    ) -> Config:
        """The configuration; with --show-config it is printed and the command ends.

        `more` holds values of the command's own options by dotted name (None: not given); they
        win over the file and the environment, --set wins over them. Raises ConfigError.
        """
        from streamfreq.config.load import load_config

        own = [f"{name}={value}" for name, value in (more or {}).items() if value is not None]
        config = load_config(self.file, overrides=[*own, *self.settings], needs_source=needs_source)
        self._settle(config)
        return config

    def load_as(self, root: type[T], *, prefix: str, program: str) -> T:
        """`load` for another program's tree of sections; see `load_sections`."""
        from streamfreq.config.load import load_sections

        config = load_sections(
            root, self.file, overrides=self.settings, prefix=prefix, program=program
        )
        self._settle(config)
        return config

    def _settle(self, config: Section) -> None:
        """Keep its secrets; with --show-config print it and end."""
        from streamfreq.config.secrets import secret_texts
        from streamfreq.config.show import show_config

        keep_secret(secret_texts(config))
        if self.show:
            click.echo(show_config(config), nl=False)
            click.get_current_context().exit()


_OPTIONS = (
    click.option(
        "-c",
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Configuration file (TOML).",
    ),
    click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set one value, like kafka.topics=a,b; repeatable; wins over everything else.",
    ),
    click.option("--show-config", is_flag=True, help="Print the resulting configuration and exit."),
)


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -c, --set and --show-config; the command gets them as `arguments`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        config_file: Path | None,
        settings: tuple[str, ...],
        show_config: bool,
        **kwargs: Any,
    ) -> Any:
        return command(
            *args, arguments=ConfigArguments(config_file, settings, show_config), **kwargs
        )

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs, nothing else on stdout."
)
