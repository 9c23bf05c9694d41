"""The command itself: starts the parts, shows them live, ends them all."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from streamfreq.clock import SystemClock
from streamfreq.errors import UsageError

DEFAULT_FOLDER = Path(".cache/demo")
MAX_SECONDS = 80


@click.command()
@click.option(
    "--text",
    "text_file",
    type=click.Path(path_type=Path),
    help="Your own text file, a record a line; default: documentation of installed packages.",
)
@click.option("--kafka", metavar="HOST:PORT", help="Through this broker instead of a file.")
@click.option(
    "--seconds", type=click.IntRange(10, MAX_SECONDS), default=45, help="How long to replay."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Where stream, configuration, log and the last snapshot are left.",
)
def demo(text_file: Path | None, kafka: str | None, seconds: int, folder: Path) -> None:
    """Replay real text through the real daemon at many times real speed, and show it live.

    Starts a Redis-protocol server of its own; needs no network. Ends by itself.
    """
    from streamfreq.cli.demo.parts import DaemonProcess, EmbeddedStore, demo_config
    from streamfreq.cli.demo.screen import Screen
    from streamfreq.cli.demo.stream import DAYS, TopicFeeder, with_event_times, write_lines
    from streamfreq.cli.demo.text import documentation, own_text

    begun = time.monotonic()
    if text_file is not None and not text_file.is_file():
        raise UsageError(f"--text {text_file}: no such file")
    texts = list(own_text(text_file) if text_file else documentation())
    if not texts:
        raise UsageError(f"--text {text_file}: the file holds no text")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    records = with_event_times(texts, SystemClock().now_ms())
    stream = folder / "stream.jsonl"
    write_lines(records, stream)
    size = sum(map(len, texts))
    click.echo(
        f"{len(texts):,} records, {size / 1e6:.2f} MB of "
        f"{text_file or 'documentation from the installed Python packages'}.\n"
        f"The replay gives them event times (the text has no dates):\n"
        f"{DAYS} days in about {seconds} s, {DAYS * 86400 / seconds:,.0f} times real speed. "
        "Starting the daemon ..."
    )
    rate = len(records) / seconds
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore())
        config = demo_config(folder, stream, store.url, rate, kafka)
        feeder = None
        if kafka:
            feeder = TopicFeeder(kafka, config.topic, records, rate)
            stack.callback(feeder.close)
        daemon = stack.enter_context(DaemonProcess(config))
        if feeder is not None:
            feeder.start()
        with Screen(config, daemon, len(records)) as screen:
            while not screen.done and time.monotonic() - begun < MAX_SECONDS:
                daemon.check()
                screen.refresh()
                time.sleep(0.5 if sys.stdout.isatty() else 2.0)
        daemon.end()
        last = screen.last_snapshot(folder / "snapshot.safetensors")
    _say_what_next(folder, config.file, stream, last)


def _say_what_next(folder: Path, config: Path, stream: Path, last: int) -> None:
    program = "streamfreq" if shutil.which("streamfreq") else ".venv/bin/streamfreq"
    click.echo(f"\nThe daemon committed, published version {last} and ended. Try next:\n")
    click.echo(f"  {program} snapshot top {folder}/snapshot.safetensors --rising -c {config}")
    click.echo(f"  {program} count {stream} -c {config} --half-life 24h --top 15")
    click.echo(f"  {program} init     # then: {program} check -c streamfreq.toml, on your Kafka")
