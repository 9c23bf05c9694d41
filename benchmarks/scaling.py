"""What each part of counting costs, and what does not cost more: the daemon against itself.

    python -m benchmarks.scaling STREAM.jsonl.gz --tokenizer FOLDER --records 400000

A topic is filled once for each number of partitions. In turn, several times over, the daemon counts
it from its start with one thing changed: no document counts, one half-life less and two more, masks
on, a larger vocabulary (the same tokenizer with ids that no text has), 1 and 64 partitions, and two
workers that share the partitions. Prints each one's records a second as a ratio to the plain run of
the same turn, with the spread; `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.ingest_parts.children import result_of, start
from benchmarks.ingest_parts.topics import Filled, fill
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

PLAIN = "plain"
HORIZONS = ("300s", "3600s", "86400s", "30m", "7d")
VOCABULARIES = (32_000, 64_000, 128_000, 256_000)


def half_lives(count: int) -> list[str]:
    return ["--set", f"counting.half_lives={json.dumps(HORIZONS[:count])}"]


CHANGES: dict[str, list[str]] = {
    "without document counts": ["--set", "counting.documents=false"],
    "2 half-lives, not 3": half_lives(2),
    "5 half-lives, not 3": half_lives(5),
    "masks on": ["--set", 'text.mask=["urls", "emails", "phones", "ids"]'],
}


def padded(tokenizer: Path, size: int, folder: Path) -> Path | None:
    """The same tokenizer with `size` ids; None when it has more by itself, or is no BPE."""
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    document = json.loads(file.read_bytes())
    vocab = document["model"].get("vocab")
    if not isinstance(vocab, dict):
        return None
    used = 1 + max([*vocab.values(), *(token["id"] for token in document["added_tokens"])])
    if used > size:
        return None
    vocab.update({f"\u27e8unused {number}\u27e9": number for number in range(used, size)})
    path = folder / f"{size}" / "tokenizer.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


def main() -> None:
    options = arguments()
    rates: dict[str, list[float]] = defaultdict(list)
    with KafkaBroker() as broker, RedisServer() as store, tempfile.TemporaryDirectory() as folder:
        topics = {
            partitions: fill(
                *(broker, options.stream, options.records),
                partitions=partitions,
                join_bytes=options.join_bytes,
            )
            for partitions in (6, 1, 64)
        }
        sizes = {size: padded(options.tokenizer, size, Path(folder)) for size in VOCABULARIES}

        def run(
            name: str, topic: Filled, tokenizer: Path, extra: list[str], workers: int = 1
        ) -> None:
            shared = [*extra, "--job", f"scaling-{uuid.uuid4().hex[:8]}"]
            children = [
                start("daemon", topic, broker.bootstrap, store.url, tokenizer, shared)
                for _ in range(workers)
            ]
            seconds = max(result_of(child)["seconds"] for child in children)
            rates[name].append(topic.records / seconds)

        for _ in range(options.repeats):
            run(PLAIN, topics[6], options.tokenizer, [])
            for name, extra in CHANGES.items():
                run(name, topics[6], options.tokenizer, extra)
            for size, tokenizer in sizes.items():
                if tokenizer is not None:
                    run(f"vocabulary of {size:,}", topics[6], tokenizer, [])
            for partitions in (1, 64):
                run(f"{partitions} partitions", topics[partitions], options.tokenizer, [])
            run("two workers", topics[6], options.tokenizer, [], workers=2)
    report(options, topics[6], rates)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--join-bytes", type=int, default=1, help="join texts to such documents")
    parser.add_argument("--json", action="store_true", dest="as_json")
    return parser.parse_args()


def report(options: argparse.Namespace, topic: Filled, rates: dict[str, list[float]]) -> None:
    result: dict[str, Any] = {
        "records": topic.records,
        "bytes_per_record": round(topic.size / topic.records, 1),
        "records_per_second": round(statistics.median(rates[PLAIN])),
        "over_plain": {},
    }
    for name, found in rates.items():
        ratios = sorted(one / plain for one, plain in zip(found, rates[PLAIN], strict=True))
        result["over_plain"][name] = [round(statistics.median(ratios), 3)]
        result["over_plain"][name] += [round(ratios[0], 3), round(ratios[-1], 3)]
    if options.as_json:
        print(json.dumps(result))
        return
    print(
        f"{topic.records:,} records of {result['bytes_per_record']:,.0f} bytes; plain: "
        f"{result['records_per_second']:,} records/s"
    )
    for name, (median, low, high) in result["over_plain"].items():
        print(f"{name:<26} {median:>6.2f}   ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
