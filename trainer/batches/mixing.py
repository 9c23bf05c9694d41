"""The rows of each step: new blocks, and some that are seen again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamfreq.clock import Clock
from streamfreq.records import TopicPartition
from trainer.batches.stream import BlockStream, Read
from trainer.blocks import IGNORED, Block, StreamState
from trainer.config import ReplayConfig
from trainer.replay import ReplayBuffer


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a step. weight multiplies all its tokens; 0: nothing is learned from it."""

    block: Block
    fresh: bool = True
    weight: float = 1.0


class Mixer:
    """Composes steps of G rows: `share` of them replayed, the rest new.

    What is replayed is drawn before the step's new blocks go into the buffer. A step that can't
    be filled within `max_wait_seconds`, or is the last, is filled up with rows that teach nothing.
    """

    def __init__(
        self,
        stream: BlockStream,
        replay: ReplayBuffer,
        config: ReplayConfig,
        step_rows: int,
        max_wait_seconds: float,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._replay = replay
        self._config = config
        self._rows = step_rows
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock
        self._fraction = 0.0
        self._fresh: list[Read] = []
        self._waiting_since: float | None = None
        self.stream_state = StreamState()

    @property
    def ended(self) -> bool:
        """Whether every block of the stream has been in a step."""
        return self._stream.ended and not self._fresh

    def next(self, timeout_seconds: float) -> list[Row] | None:
        """The rows of the next step; None when there are not enough yet, or the stream ended."""
        replayed, fraction = self._replayed()
        wanted = self._rows - replayed
        deadline = self._clock.monotonic() + timeout_seconds
        while len(self._fresh) < wanted:
            left = deadline - self._clock.monotonic()
            read = self._stream.get(max(0.0, left))
            if read is not None:
                self._fresh.append(read)
            elif self._stream.ended or left <= 0:
                break
        if len(self._fresh) >= wanted:
            self._waiting_since = None
            self._fraction = fraction
            return self._step(self._fresh[:wanted], replayed)
        return self._short_step(replayed, fraction)

    def state_dict(self) -> dict[str, Any]:
        """Behind the last step that was given out."""
        state = self.stream_state
        return {
            "offsets": [[*partition, offset] for partition, offset in state.offsets.items()],
            "carry_ids": np.asarray(state.carry_ids, np.int32),
            "records": state.records,
            "tokens": state.tokens,
            "topic_ids": dict(state.topic_ids),
            "fraction": self._fraction,
            "replay": self._replay.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; then open the stream at `stream_state`."""
        self.stream_state = StreamState(
            offsets={
                TopicPartition(topic, partition): offset
                for topic, partition, offset in state["offsets"]
            },
            carry_ids=state["carry_ids"],
            records=state["records"],
            tokens=state["tokens"],
            topic_ids=state["topic_ids"],
        )
        self._fraction = state["fraction"]
        self._replay.load_state_dict(state["replay"])

    def _replayed(self) -> tuple[int, float]:
        """How many rows are replayed in the next step, and the fraction carried on from it."""
        if not len(self._replay):
            return 0, self._fraction
        exact = self._config.share * self._rows + self._fraction
        # Of 1,000 steps of 8 rows at a quarter exactly 2,000 rows are replayed; at 0.3, 2,400.
        whole = min(math.floor(exact + 1e-9), self._rows - 1)
        return whole, exact - whole

    def _short_step(self, replayed: int, fraction: float) -> list[Row] | None:
        """A step with fewer new rows, when the others do not come; None: wait on."""
        now = self._clock.monotonic()
        if self._stream.ended:
            if not self._fresh:
                return None
        elif not self._fresh and self._config.when_waiting == "replay" and len(self._replay):
            return self._step([], self._rows)
        elif not self._fresh:
            self._waiting_since = None
            return None
        else:
            if self._waiting_since is None:
                self._waiting_since = now
            if now - self._waiting_since < self._max_wait_seconds:
                return None
        self._waiting_since = None
        self._fraction = fraction
        return self._step(list(self._fresh), replayed)

    def _step(self, fresh: Sequence[Read], replayed: int) -> list[Row]:
        rows = [Row(read.block) for read in fresh]
        if replayed:
            blocks, weights = self._replay.draw(replayed)
            rows += [
                Row(block, False, weight) for block, weight in zip(blocks, weights, strict=True)
            ]
        for read in fresh:
            self._replay.add(read.block)
            self.stream_state = read.state
        del self._fresh[: len(fresh)]
        while len(rows) < self._rows:
            rows.append(Row(_nothing_like(rows[0].block), False, 0.0))
        return rows


def _nothing_like(block: Block) -> Block:
    size = len(block)
    return Block(
        np.zeros(size, np.int32), np.full(size, IGNORED, np.int32), np.arange(size, dtype=np.int32)
    )
