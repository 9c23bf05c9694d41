"""`streamfreq-trainer run`: train until SIGTERM, the end of the stream, or max_steps."""

from __future__ import annotations

import click

from streamfreq.commands import ConfigArguments, Ending, config_options
from trainer.cli.settings import begin_log, load


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
    ending = Ending()
    from trainer.worker import build_worker

    worker = build_worker(config, until_caught_up=until_caught_up)
    ending.calls(worker.stop)
    worker.run()
