"""Everything streamfreq raises on purpose, and the exit code that each becomes.

StreamfreqError                 1  a fault of ours
├── UsageError                  2  wrong arguments
│   └── ConfigError             2  a configuration value is wrong
├── ServiceUnavailable          3  Kafka or Redis could not be reached
├── DataRefused                 4  the data can't be used as it is
│   ├── BadRecord               4  a record broke the policy `stop`
│   ├── SnapshotRefused         4  checksum, format, or tokenizer do not fit
│   ├── CheckpointRefused       4  written by another tokenizer or other half-lives
│   └── OffsetExpired           4  the broker no longer has the next offset (policy `fail`)
├── CheckpointConflict          1  another worker owns the partition now (handled inside)
└── FencedOut                   1  another publisher holds the lease now (handled inside)

The message of each is one line for a person: it names the thing and the way out.
"""

from __future__ import annotations


class StreamfreqError(Exception):
    """Base of all errors raised on purpose; the message is one line for a person."""

    exit_code = 1


class UsageError(StreamfreqError):
    """A command was used wrongly."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration value is wrong: the message names the field, the value, what is allowed."""


class ServiceUnavailable(StreamfreqError):
    """Kafka or Redis can't be reached, or refuses to serve."""

    exit_code = 3


class DataRefused(StreamfreqError):
    """Input that can't be used as it is."""

    exit_code = 4


class BadRecord(DataRefused):
    """A record is bad and the policy says stop."""


class SnapshotRefused(DataRefused):
    """A snapshot has a wrong checksum, a newer format, or another tokenizer."""


class CheckpointRefused(DataRefused):
    """A checkpoint was written by another tokenizer, other half-lives, or a newer format."""


class OffsetExpired(DataRefused):
    """The broker no longer holds the partition's next offset and the policy says fail."""


class CheckpointConflict(StreamfreqError):
    """The compare-and-swap failed: another worker committed this partition."""


class FencedOut(StreamfreqError):
    """The publisher's fencing token is older than one already seen by the store."""


def count_anew(topic: str) -> str:
    """The way out when a topic's offsets no longer mean the records that were counted."""
    return (
        "count it under another name (job = ...), or forget the old one: "
        f"streamfreq checkpoint delete -c FILE --topic {topic}"
    )
