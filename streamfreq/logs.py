"""Logs on stderr: short lines for people, or one JSON object per line; never a secret.

Extras (`log.info("committed", extra={"version": 3})`) become key=value, or JSON fields.
Every text that was registered by `add_secret` is blotted out of messages, extras and tracebacks.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TextIO
from urllib.parse import quote

from streamfreq.config.secrets import HIDDEN

QUIET_LOGGERS = ("apscheduler", "kafka", "urllib3")
"""Libraries whose INFO lines are of no use to the people who run a daemon."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_RESERVED = frozenset({"ts", "level", "logger", "message", "exception"})


class _Secrets:
    """The registered secrets, in each spelling in which a library might write them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spellings: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        if not value:
            return
        spellings = {value, quote(value), quote(value, safe=""), repr(value)[1:-1]}
        spellings |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        with self._lock:
            self._spellings |= spellings
            longest_first = sorted(self._spellings, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def clear(self) -> None:
        with self._lock:
            self._spellings.clear()
            self._pattern = None

    def redact(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(HIDDEN, text)


_secrets = _Secrets()


def add_secret(value: str) -> None:
    """From now on no log line shows `value`; the empty text is ignored."""
    _secrets.add(value)


def forget_secrets() -> None:
    """Forget every registered secret."""
    _secrets.clear()


def redact(text: str) -> str:
    """`text` with stars in place of each registered secret."""
    return _secrets.redact(text)


class _Formatter(logging.Formatter):
    """The parts of a record that both formats show, without secrets."""

    def stamp(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"

    def text(self, record: logging.LogRecord) -> str:
        return redact(record.getMessage())

    def extras(self, record: logging.LogRecord) -> dict[str, Any]:
        return {
            (f"{key}_" if key in _RESERVED else key): _clean(value)
            for key, value in vars(record).items()
            if key not in _STANDARD and not key.startswith("_")
        }

    def trouble(self, record: logging.LogRecord) -> str:
        """Traceback and stack, if the record has them."""
        parts = []
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(self.formatException(record.exc_info))
        elif record.exc_text:
            parts.append(record.exc_text)
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return redact("\n".join(parts))


def _clean(value: object) -> object:
    """A value without secrets: unchanged if it shows none, else its redacted text."""
    shown = str(value)
    redacted = redact(shown)
    return value if redacted == shown else redacted


class TextFormatter(_Formatter):
    """`2026-01-31T12:00:00.000Z INFO streamfreq.daemon: committed partitions=6`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback under it if there is one."""
        words = [
            self.stamp(record),
            record.levelname,
            f"{record.name}:",
            _one_line(self.text(record)),
            *(f"{key}={_plain(value)}" for key, value in self.extras(record).items()),
        ]
        trouble = self.trouble(record)
        return _encodable(" ".join(words) + (f"\n{trouble}" if trouble else ""))


class JsonFormatter(_Formatter):
    """One JSON object per line: ts, level, logger, message, the extras, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line whatever the record holds."""
        fields: dict[str, Any] = {
            "ts": self.stamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": self.text(record),
            **self.extras(record),
        }
        if trouble := self.trouble(record):
            fields["exception"] = trouble
        try:
            return _encodable(json.dumps(fields, ensure_ascii=False, default=str))
        except (TypeError, ValueError):
            return json.dumps({key: str(value) for key, value in fields.items()})


def _encodable(text: str) -> str:
    """Lone surrogates as escapes, which JSON reads back too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _one_line(text: str) -> str:
    """Text from outside can't begin a log line of its own."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _plain(value: object) -> str:
    text = str(value)
    return text if re.fullmatch(r"[^\s\"'=]+", text) else json.dumps(text, ensure_ascii=False)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever sys.stderr is at the time of the line."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say where the broken call is; the standard report would show its arguments."""
        with suppress(Exception):
            kind = type(sys.exc_info()[1]).__name__
            self.stream.write(f"log line lost ({kind}): {record.pathname}:{record.lineno}\n")


def configure_logging(log_format: str, level: str) -> None:
    """Send the log to stderr: format text or json, from `level` on. Again: it is replaced."""
    handler = _Stderr()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in [item for item in root.handlers if isinstance(item, _Stderr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
