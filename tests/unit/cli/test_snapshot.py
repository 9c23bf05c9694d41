"""`streamfreq snapshot ...` on every store: memory, real servers, clusters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamfreq.codec import decode_snapshot, encode_snapshot
from streamfreq.config import RedisConfig, SnapshotsConfig
from streamfreq.snapshots import open_lease, open_snapshots, write_snapshot_file
from tests.unit.cli.samples import early, invoke, json_lines, late, store_arguments


@pytest.fixture
def store(store_config: RedisConfig):
    """The store with `early` as version 1 and `late` as version 2."""
    opened = open_snapshots(store_config, SnapshotsConfig(), "j")
    lease = open_lease(store_config, SnapshotsConfig(), "j", "test")
    fence = lease.acquire()
    assert fence is not None
    for version, snapshot in enumerate((early(), late()), start=1):
        opened.publish(replace(snapshot, version=version, job="j"), fence)
    lease.release()
    return opened


@pytest.fixture
def options(store, store_config: RedisConfig) -> list[str]:
    return store_arguments(store_config)


def test_list(store, options: list[str]) -> None:
    store.mark_stale(5_000)
    result = invoke("snapshot", "list", *options)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["version", "1", "2"]
    assert lines[2].endswith("latest")
    assert "stale" in lines[3]
    one, two = json_lines(invoke("snapshot", "list", "--json", *options))
    assert (one["version"], one["latest"], two["latest"]) == (1, False, True)
    assert (one["stale_since_ms"], two["stale_since_ms"]) == (None, 5_000)


def test_show(options: list[str]) -> None:
    result = invoke("snapshot", "show", *options)
    assert result.exit_code == 0
    assert "version     2" in result.stdout
    assert "topic-0" in result.stdout
    (shown,) = json_lines(invoke("snapshot", "show", "1", "--json", *options))
    assert (shown["version"], shown["offsets"]) == (1, {"topic": {"0": 60}})
    assert shown["horizons"][1]["tokens"] == 280.0
    assert shown["weights"]["default"]["mean"] == pytest.approx(1.0, rel=1e-5)


def test_top(options: list[str]) -> None:
    result = invoke("snapshot", "top", "1", "-n", "3", *options)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[:2] == ["1", "the"]
    first, *_ = json_lines(invoke("snapshot", "top", "1", "--json", *options))
    assert (first["token"], first["count"], first["rank"]) == ("the", 100.0, 1)


def test_rising(options: list[str]) -> None:
    result = invoke("snapshot", "top", "--rising", "-n", "3", *options)
    assert result.exit_code == 0
    assert "half-life 1h" in result.stdout
    assert {line.split()[1] for line in result.stdout.splitlines()[2:]} == {
        "comet", "returns", "tonight",
    }  # fmt: skip
    rows = json_lines(invoke("snapshot", "top", "--rising", "-n", "3", "--json", *options))
    assert all(row["ratio"] > 1 and row["per_second"] > 0 for row in rows)


def test_diff(options: list[str]) -> None:
    result = invoke("snapshot", "diff", "1", "2", *options)
    assert result.exit_code == 0
    assert "comet" in result.stdout
    changes = json_lines(invoke("snapshot", "diff", "1", "--json", *options))
    risen = [change["token"] for change in changes if change["change"] == "risen"]
    assert set(risen) == {"comet", "returns", "tonight"}


def test_ids_load_no_tokenizer(options: list[str]) -> None:
    missing = ["--tokenizer", "not/there.json"]
    assert invoke("snapshot", "top", *missing, *options).exit_code == 2
    assert invoke("snapshot", "top", "--ids", *missing, *options).exit_code == 0


def test_another_tokenizer_is_refused(options: list[str]) -> None:
    result = invoke("snapshot", "top", *options, "--set", "tokenizer.words_seed=7")
    assert result.exit_code == 4
    assert "counted with tokenizer words" in result.stderr


def test_export_gives_the_bytes_of_the_store(store, options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    assert invoke("snapshot", "export", "1", path, *options).exit_code == 0
    assert path.read_bytes() == encode_snapshot(store.load(1))
    again = invoke("snapshot", "export", "latest", path, *options)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    result = invoke("snapshot", "export", "latest", path, "--force", "--json", *options)
    assert json_lines(result)[0]["version"] == 2
    assert decode_snapshot(path.read_bytes()).version == 2


def test_a_file_stands_for_a_version(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "late.safetensors"
    write_snapshot_file(late(), path)
    rows = [
        [row["token"] for row in json_lines(invoke("snapshot", "top", name, "--json", *options))]
        for name in (path, "2")
    ]
    assert rows[0] == rows[1]
    assert invoke("snapshot", "show", path).exit_code == 0
    changes = json_lines(invoke("snapshot", "diff", "1", path, "--json", *options))
    assert changes[0]["change"] == "risen"


def test_import_publishes_as_the_newest_version(store, options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "early.safetensors"
    write_snapshot_file(replace(early(), version=77, job="other"), path)
    result = invoke("snapshot", "import", path, "--json", *options)
    assert json_lines(result) == [{"version": 3, "job": "j", "file": str(path)}]
    assert store.latest_version() == 3
    loaded = store.load()
    assert (loaded.version, loaded.job) == (3, "j")
    assert (loaded.counts_HV == early().counts_HV).all()
    assert invoke("snapshot", "import", path, *options).exit_code == 0
    assert store.latest_version() == 4


def test_import_waits_for_no_living_publisher(
    store, store_config: RedisConfig, options: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "early.safetensors"
    write_snapshot_file(early(), path)
    lease = open_lease(store_config, SnapshotsConfig(lease_seconds=60), "j", "daemon")
    assert lease.acquire() is not None
    result = invoke("snapshot", "import", path, *options, "--set", "snapshots.lease_seconds=0.1")
    assert result.exit_code == 2
    assert "is publishing; stop it first" in result.stderr
    assert store.latest_version() == 2


def test_import_refuses_a_damaged_file(store, options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    data = bytearray(encode_snapshot(early()))
    data[-1] ^= 1
    path.write_bytes(data)
    result = invoke("snapshot", "import", path, *options)
    assert (result.exit_code, store.latest_version()) == (4, 2)
    assert "checksum" in result.stderr


def test_pin_and_unpin(store, options: list[str]) -> None:
    assert invoke("snapshot", "pin", "1", *options).exit_code == 0
    assert [info.pinned for info in store.infos()] == [True, False]
    assert "pinned" in invoke("snapshot", "list", *options).stdout
    result = invoke("snapshot", "unpin", "1", "--json", *options)
    assert json_lines(result) == [{"version": 1, "pinned": False}]
    assert not store.infos()[0].pinned
    missing = invoke("snapshot", "pin", "9", *options)
    assert missing.exit_code == 2
    assert "version 9 is not kept; there are 1, 2" in missing.stderr


def test_an_empty_store_says_so(store_config: RedisConfig) -> None:
    options = store_arguments(store_config)
    result = invoke("snapshot", "list", *options)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no snapshot" in result.stderr
    assert invoke("snapshot", "list", "--json", *options).stdout == ""
    assert invoke("snapshot", "show", *options).exit_code == 2
