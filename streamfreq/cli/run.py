"""`streamfreq run`: the daemon in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import gc

import click

from streamfreq.commands import ConfigArguments, Ending, config_options


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

    ending = Ending()
    from streamfreq.daemon.build import build_daemon

    daemon = build_daemon(config)
    # What the libraries have made by now stays. Left to the collector, each of its full rounds
    # would walk over it, and records in columns make it go round often.
    gc.collect()
    gc.freeze()
    ending.calls(daemon.stop)
    daemon.run(until_caught_up=until_caught_up)
