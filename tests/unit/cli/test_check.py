"""`streamfreq check`: every check runs, each failure has its exit code and its way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamfreq.cli.checks import Result, _evicting, run_checks, worst_exit_code
from streamfreq.config import RedisConfig
from streamfreq.errors import ConfigError
from tests.services.redis import RedisServer, free_port
from tests.unit.cli.samples import invoke, statuses


@pytest.fixture
def fine(tmp_path: Path) -> list[str]:
    """Options with which everything is in order."""
    path = tmp_path / "lines.txt"
    path.write_text("a line\n")
    return ["--set", "source.kind=files", "--set", f"files.paths={path}",
            "--set", "redis.url=memory://check"]  # fmt: skip


def test_everything_in_order(fine: list[str]) -> None:
    result = invoke("check", *fine)
    assert result.exit_code == 0, result.output
    assert all(line.startswith(("ok  ", "warn")) for line in result.stdout.splitlines())
    assert statuses(invoke("check", "--json", *fine)) == {
        "configuration": "ok", "tokenizer": "ok", "text": "ok", "weights": "ok", "device": "ok",
        "file": "ok", "store": "warn",
    }  # fmt: skip


def test_options_without_effect_are_warnings(fine: list[str]) -> None:
    result = invoke("check", *fine, "--set", "kafka.start=latest")
    assert result.exit_code == 0
    assert "warn  configuration: kafka.start has no effect: source.kind is" in result.stdout


def test_every_mistake_of_the_configuration_has_its_line() -> None:
    result = invoke("check", "--set", "kafka.tpics=a", "--set", "kafka.max_poll_records=0")
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 2
    assert all(line.startswith("fail  configuration: ") for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("setting", "check", "exit_code"),
    [
        ("tokenizer.path=missing.json", "tokenizer", 2),
        ("weights.a.product=[{scheme='idf', horizon='7h'}]", "weights", 2),
        ("text.phone_regions=Atlantis", "text", 2),
        ("counting.device=cuda:99", "device", 2),
        ("counting.device=abacus", "device", 2),
        ("files.paths=missing.txt", "file", 2),
        ("redis.url=http://localhost", "store", 2),
        (f"redis.url=redis://127.0.0.1:{free_port()}", "store", 3),
    ],
)
def test_one_failure_stops_no_other_check(
    fine: list[str], setting: str, check: str, exit_code: int
) -> None:
    mask = ["--set", "text.mask=phone"] if check == "text" else []
    result = invoke("check", *fine, "--json", *mask, "--set", setting)
    found = statuses(result)
    assert result.exit_code == exit_code
    assert found.pop(check) == "fail"
    assert len(found) >= 5
    assert "fail" not in found.values()


def test_the_folder_of_the_dead_letters(fine: list[str], tmp_path: Path) -> None:
    policy = [*fine, "--set", "value.on_bad=dead-letter", "--json"]
    inside = invoke("check", *policy, "--set", f"value.dead_letter_file={tmp_path}/d.jsonl")
    assert statuses(inside)["dead letters"] == "ok"
    outside = invoke("check", *policy, "--set", f"value.dead_letter_file={tmp_path}/no/d.jsonl")
    assert (statuses(outside)["dead letters"], outside.exit_code) == ("fail", 2)


def test_the_store(fine: list[str], store_config: RedisConfig) -> None:
    store = [f"redis.{name}={getattr(store_config, name)}" for name in ("url", "prefix", "cluster")]
    options = [item for setting in store for item in ("--set", setting)]
    result = invoke("check", *fine, "--json", *options)
    assert result.exit_code == 0, result.output
    memory = store_config.url.startswith("memory:")
    assert statuses(result)["store"] == ("warn" if memory else "ok")


@pytest.mark.redis_server
def test_a_store_that_wants_a_password(fine: list[str], redis_kind: str) -> None:
    with RedisServer(redis_kind, password="right") as server:
        options = [*fine, "--set", f"redis.url={server.url}"]
        right = invoke("check", *options, "--set", "redis.password=right")
        wrong = invoke("check", *options, "--set", "redis.password=wrong-canary")
    assert right.exit_code == 0, right.output
    assert wrong.exit_code == 3
    assert "refuses the user or the password" in wrong.stdout
    assert "wrong-canary" not in wrong.output


@pytest.mark.redis_server
def test_a_store_that_may_evict_is_a_warning(fine: list[str], redis_kind: str) -> None:
    with RedisServer(redis_kind) as server:
        server.command("CONFIG", "SET", "maxmemory", "100mb")
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        result = invoke("check", *fine, "--set", f"redis.url={server.url}")
        keys = server.command("DBSIZE")
    assert result.exit_code == 0
    assert "warn  store: maxmemory-policy allkeys-lru may evict" in result.stdout
    assert keys.strip() in (b":0", b"0")


def test_policies_that_can_not_evict_our_keys_are_no_warning() -> None:
    limited = {"maxmemory": 1, "maxmemory_policy": "volatile-lru"}
    assert list(_evicting(limited)) == []
    assert list(_evicting({"maxmemory": 0, "maxmemory_policy": "allkeys-lru"})) == []
    node = {"maxmemory": 5, "maxmemory_policy": "allkeys-lfu"}
    assert list(_evicting({"one:1": limited, "two:2": node})) == ["allkeys-lfu"]
    assert list(_evicting("")) == []


def test_the_worst_exit_code() -> None:
    def results(*codes: int) -> list[Result]:
        return [Result("x", "fail", "", code) for code in codes]

    assert worst_exit_code([]) == 0
    assert worst_exit_code(results(0, 2, 3)) == 3
    assert worst_exit_code(results(3, 4, 2)) == 4
    assert worst_exit_code(results(4, 1)) == 1


def test_a_wrong_configuration_is_all_there_is_to_say() -> None:
    def load():
        raise ConfigError("one\ntwo")

    assert [(result.message, result.exit_code) for result in run_checks(load)] == [
        ("one", 2),
        ("two", 2),
    ]
