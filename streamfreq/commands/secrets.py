"""What must not leak when a command fails: the secrets of the configuration that it loaded."""

from __future__ import annotations

from collections.abc import Iterable

_HIDDEN = "********"
_secrets: set[str] = set()


def keep_secret(texts: Iterable[str]) -> None:
    """From now on `blotted` hides each of `texts`."""
    _secrets.update(text for text in texts if text)


def forget_secrets() -> None:
    """Begin anew: another command, another configuration."""
    _secrets.clear()


def blotted(message: str) -> str:
    """`message` with stars in place of every secret, longest first."""
    for text in sorted(_secrets, key=len, reverse=True):
        message = message.replace(text, _HIDDEN)
    return message
