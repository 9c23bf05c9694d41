"""Brings the client's rebalance calls to the thread that polls.

The client calls its listener on its network thread, which must not block: heartbeats stop and a
lookup from there would wait for itself. So the blocking client call runs on a helper thread, the
polling thread waits, and serves each rebalance call that comes meanwhile. Heartbeats go on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener
from kafka.net.wakeup_notifier import WakeupNotifier

from streamfreq.records import TopicPartition

Rebalance = Literal["assigned", "revoked", "lost"]
Serve = Callable[[Rebalance, list[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class _Call:
    kind: Rebalance
    partitions: list[TopicPartition]
    answered: WakeupNotifier


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any
    error: BaseException | None


class Relay(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Runs client calls beside the caller, who serves rebalances with `serve` meanwhile.

    `serve` must not raise: the client would go on with a half-done rebalance.
    """

    def __init__(self, net: Any, serve: Serve) -> None:
        self._net = net
        self._serve = serve
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[_Call | _Outcome] = queue.SimpleQueue()
        self._busy = False
        threading.Thread(target=self._work, name="kafka-poll", daemon=True).start()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` on the helper thread; its result or exception."""
        if self._busy:
            # An interrupt cut the last wait off; its call has to end first.
            self._wait()
        self._busy = True
        self._jobs.put(lambda: function(*args))
        outcome = self._wait()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def stop(self) -> None:
        """End the helper thread, once it is idle."""
        self._jobs.put(None)

    def _wait(self) -> _Outcome:
        while isinstance(event := self._events.get(), _Call):
            try:
                self._serve(event.kind, event.partitions)
            finally:
                event.answered.notify()
        self._busy = False
        return event

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                outcome = _Outcome(job(), None)
            except BaseException as error:
                outcome = _Outcome(None, error)
            self._events.put(outcome)

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Called by the client on its network thread."""
        await self._ask("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """Called by the client on its network thread, before it gives the partitions up."""
        await self._ask("revoked", revoked)

    async def on_partitions_lost(self, lost: Collection[Any]) -> None:
        """Called by the client on its network thread, when the group threw it out."""
        await self._ask("lost", lost)

    async def _ask(self, kind: Rebalance, partitions: Collection[Any]) -> None:
        answered = WakeupNotifier(self._net)
        ours = sorted(TopicPartition(topic, partition) for topic, partition in partitions)
        self._events.put(_Call(kind, ours, answered))
        await answered()
