"""The checks of `streamfreq check`: each yields what it found, and none stops the others."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamfreq.cli.output import number
from streamfreq.errors import ConfigError, ServiceUnavailable, StreamfreqError

if TYPE_CHECKING:
    from streamfreq.config import Config

_WORST_FIRST = (1, 4, 3, 2)
_PROBE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found; `exit_code` is 0 unless it failed."""

    check: str
    status: Literal["ok", "warn", "fail"]
    message: str
    exit_code: int = 0


Check = Callable[["Config"], Iterator[Result]]


def run_checks(load: Callable[[], Config]) -> Iterator[Result]:
    """Every result, as it comes; with a wrong configuration there is nothing more to check."""
    try:
        config = load()
    except ConfigError as error:
        for line in str(error).splitlines():
            yield Result("configuration", "fail", line, error.exit_code)
        return
    for name, check in _CHECKS.items():
        try:
            yield from check(config)
        except StreamfreqError as error:
            yield Result(name, "fail", " ".join(str(error).split()), error.exit_code)
        except Exception as error:
            yield Result(name, "fail", f"a fault of ours: {type(error).__name__}: {error}", 1)


def worst_exit_code(results: Iterable[Result]) -> int:
    """The exit code of the worst failure; 0 when nothing failed."""
    codes = {result.exit_code for result in results}
    return next((code for code in _WORST_FIRST if code in codes), 0)


def _configuration(config: Config) -> Iterator[Result]:
    from streamfreq.config.load import ineffective
    from streamfreq.scheduling import cron_trigger

    if config.schedule.publish_cron:
        cron_trigger(config.schedule.publish_cron, "schedule.publish_cron")
    yield Result("configuration", "ok", f"job {config.job}")
    for line in ineffective(config):
        yield Result("configuration", "warn", line)


def _tokenizer(config: Config) -> Iterator[Result]:
    from streamfreq.tokenization import load_tokenizer

    tokenizer = load_tokenizer(config.tokenizer)
    tokens = tokenizer.encode_batch(["a short text"])
    yield Result(
        "tokenizer",
        "ok",
        f"{tokenizer.name}: {number(tokenizer.vocab_size)} ids, engine {tokenizer.engine}, "
        f"fingerprint {tokenizer.fingerprint[:12]}",
    )
    if not len(tokens.ids_N):
        yield Result("tokenizer", "warn", "it makes no token of plain English text")


def _weights(config: Config) -> Iterator[Result]:
    from streamfreq.weighting import validate

    counting = config.counting
    validate(config.weights, counting.horizons_seconds, counting.documents)
    if any(factor.ids for item in config.weights.values() for factor in item.product):
        from streamfreq.tokenization import load_tokenizer

        size = load_tokenizer(config.tokenizer).vocab_size
        validate(config.weights, counting.horizons_seconds, counting.documents, size)
    yield Result("weights", "ok", ", ".join(config.weights))


def _text(config: Config) -> Iterator[Result]:
    from streamfreq.text import TextPipeline

    TextPipeline(config.value, config.text)
    masks = ", ".join(config.text.mask) or "nothing"
    yield Result("text", "ok", f"{config.value.format} values, masks {masks}")


def _device(config: Config) -> Iterator[Result]:
    from streamfreq.counting import pick_device, probe_device

    device = pick_device(config.counting.device)
    probe_device(device)
    yield Result("device", "ok", device)


def _source(config: Config) -> Iterator[Result]:
    if config.source.kind == "files":
        yield from _files(config)
        return
    from streamfreq.sources.kafka import list_topics

    partitions = list_topics(config.kafka)
    brokers = ", ".join(config.kafka.bootstrap_servers)
    yield Result("broker", "ok", f"{brokers} answers")
    yield from _topics(config, partitions)
    topic = config.value.dead_letter_topic
    if topic and topic not in partitions:
        yield Result(
            "dead letters",
            "warn",
            f"topic {topic} is not there; create it unless the broker creates topics by itself",
        )


def _topics(config: Config, partitions: Mapping[str, int]) -> Iterator[Result]:
    from streamfreq.sources.kafka import matching_topics

    for topic in config.kafka.topics:
        if topic in partitions:
            yield Result("topic", "ok", f"{topic}: {number(partitions[topic])} partitions")
        else:
            yield Result(
                "topic",
                "fail",
                f"{topic} is not on this broker, or this user may not see it; create it, or "
                "correct kafka.topics",
                ServiceUnavailable.exit_code,
            )
    if config.kafka.topic_pattern:
        matched = matching_topics(config.kafka, partitions)
        total = sum(partitions[topic] for topic in matched)
        if matched:
            what = f"{number(len(matched))} topics with {number(total)} partitions"
            yield Result("topic", "ok", f"kafka.topic_pattern matches {what}")
        else:
            yield Result("topic", "warn", "kafka.topic_pattern matches no topic yet")


def _files(config: Config) -> Iterator[Result]:
    for path in config.files.paths:
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            reason = f"{path} can't be read ({error.strerror}); correct files.paths"
            yield Result("file", "fail", reason, ConfigError.exit_code)
        else:
            yield Result("file", "ok", path)


def _dead_letters(config: Config) -> Iterator[Result]:
    path = config.value.dead_letter_file
    if not path or "dead-letter" not in (config.value.on_bad, config.value.on_invalid_utf8):
        return
    folder = Path(path).parent
    if folder.is_dir():
        yield Result("dead letters", "ok", path)
    else:
        reason = f"there is no folder {folder}; create it, or correct value.dead_letter_file"
        yield Result("dead letters", "fail", reason, ConfigError.exit_code)


def _store(config: Config) -> Iterator[Result]:
    from streamfreq.redis_client import Script, call, connect, describe, is_memory, ping

    if is_memory(config.redis):
        yield Result("store", "warn", "memory:// keeps nothing when the process ends")
        return
    client = connect(config.redis)
    ping(client)
    # A user of the access control list may only have keys that begin with the prefix.
    key = f"{config.redis.prefix}:{{{config.job}}}:check:{uuid.uuid4().hex}"
    probe = Script("return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])")
    probe(client, [key], ["1", _PROBE_MS])
    call(client, "DEL", key)
    yield Result("store", "ok", f"{describe(config.redis)} answers, runs scripts, takes writes")
    memory = call(client, "INFO", "memory")
    for policy in sorted(_evicting(memory)):
        yield Result(
            "store",
            "warn",
            f"maxmemory-policy {policy} may evict checkpoints and snapshots; "
            "set it to noeviction, or to a volatile one",
        )


def _evicting(memory: Any) -> Iterator[str]:
    """The eviction policies in INFO's answer (of one node or several) that touch any key."""
    if not isinstance(memory, Mapping):
        return
    for node in memory.values():
        yield from _evicting(node)
    policy = str(memory.get("maxmemory_policy", ""))
    if policy.startswith("allkeys") and int(memory.get("maxmemory", 0)):
        yield policy


_CHECKS: dict[str, Check] = {
    "configuration": _configuration,
    "tokenizer": _tokenizer,
    "text": _text,
    "weights": _weights,
    "device": _device,
    "source": _source,
    "dead letters": _dead_letters,
    "store": _store,
}
