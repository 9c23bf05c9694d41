"""The command itself: starts the parts, shows them live, ends them all."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfreq.clock import SystemClock
from streamfreq.errors import UsageError

if TYPE_CHECKING:
    from streamfreq.cli.demo.parts import ChildProcess, DemoConfig
    from streamfreq.cli.demo.stream import TopicFeeder

DEFAULT_FOLDER = Path(".cache/demo")
MAX_SECONDS = 120
TRAINED_BYTES = 1_200_000
"""About what a small model can learn on one core while the demo lasts."""


@click.command()
@click.option(
    "--text",
    "text_file",
    type=click.Path(path_type=Path),
    help="Your own text file, a record a line; default: documentation of installed packages.",
)
@click.option("--kafka", metavar="HOST:PORT", help="Through this broker instead of a file.")
@click.option(
    "--seconds", type=click.IntRange(10, MAX_SECONDS), default=60, help="How long to replay."
)
@click.option("--no-trainer", is_flag=True, help="The daemon alone, on all of the text.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Where stream, configuration, log and the last snapshot are left.",
)
def demo(
    text_file: Path | None, kafka: str | None, seconds: int, no_trainer: bool, folder: Path
) -> None:
    """Replay real text through the daemon and the trainer, many times faster, and show it live.

    Starts a Redis-protocol server of its own; needs no network. Ends by itself.
    """
    from streamfreq.cli.demo.parts import EmbeddedStore, default_tokenizer, demo_config
    from streamfreq.cli.demo.stream import DAYS, TopicFeeder, with_event_times, write_lines
    from streamfreq.cli.demo.text import documentation, own_text
    from streamfreq.cli.demo.training import can_train, draw, learn_tokenizer, trainer_process

    if text_file is not None and not text_file.is_file():
        raise UsageError(f"--text {text_file}: no such file")
    train = not no_trainer and can_train()
    texts = list(own_text(text_file) if text_file else documentation())
    if not texts:
        raise UsageError(f"--text {text_file}: the file holds no text")
    if train and text_file is None:
        texts = texts[:: max(1, round(sum(map(len, texts)) / TRAINED_BYTES))]
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
        f"Starting the daemon{' and the trainer' if train else ''} ..."
    )
    tokenizer = learn_tokenizer(texts, folder) if train else default_tokenizer()
    with EmbeddedStore() as store:
        rate = len(records) / seconds
        config = demo_config(folder, stream, store.url, rate, kafka, tokenizer)
        trainer = trainer_process(folder, config, stream, rate, kafka) if train else None
        feeder = TopicFeeder(kafka, config.topic, records, rate) if kafka else None
        last = _show(config, trainer, feeder, len(records), folder)
    if train:
        picture = draw(folder)
        click.echo(f"\nThe picture: {picture or 'none, the trainer made too few steps for one'}")
    _say_what_next(folder, config.file, stream, last)


def _show(
    config: DemoConfig,
    trainer: ChildProcess | None,
    feeder: TopicFeeder | None,
    records: int,
    folder: Path,
) -> int:
    """Run daemon, trainer and feeder to the end of the stream; the last snapshot's version."""
    from streamfreq.cli.demo.parts import ChildProcess
    from streamfreq.cli.demo.screen import Screen

    begun = time.monotonic()
    with ExitStack() as stack:
        if feeder is not None:
            stack.callback(feeder.close)
        words = ["streamfreq", "run", "-c", str(config.file)]
        daemon = ChildProcess("daemon", words, config.log, config.http_port)
        processes = [daemon] if trainer is None else [daemon, trainer]
        for process in processes:
            stack.enter_context(process)
        if feeder is not None:
            feeder.start()
        topic = feeder is not None
        with Screen(config, daemon, records, trainer, live_topic=topic) as screen:
            while not screen.done and time.monotonic() - begun < MAX_SECONDS:
                daemon.check()
                if trainer is not None and not trainer.ended:
                    trainer.check()
                screen.refresh()
                time.sleep(0.5 if sys.stdout.isatty() else 2.0)
        for process in processes:
            process.end()
        return screen.last_snapshot(folder / "snapshot.safetensors")


def _say_what_next(folder: Path, config: Path, stream: Path, last: int) -> None:
    program = "streamfreq" if shutil.which("streamfreq") else ".venv/bin/streamfreq"
    click.echo(f"\nThe daemon committed, published version {last} and ended. Try next:\n")
    click.echo(f"  {program} snapshot top {folder}/snapshot.safetensors --rising -c {config}")
    click.echo(f"  {program} count {stream} -c {config} --half-life 24h --top 15")
    click.echo(f"  {program} init     # then: {program} check -c streamfreq.toml, on your Kafka")
