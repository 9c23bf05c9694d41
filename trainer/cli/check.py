"""`streamfreq-trainer check`: what is wrong, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from streamfreq.commands import ConfigArguments, blotted, config_options
from streamfreq.errors import ServiceUnavailable, StreamfreqError
from trainer.cli.settings import load, quiet_libraries

if TYPE_CHECKING:
    from trainer.config import TrainerConfig
    from trainer.worker import Trainee

Finding = tuple[str, str, str]
"""What was looked at; ok, warn or fail; one line."""


@click.command()
@config_options
@click.pass_context
def check(ctx: click.Context, arguments: ConfigArguments) -> None:
    """Make the model and look at stream and store; nothing is trained.

    Prints the table of what trains and a line for each part: ok, warn, or fail with the way out.
    """
    config = load(arguments)
    quiet_libraries()
    import torch

    from trainer.worker import make_trainee

    cuda = config.model.device == "auto" and torch.cuda.is_available()
    trainee = make_trainee(config, torch.device("cuda" if cuda else "cpu"))
    click.echo(trainee.table)
    click.echo()
    code = 0
    for part, status, message in findings(config, trainee):
        click.echo(f"{status:<4}  {part}: {blotted(message)}")
        if status == "fail":
            code = max(code, ServiceUnavailable.exit_code if part != "weights" else 4)
    ctx.exit(code)


def findings(config: TrainerConfig, trainee: Trainee) -> Iterator[Finding]:
    """A line for each part, in the order of a run."""
    path = trainee.module.path
    yield "loss", "ok", f"{config.loss.kind}, {path.name} path ({path.reason})"
    specials = trainee.specials
    start, end = specials.start_id, specials.end_id
    yield (
        "documents",
        "ok",
        f"in blocks of {config.data.block_size}, start token {_name(trainee, start)}, "
        f"end token {_name(trainee, end)}",
    )
    yield _stream(config)
    yield from _snapshots(config, trainee)


def _name(trainee: Trainee, token_id: int | None) -> str:
    return "none" if token_id is None else f"{trainee.tokenizer.token_text(token_id)!r}"


def _stream(config: TrainerConfig) -> Finding:
    if config.source.kind == "files":
        from streamfreq.sources.readers import check_readable

        for path in config.files.paths:
            check_readable(path)
        return "stream", "ok", f"{len(config.files.paths)} files"
    from streamfreq.sources.kafka.probe import check_topics

    try:
        return "stream", "ok", check_topics(config.kafka)
    except StreamfreqError as error:
        return "stream", "fail", str(error)


def _snapshots(config: TrainerConfig, trainee: Trainee) -> Iterator[Finding]:
    from streamfreq.clock import SystemClock
    from streamfreq.config import SnapshotsConfig
    from streamfreq.snapshots import SnapshotReader, open_snapshots
    from trainer.token_weights import Recipe

    job = config.subscriber.job
    try:
        reader = SnapshotReader(
            open_snapshots(config.redis, SnapshotsConfig(), job), trainee.tokenizer.fingerprint
        )
        reader.refresh()
    except StreamfreqError as error:
        yield "store", "fail", str(error)
        return
    yield "store", "ok", "answers"
    snapshot = reader.snapshot
    if snapshot is None:
        why = (
            "the newest one is damaged or of another tokenizer (see above)"
            if reader.refused
            else f"job {job} has published none; training begins with all weights 1"
        )
        yield "weights", "fail" if reader.refused else "warn", why
        return
    try:
        tables = Recipe(config.weights, config.replay.horizon, trainee.vocab_size).build(snapshot)
    except StreamfreqError as error:
        yield "weights", "fail", str(error)
        return
    age = (SystemClock().now_ms() - snapshot.created_at_ms) / 1000
    low, high = float(tables.weights_V.min()), float(tables.weights_V.max())
    yield (
        "weights",
        "ok",
        f"snapshot {snapshot.version} of job {job}, {age:,.0f} s old; from {low:.3g} to {high:.3g}",
    )
