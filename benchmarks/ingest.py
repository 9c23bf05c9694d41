"""Counting a topic beside reading it, and beside what a user would write.

    python -m benchmarks.ingest STREAM.jsonl.gz --tokenizer FOLDER --records 400000

A real broker and a topic of six partitions, filled once; then, in turn and several times over, each
in a process of its own that has loaded what it needs before the clock starts:

- drain: kafka-python with the daemon's settings reads the topic and drops the values;
- daemon: `streamfreq run --until-caught-up`, from the start of the topic, everything on: cleaning,
  tokenizing, three half-lives with document counts, commits and publications on their schedule; its
  time begins before it joins the group and ends behind its last snapshot;
- confluent: the same with `kafka.client = "confluent"` (with `--confluent`);
- usual: kafka-python, `tokenizers` with `encode_batch_fast`, numpy's bincount, three tables that
  are decayed by multiplying each whole table per poll, written to the store every 30 s; it reads
  an eighth of the records;
- framework: quixstreams with one state per token, over a few records (`--framework-python` names
  a Python that has it; without one it is left out).

Ratios are of records a second, run by run. Once more, by itself, the daemon runs with its stages
timed. Prints medians and their spread; `--json` prints one line instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.ingest_parts.children import framework, result_of, start
from benchmarks.ingest_parts.topics import Filled, fill
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer

Rates = dict[str, list[float]]
USUAL_SHARE = 8
FRAMEWORK_RECORDS = 2_000


def main() -> None:
    options = arguments()
    with KafkaBroker() as broker, RedisServer() as store:
        topic = fill(
            broker,
            options.stream,
            options.records,
            join_bytes=options.join_bytes,
            compression=options.compression,
        )
        rates, stages = measure(options, topic, broker.bootstrap, store.url)
    result = summary(topic, rates, stages)
    if options.as_json:
        print(json.dumps(result))
    else:
        show(result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stream", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--join-bytes", type=int, default=1, help="join texts to such documents")
    parser.add_argument(
        "--compression", default="none", choices=["none", "gzip", "lz4", "zstd", "snappy"]
    )
    parser.add_argument("--confluent", action="store_true", help="the other client, too")
    parser.add_argument("--framework-python", default=sys.executable)
    parser.add_argument("--json", action="store_true", dest="as_json")
    return parser.parse_args()


def measure(
    options: argparse.Namespace, topic: Filled, bootstrap: str, url: str
) -> tuple[Rates, dict[str, Any]]:
    """Records a second of each way, run by run; and one run of the daemon with timed stages."""
    rates: Rates = defaultdict(list)
    part = dataclasses.replace(topic, records=max(1, topic.records // USUAL_SHARE))
    ways: list[tuple[str, str, Filled, list[str]]] = [
        ("drain", "drain", topic, []),
        ("daemon", "daemon", topic, []),
        ("usual", "usual", part, []),
    ]
    if options.confluent:
        ways.append(("confluent", "daemon", topic, ["--set", "kafka.client=confluent"]))
    for _ in range(options.repeats):
        for name, way, of, extra in ways:
            done = result_of(start(way, of, bootstrap, url, options.tokenizer, extra))
            rates[name].append(done["records"] / done["seconds"])
        done = framework(
            *(options.framework_python, topic, bootstrap, options.tokenizer),
            min(FRAMEWORK_RECORDS, topic.records),
        )
        if done is not None:
            rates["framework"].append(done["records"] / done["seconds"])
    timed = result_of(start("daemon", topic, bootstrap, url, options.tokenizer, ["--stages"]))
    return rates, timed


def summary(topic: Filled, rates: Rates, timed: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "records": topic.records,
        "bytes_per_record": round(topic.size / topic.records, 1),
        "records_per_second": {
            way: round(statistics.median(found)) for way, found in rates.items()
        },
    }
    for other in ("drain", "usual", "framework"):
        for way in ("daemon", "confluent"):
            ratios = [a / b for a, b in zip(rates.get(way, []), rates.get(other, []), strict=False)]
            if ratios:
                result[f"{way}_over_{other}"] = round(statistics.median(ratios), 3)
                result[f"{way}_over_{other}_spread"] = [
                    round(min(ratios), 3),
                    round(max(ratios), 3),
                ]
    result |= {name: timed[name] for name in ("stages", "cpu_seconds", "cores_busy", "peak_mb")}
    return result


def show(result: dict[str, Any]) -> None:
    size = result["bytes_per_record"]
    print(f"{result['records']:,} records of {size:,.0f} bytes")
    for way, rate in result["records_per_second"].items():
        print(f"{way:<10} {rate:>10,} records/s {rate * size / 1e6:>8,.1f} MB/s")
    for name, value in result.items():
        if "_over_" in name and not name.endswith("_spread"):
            low, high = result[f"{name}_spread"]
            print(f"{name:<24} {value:>7.2f}   ({low:.2f} to {high:.2f})")
    if "framework" not in result["records_per_second"]:
        print("framework: left out, this Python has no quixstreams (--framework-python)")
    print(f"\n{'stage':<10} {'wall us/record':>15} {'CPU us/record':>15}")
    for stage, cost in result["stages"].items():
        print(f"{stage:<10} {cost['wall_us']:>15.2f} {cost['cpu_us']:>15.2f}")
    cores = ", ".join(f"{share:.0%}" for share in result["cores_busy"])
    print(
        f"\nthe timed run: {result['cpu_seconds']:.1f} s of CPU, peak {result['peak_mb']:,} MB; "
        f"cores busy {cores} (with broker and store)"
    )


if __name__ == "__main__":
    main()
