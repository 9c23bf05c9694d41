"""`streamfreq checkpoint ...` on every store: shows what is committed, forgets what is named."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from streamfreq.checkpoints import CheckpointStore, open_checkpoints
from streamfreq.cli.checkpoint_output import delete_checkpoints
from streamfreq.cli.output import moment
from streamfreq.cli.stored import Stored
from streamfreq.clock import ManualClock
from streamfreq.config import Config, KafkaConfig, RedisConfig, SnapshotsConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.publisher import Publisher, Recipe
from streamfreq.records import TopicPartition
from streamfreq.redis_client import call, connect
from streamfreq.snapshots import open_lease, open_snapshots
from streamfreq.snapshots.base import SnapshotStore
from tests.conformance.values import make_changes, make_snapshot, make_update, versions
from tests.unit.cli.samples import STREAMFREQ, invoke, json_lines, store_arguments

ALL = [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)]


@pytest.fixture
def store(store_config: RedisConfig) -> CheckpointStore:
    """A store with three checkpoints."""
    opened = open_checkpoints(store_config, "j")
    for partition in ALL:
        opened.commit(make_update(1, partition=partition))
    return opened


@pytest.fixture
def options(store: CheckpointStore, store_config: RedisConfig) -> list[str]:
    return store_arguments(store_config)


def test_list(options: list[str]) -> None:
    result = invoke("checkpoint", "list", *options)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:4] for line in lines[1:]] == [
        ["a", "0", "1", "1,000"],
        ["a", "2", "1", "1,000"],
        ["b", "0", "1", "1,000"],
    ]
    first, *_ = json_lines(invoke("checkpoint", "list", "--json", *options))
    assert (first["topic"], first["partition"], first["version"]) == ("a", 0, 1)
    assert (first["next_offset"], first["topic_id"], first["gaps"]) == (1_000, "t0p1c", [[10, 20]])
    assert first["tokens"] == pytest.approx(make_update(1).changes.tokens_H[1])


def test_list_tells_how_many_parts_there_are(store: CheckpointStore, options: list[str]) -> None:
    store.commit(make_update(2, partition=ALL[0], changes=make_changes([3, 9])))
    first, second, _ = json_lines(invoke("checkpoint", "list", "--json", *options))
    assert (first["version"], first["changes"], first["changed_rows"]) == (2, 1, 2)
    assert first["whole_rows"] == second["whole_rows"] > 0
    assert (second["changes"], second["changed_rows"]) == (0, 0)


def test_nothing_is_said_to_be_there_when_nothing_is(store_config: RedisConfig) -> None:
    result = invoke("checkpoint", "list", *store_arguments(store_config), "--job", "other")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no checkpoint" in result.stderr


@pytest.mark.parametrize(
    ("named", "left"),
    [
        (["--topic", "a"], ALL[2:]),
        (["--topic", "a", "--partition", "2"], [ALL[0], ALL[2]]),
        (["--topic", "a", "--partition", "2", "--partition", "0"], ALL[2:]),
        (["--all"], []),
    ],
)
def test_delete_forgets_what_is_named_and_nothing_else(
    store: CheckpointStore, options: list[str], named: list[str], left: list[TopicPartition]
) -> None:
    result = invoke("checkpoint", "delete", *named, "--yes", "--json", *options)
    assert result.exit_code == 0
    (told,) = json_lines(result)
    gone = [TopicPartition(item["topic"], item["partition"]) for item in told["deleted"]]
    assert sorted(gone + left) == ALL
    assert sorted(versions(store)) == left


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --topic"),
        (["--all", "--topic", "a"], "give --topic"),
        (["--all", "--partition", "1"], "give --topic"),
        (["--topic", "c", "--yes"], "no checkpoint of topic c; there are a, b"),
        (["--topic", "a", "--partition", "1", "--yes"], "a partition 1; there are 0, 2"),
        (["--topic", "a"], "say --yes"),
    ],
)
def test_mistakes_are_told_in_a_line_and_nothing_is_deleted(
    store: CheckpointStore, options: list[str], arguments: list[str], said: str
) -> None:
    result = invoke("checkpoint", "delete", *arguments, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert sorted(versions(store)) == ALL


def test_a_daemon_that_publishes_has_to_be_stopped_first(
    store: CheckpointStore, store_config: RedisConfig, options: list[str]
) -> None:
    lease = open_lease(store_config, SnapshotsConfig(lease_seconds=60), "j", "daemon")
    assert lease.acquire() is not None
    short = ["--set", "snapshots.lease_seconds=0.1"]
    result = invoke("checkpoint", "delete", "--all", "--yes", *options, *short)
    assert result.exit_code == 2
    assert "stop it first, and every other daemon" in result.stderr
    assert sorted(versions(store)) == ALL


def test_a_partition_that_readers_have_seen_can_be_named_without_a_checkpoint(
    store_config: RedisConfig, options: list[str]
) -> None:
    """Publishing waits for it, and only this command ends the wait."""
    snapshots = open_snapshots(store_config, SnapshotsConfig(), "j")
    gone = TopicPartition("gone", 1)
    snapshots.publish(make_snapshot(7, offsets={ALL[0]: 1_000, gone: 9}, job="j"), 1)
    result = invoke("checkpoint", "delete", "--topic", "gone", "--yes", *options)
    assert (result.exit_code, snapshots.epoch()) == (0, 0)
    assert "no such checkpoint" in result.stdout


def publisher_of(config: RedisConfig, clock: ManualClock) -> Publisher:
    """A daemon's publisher that has the lease and has heard the others out."""
    settings = SnapshotsConfig()
    publisher = Publisher(
        Recipe("j", "tiny", "f" * 64, {}),
        settings,
        open_checkpoints(config, "j"),
        open_snapshots(config, settings, "j"),
        open_lease(config, settings, "j", "daemon"),
        clock,
    )
    publisher.keep_lease()
    clock.advance(2 * publisher.turn_seconds)
    assert publisher.keep_lease()
    return publisher


def test_afterwards_counting_begins_anew_and_the_snapshots_a_new_epoch(
    store: CheckpointStore, store_config: RedisConfig, options: list[str]
) -> None:
    clock = ManualClock(1_700_000_000_000)
    publisher = publisher_of(store_config, clock)
    before = publisher.publish()
    assert before is not None
    assert before.offsets == dict.fromkeys(ALL, 1_000)
    publisher.release()

    assert invoke("checkpoint", "delete", "--topic", "a", "--yes", *options).exit_code == 0
    assert store.load(ALL[0]) is None
    store.commit(make_update(1, partition=ALL[0], next_offset=5))  # of the new topic a
    clock.advance(60)
    after = publisher_of(store_config, clock).publish()
    assert after is not None
    assert (after.version, after.offsets) == (before.version + 1, {ALL[0]: 5, ALL[2]: 1_000})
    assert after.epoch > before.epoch
    shown = invoke("snapshot", "show", "--json", *options)
    assert json_lines(shown)[0]["epoch"] == after.epoch
    assert moment(after.epoch) in invoke("snapshot", "show", *options).stdout


class Failing:
    """A store behind a connection that breaks at the call number `at` of one method."""

    def __init__(self, store: object, method: str, at: int) -> None:
        self._store, self._method, self._left = store, method, at

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._left -= 1
            if not self._left:
                raise ServiceUnavailable("away")
        return getattr(self._store, name)


class Dying(Stored):
    """What a command has that ends at one of its steps, and does not give the lease back."""

    def __init__(self, config: Config, step: str, at: int) -> None:
        super().__init__(config)
        self._checkpoints = cast(CheckpointStore, Failing(super().checkpoints, step, at))
        self._store = cast(SnapshotStore, Failing(super().store, step, at))

    @contextmanager
    def publishing(self, way_out: str = "") -> Iterator[int]:
        config = self.config
        lease = open_lease(config.redis, config.snapshots, config.job, "dead")
        fence = lease.acquire()
        assert fence is not None
        yield fence
        raise ServiceUnavailable("away")


@pytest.mark.parametrize(
    ("step", "at", "left"),
    [
        ("end_epoch", 1, ALL),
        ("delete", 1, ALL),
        ("delete", 2, ALL[1:]),
        ("release", 1, []),
    ],
)
def test_an_end_between_the_steps_leaves_what_a_second_run_mends(
    store: CheckpointStore,
    store_config: RedisConfig,
    capsys: pytest.CaptureFixture[str],
    step: str,
    at: int,
    left: list[TopicPartition],
) -> None:
    snapshots = open_snapshots(store_config, SnapshotsConfig(), "j")
    snapshots.publish(make_snapshot(1, offsets=dict.fromkeys(ALL, 1_000), job="j"), 1)
    config = Config(
        job="j",
        kafka=KafkaConfig(topics=("a",)),
        redis=store_config,
        snapshots=SnapshotsConfig(lease_seconds=0.3),
    )
    with pytest.raises(ServiceUnavailable):
        delete_checkpoints(Dying(config, step, at), ALL, as_json=False)
    assert sorted(versions(store)) == left
    # The epoch ends first: no checkpoint is gone while the old one still binds.
    assert (snapshots.epoch() == 0) == (step != "end_epoch")
    assert ("forgot 3" in capsys.readouterr().out) == (step == "release")

    delete_checkpoints(Stored(config), ALL, as_json=True)
    (told,) = capsys.readouterr().out.splitlines()
    assert [(item["topic"], item["partition"]) for item in json.loads(told)["deleted"]] == left
    assert (versions(store), snapshots.epoch()) == ({}, 0)
    assert open_lease(store_config, SnapshotsConfig(), "j", "daemon").acquire() is not None


@pytest.mark.parametrize(("answer", "code", "left"), [(b"y\n", 0, []), (b"\n", 130, ALL)])
def test_on_a_terminal_it_asks(
    redis_config: RedisConfig, answer: bytes, code: int, left: list[TopicPartition]
) -> None:
    store = open_checkpoints(redis_config, "j")
    for partition in ALL:
        store.commit(make_update(1, partition=partition))
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [*STREAMFREQ, "checkpoint", "delete", "--all", *store_arguments(redis_config)],
            stdin=theirs,
            capture_output=True,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code
    assert b"Forget 3 partitions of job j" in done.stderr
    assert sorted(versions(store)) == left


def test_damaged_ones_are_named_behind_the_list_and_can_be_forgotten(
    redis_config: RedisConfig,
) -> None:
    store = open_checkpoints(redis_config, "j")
    for partition in ALL:
        store.commit(make_update(1, partition=partition))
    key = f"{redis_config.prefix}:j:checkpoint:{{a:2}}"
    call(connect(redis_config), "HSET", key, "part:1", b"nonsense")
    options = store_arguments(redis_config)
    result = invoke("checkpoint", "list", *options)
    assert result.exit_code == 4
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["a", "0"], ["b", "0"]]
    assert "checkpoint of a-2 of job j" in result.stderr
    assert "truncated or damaged" in result.stderr
    result = invoke("checkpoint", "list", "--json", *options)
    assert result.exit_code == 4
    assert ["damaged" in line for line in json_lines(result)] == [False, True, False]
    delete = ["--topic", "a", "--partition", "2", "--yes"]
    assert invoke("checkpoint", "delete", *delete, *options).exit_code == 0
    assert sorted(versions(store)) == [ALL[0], ALL[2]]
    assert invoke("checkpoint", "list", *options).exit_code == 0
