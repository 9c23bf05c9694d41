"""Where the daemon's time goes: its stages' functions, timed in place."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any


class Stages:
    """Wall and CPU seconds of functions, of the thread that runs each; helpers of native engines
    and the client's own network thread are in none of them."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def time(self, owner: Any, name: str, stage: str) -> None:
        """Charge the calls of `owner.name` to a stage."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **named)
            finally:
                with self._lock:
                    self.wall[stage] += time.perf_counter() - wall
                    self.cpu[stage] += time.thread_time() - cpu

        setattr(owner, name, timed)

    def as_json(self, records: int) -> dict[str, dict[str, float]]:
        """Microseconds a record, by stage."""
        return {
            stage: {
                "wall_us": round(self.wall[stage] / records * 1e6, 3),
                "cpu_us": round(self.cpu[stage] / records * 1e6, 3),
            }
            for stage in self.wall
        }


def time_the_daemon(client: str) -> Stages:
    """Begin to time every daemon of this process."""
    from streamfreq.counting import Counters
    from streamfreq.daemon.committer import Committer
    from streamfreq.publisher import Publisher
    from streamfreq.text import Cleaner, Masker, TextPipeline
    from streamfreq.tokenization.subword import SubwordTokenizer

    stages = Stages()
    if client == "kafka-python":
        from streamfreq.sources.kafka.session import ClientSession

        stages.time(ClientSession, "poll", "poll")
    else:
        from streamfreq.sources.confluent import ConfluentSource

        stages.time(ConfluentSource, "poll", "poll")
    stages.time(TextPipeline, "_read", "decode")
    stages.time(Cleaner, "clean_batch", "clean")
    stages.time(Masker, "mask_batch", "mask")
    stages.time(SubwordTokenizer, "encode_batch", "encode")
    stages.time(Counters, "update", "count")
    stages.time(Committer, "commit", "commit")
    stages.time(Publisher, "publish", "publish")
    return stages
