"""Log lines are for people or for programs, and never hold a secret."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator

import pytest

from streamfreq.config.secrets import HIDDEN
from streamfreq.logs import add_secret, configure_logging, forget_secrets, redact

SECRETS = ["hunter2", "p@ss/w#rd%", 'quote"d \\ slash', "ends with space ", "密码🔑", "a.b*c(d"]

log = logging.getLogger("streamfreq.test")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    quiet = {name: logging.getLogger(name).level for name in ("kafka", "apscheduler", "urllib3")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, value in quiet.items():
        logging.getLogger(name).setLevel(value)
    logging.captureWarnings(False)
    forget_secrets()


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == "", "logs go to stderr"
    return captured.err.splitlines()


def test_text_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "INFO")
    log.info("committed %d", 3, extra={"topic": "titles", "note": "two words", "empty": ""})
    (line,) = lines(capsys)
    stamp, rest = line.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == 'INFO streamfreq.test: committed 3 topic=titles note="two words" empty=""'


def test_text_from_outside_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "INFO")
    log.warning("bad value: %s", "x\n2026-01-01 ERROR forged", extra={"value": "a\nb"})
    (line,) = lines(capsys)
    assert "x\\n2026-01-01 ERROR forged" in line


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "INFO")
    log.info("committed %d", 3, extra={"version": 7, "topic": "titles", "level": "odd"})
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, lines(capsys))
    assert first["ts"].endswith("Z")
    del first["ts"]
    assert first == {
        "level": "INFO",
        "logger": "streamfreq.test",
        "message": "committed 3",
        "version": 7,
        "topic": "titles",
        "level_": "odd",
    }
    assert second["message"] == "failed"
    assert second["exception"].startswith("Traceback")
    assert "ValueError: first\nsecond" in second["exception"]


def test_json_takes_any_extra(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "INFO")
    circle: list[object] = []
    circle.append(circle)
    log.info("odd", extra={"value": {1, 2}, "error": OSError("gone"), "text": "\ud800"})
    log.info("circle", extra={"value": circle})
    log.info("keys", extra={"value": {(1, 2): 3}})
    parsed = [json.loads(line) for line in lines(capsys)]
    assert [item["message"] for item in parsed] == ["odd", "circle", "keys"]
    assert parsed[0]["error"] == "gone"
    assert parsed[0]["text"] == "\ud800"


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_in_any_part_of_a_line(
    capsys: pytest.CaptureFixture[str], log_format: str, secret: str
) -> None:
    configure_logging(log_format, "INFO")
    add_secret(secret)
    add_secret("")
    log.info("password is %s", secret)
    log.info(f"password is {secret}")
    log.info("in an object %s", {"password": secret})
    log.info("extra", extra={"password": secret, "options": {"sasl": [secret]}})
    try:
        raise ConnectionError(f"can't log in with {secret}")
    except ConnectionError as error:
        log.exception("failed: %s", error)
    log.info("stack", stack_info=True)
    text = "\n".join(lines(capsys))
    for spelling in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]):
        assert spelling not in text
    assert text.count(HIDDEN) >= 7


def test_a_secret_inside_a_url_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "INFO")
    add_secret("p@ss/w#rd")
    log.info("connect to redis://me:p%40ss%2Fw%23rd@localhost:6379/0")
    (line,) = lines(capsys)
    assert line.endswith(f"redis://me:{HIDDEN}@localhost:6379/0")


def test_a_secret_that_contains_another_disappears_whole() -> None:
    add_secret("abc")
    add_secret("abcdef")
    assert redact("xabcdefx abc") == f"x{HIDDEN}x {HIDDEN}"
    forget_secrets()
    assert redact("abc") == "abc"


def test_a_broken_log_call_is_named_without_its_arguments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging("text", "INFO")
    monkeypatch.setattr(logging.getLogger(), "handlers", logging.getLogger().handlers[-1:])
    log.info("%d", "hunter2")
    (line,) = lines(capsys)
    assert line.startswith("log line lost (TypeError): ")
    assert "test_logs.py:" in line
    assert "hunter2" not in line


def test_level_and_quiet_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "DEBUG")
    log.debug("detail")
    for name in ("kafka.consumer.group", "apscheduler.executors.default", "urllib3.pool"):
        logging.getLogger(name).info("chatter")
        logging.getLogger(name).warning("trouble")
    assert [line.rpartition(": ")[2] for line in lines(capsys)] == ["detail", *["trouble"] * 3]
    configure_logging("text", "ERROR")
    log.warning("no")
    logging.getLogger("kafka.client").warning("no")
    log.error("yes")
    assert len(lines(capsys)) == 1


def test_configuring_again_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "INFO")
    configure_logging("json", "INFO")
    log.info("once")
    (line,) = lines(capsys)
    assert json.loads(line)["message"] == "once"


def test_lines_go_to_the_stderr_of_the_moment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    configure_logging("text", "INFO")
    other = io.StringIO()
    monkeypatch.setattr(sys, "stderr", other)
    log.info("here")
    monkeypatch.undo()
    assert "here" in other.getvalue()
    log.info("there")
    assert "there" in lines(capsys)[0]


def test_warnings_become_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "INFO")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old way", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    (line,) = lines(capsys)
    assert "old way" in json.loads(line)["message"]
