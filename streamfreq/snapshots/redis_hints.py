"""Hints through a channel of the server; a lost connection costs hints and nothing else."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from streamfreq.redis_client import Client

_CLOSE_LOOK_SECONDS = 0.2
"""How soon a wait notices that it was closed."""
_AGAIN_SECONDS = 1.0
"""Between two tries to listen while the server is away."""


class RedisHints:
    """The port Hints over a subscription, which is made anew whenever it breaks."""

    def __init__(self, client: Client, channel: str) -> None:
        self._client: Any = client
        self._channel = channel
        self._closed = threading.Event()
        self._subscription: Any = None

    def wait(self, timeout_seconds: float) -> bool:
        """Whether a hint came since the last call, or comes within the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while not self._closed.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                if self._listen(min(left, _CLOSE_LOOK_SECONDS)):
                    return True
            except Exception:
                # Whatever it was, what was published is found by asking; so this only waits.
                self._forget()
                self._closed.wait(min(max(0.0, deadline - time.monotonic()), _AGAIN_SECONDS))
        self._forget()
        return False

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def _listen(self, seconds: float) -> bool:
        """Whether a message comes within the time, or the subscription is a new one.

        A publication may have come before a new subscription: that is a reason to look, too.
        """
        if self._subscription is None:
            subscription = self._client.pubsub()
            subscription.subscribe(self._channel)
            self._subscription = subscription
        message = self._subscription.get_message(timeout=seconds)
        return message is not None

    def _forget(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(Exception):
                subscription.close()
