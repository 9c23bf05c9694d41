"""`streamfreq checkpoint ...` on every store: shows what is committed, forgets what is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamfreq.checkpoints import CheckpointStore, open_checkpoints
from streamfreq.cli.checkpoint_output import delete_checkpoints
from streamfreq.cli.stored import Stored
from streamfreq.clock import ManualClock
from streamfreq.config import Config, RedisConfig, SnapshotsConfig
from streamfreq.errors import ServiceUnavailable
from streamfreq.publisher import Publisher, Recipe
from streamfreq.records import TopicPartition
from streamfreq.snapshots import open_lease, open_snapshots
from tests.conformance.values import make_snapshot, make_update, versions
from tests.unit.cli.samples import invoke, json_lines, store_arguments

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


def test_afterwards_the_snapshots_begin_a_new_epoch(
    store: CheckpointStore, store_config: RedisConfig, options: list[str]
) -> None:
    snapshots = open_snapshots(store_config, SnapshotsConfig(), "j")
    before = make_snapshot(7, offsets={ALL[0]: 9_000}, job="j")
    snapshots.publish(before, 1)
    assert invoke("checkpoint", "delete", "--topic", "a", "--yes", *options).exit_code == 0
    publisher = Publisher(
        Recipe("j", "tiny", "f" * 64, {}),
        SnapshotsConfig(lease_seconds=0.1),
        store,
        snapshots,
        open_lease(store_config, SnapshotsConfig(), "j", "daemon"),
        ManualClock(before.epoch + 5),
    )
    publisher.keep_lease()
    publisher._listens_until = 0.0
    after = publisher.publish()
    assert after is not None
    assert after.version == 8
    assert after.epoch != before.epoch
    assert list(after.offsets) == ALL[2:]


@pytest.mark.parametrize("dies_at", ["end_epoch", "first delete", "second delete"])
def test_an_end_between_the_steps_leaves_what_a_second_run_mends(
    store: CheckpointStore,
    store_config: RedisConfig,
    dies_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = Stored(Config.model_validate({"job": "j", "kafka": {"topics": ["a"]}}))
    monkeypatch.setattr(stored, "_checkpoints", store)
    snapshots = open_snapshots(store_config, SnapshotsConfig(), "j")
    monkeypatch.setattr(stored, "_store", snapshots)
    stored.config = stored.config.model_copy(update={"redis": store_config})
    snapshots.publish(make_snapshot(1, job="j"), 1)
    deletes = 0
    delete = store.delete

    def dying(partition: TopicPartition) -> bool:
        nonlocal deletes
        deletes += 1
        if dies_at.startswith(("first", "second")[deletes - 1]):
            raise ServiceUnavailable("away")
        return delete(partition)

    def away() -> None:
        raise ServiceUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", dying)
        if dies_at == "end_epoch":
            patch.setattr(snapshots, "end_epoch", away)
        with pytest.raises(ServiceUnavailable):
            delete_checkpoints(stored, ALL, as_json=False)
    # The epoch ends first: no checkpoint is gone while the old one still binds.
    assert (snapshots.epoch() == 0) == (dies_at != "end_epoch")
    delete_checkpoints(stored, sorted(versions(store)), as_json=False)
    assert versions(store) == {}
    assert snapshots.epoch() == 0


def test_damaged_ones_are_named_behind_the_list(redis_config: RedisConfig, tmp_path: Path) -> None:
    from streamfreq.redis_client import call, connect

    store = open_checkpoints(redis_config, "j")
    for partition in ALL:
        store.commit(make_update(1, partition=partition))
    key = f"{redis_config.prefix}:j:checkpoint:{{a:2}}"
    call(connect(redis_config), "HSET", key, "part:1", b"nonsense")
    result = invoke("checkpoint", "list", *store_arguments(redis_config))
    assert result.exit_code == 4
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["a", "0"], ["b", "0"]]
    assert "checkpoint of a-2 of job j" in result.stderr
    assert "truncated or damaged" in result.stderr
