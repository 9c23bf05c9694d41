"""A stream framework's way: quixstreams, its state holding one decayed count for each token.

Run as a script by a Python that has quixstreams; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from typing import Any

HALF_LIFE_MS = 3_600_000.0


def main() -> None:
    from quixstreams import Application
    from tokenizers import Tokenizer

    bootstrap, topic, path, records = sys.argv[1:]
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    clock: dict[str, float] = {}

    def count(text: str, key: Any, timestamp: int, headers: Any, state: Any) -> None:
        clock.setdefault("began", time.perf_counter())
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            value, at = state.get(str(token), (0.0, timestamp))
            value *= 0.5 ** (max(0, timestamp - at) / HALF_LIFE_MS)
            state.set(str(token), (value + 1.0, max(at, timestamp)))

    with tempfile.TemporaryDirectory() as folder:
        app = Application(
            bootstrap,
            consumer_group=f"quix-{uuid.uuid4().hex[:8]}",
            auto_offset_reset="earliest",
            state_dir=folder,
            loglevel="ERROR",
            commit_interval=30.0,
        )
        stream = app.dataframe(
            app.topic(topic, value_deserializer="string", key_deserializer="bytes")
        )
        stream.update(count, metadata=True, stateful=True)
        app.run(count=int(records))
        seconds = time.perf_counter() - clock["began"]
    print(json.dumps({"records": int(records), "seconds": seconds}))


if __name__ == "__main__":
    main()
