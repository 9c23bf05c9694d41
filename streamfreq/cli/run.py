"""`streamfreq run`: the daemon in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from streamfreq.commands import ConfigArguments, config_options

if TYPE_CHECKING:
    from types import FrameType

    from streamfreq.daemon.daemon import Daemon


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.command()
@config_options
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Count what is there, commit, publish, and end.",
)
def run(arguments: ConfigArguments, until_caught_up: bool) -> None:
    """Count the stream, commit, publish snapshots; runs until SIGTERM or Ctrl-C.

    The first signal ends it in order (commit, leave the consumer group), the second at once.
    """
    config = arguments.load()
    import logging

    from streamfreq.config.ineffective import ineffective
    from streamfreq.config.secrets import secret_texts
    from streamfreq.logs import add_secret, configure_logging

    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    for text in secret_texts(config):
        add_secret(text)
    log = logging.getLogger("streamfreq")
    for line in ineffective(config):
        log.warning("%s", line)

    ending = _Ending()
    from streamfreq.daemon.build import build_daemon

    daemon = build_daemon(config)
    ending.applies_to(daemon)
    daemon.run(until_caught_up=until_caught_up)


class _Ending:
    """First signal: in order. Second: at once, without a commit; what is lost is read again.

    Made before the daemon, which takes seconds to build: a process with the number 1, as in a
    container, would otherwise not even notice a signal in that time.
    """

    def __init__(self) -> None:
        self._daemon: Daemon | None = None
        for item in _SIGNALS:
            signal.signal(item, self._first)

    def applies_to(self, daemon: Daemon) -> None:
        """From now on a signal ends this daemon in order."""
        self._daemon = daemon

    def _first(self, number: int, frame: FrameType | None) -> None:
        if self._daemon is None:
            os._exit(0)  # nothing has begun that would need an end in order
        for item in _SIGNALS:
            signal.signal(item, lambda number, frame: os._exit(128 + number))
        self._daemon.stop()
