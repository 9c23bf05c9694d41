"""`streamfreq-trainer run`: train until SIGTERM, the end of the stream, or max_steps."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import click

from streamfreq.commands import ConfigArguments, config_options
from trainer.cli.settings import begin_log, load

if TYPE_CHECKING:
    from types import FrameType

    from trainer.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.command()
@config_options
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Train on what is in the topics now, save, export, and end.",
)
def run(arguments: ConfigArguments, until_caught_up: bool) -> None:
    """Train on the stream; goes on from the newest resume state in the output folder.

    The first signal ends it in order (this step, then a resume state), the second at once.
    """
    config = load(arguments)
    begin_log(config)
    ending = _Ending()
    from trainer.worker import build_worker

    worker = build_worker(config, until_caught_up=until_caught_up)
    ending.applies_to(worker)
    worker.run()


class _Ending:
    """First signal: in order. Second: at once; the last resume state is what is left."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        for item in _SIGNALS:
            signal.signal(item, self._first)

    def applies_to(self, worker: Worker) -> None:
        """From now on a signal ends this worker in order."""
        self._worker = worker

    def _first(self, number: int, frame: FrameType | None) -> None:
        if self._worker is None:
            os._exit(0)  # nothing has begun that would need an end in order
        for item in _SIGNALS:
            signal.signal(item, lambda number, frame: os._exit(128 + number))
        self._worker.stop()
