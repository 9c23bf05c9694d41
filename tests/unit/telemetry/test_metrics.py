"""What the daemon reports is what a scrape shows, under conventional names."""

from __future__ import annotations

import math
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamfreq.clock import ManualClock
from streamfreq.records import TopicPartition
from streamfreq.telemetry import Metrics, resident_memory_bytes

TITLES_0, TITLES_1 = TopicPartition("titles", 0), TopicPartition("titles", 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=1_700_000_000_000)


@pytest.fixture
def metrics(clock: ManualClock) -> Metrics:
    return Metrics(job="news", clock=clock)


def test_two_objects_share_nothing() -> None:
    first, second = Metrics(job="a"), Metrics(job="b")
    first.conflict()
    assert first.value("streamfreq_commit_conflicts_total") == 1
    assert second.value("streamfreq_commit_conflicts_total") == 0


def test_batches_add_up_per_topic(metrics: Metrics) -> None:
    metrics.batch_counted("titles", records=2, tokens=30, bytes=100)
    metrics.batch_counted("titles", records=1, tokens=5, bytes=20)
    metrics.batch_counted("chats", records=1, tokens=1, bytes=1)
    assert metrics.value("streamfreq_records_total", topic="titles") == 3
    assert metrics.value("streamfreq_tokens_total", topic="titles") == 35
    assert metrics.value("streamfreq_bytes_total", topic="titles") == 120
    assert metrics.value("streamfreq_records_total", topic="chats") == 1


def test_bad_records_and_event_times_by_kind(metrics: Metrics) -> None:
    metrics.bad("not-json", 3)
    metrics.bad("null")
    metrics.event_times({"missing": 2, "late": 4})
    metrics.event_times({"late": 1})
    metrics.event_times({})
    assert metrics.value("streamfreq_bad_records_total", kind="not-json") == 3
    assert metrics.value("streamfreq_bad_records_total", kind="null") == 1
    assert metrics.value("streamfreq_event_times_total", kind="missing") == 2
    assert metrics.value("streamfreq_event_times_total", kind="late") == 5
    assert metrics.value("streamfreq_late_records_total") == 5


def test_lag_goes_when_the_partition_goes(metrics: Metrics) -> None:
    metrics.set_lag(TITLES_0, 10)
    metrics.set_lag(TITLES_1, 20)
    metrics.drop_partition(TITLES_0)
    metrics.drop_partition(TITLES_0)
    assert math.isnan(metrics.value("streamfreq_lag_records", topic="titles", partition="0"))
    assert metrics.value("streamfreq_lag_records", topic="titles", partition="1") == 20
    assert 'partition="0"' not in metrics.exposition()[0].decode()


def test_a_commit_counts_only_when_it_succeeds(metrics: Metrics) -> None:
    with metrics.commit_timer():
        pass
    with pytest.raises(ConnectionError), metrics.commit_timer():
        raise ConnectionError
    assert metrics.value("streamfreq_commits_total") == 1
    assert metrics.value("streamfreq_commit_duration_seconds_count") == 1


def test_durations_land_in_their_buckets(metrics: Metrics) -> None:
    metrics.published(1, 0, 0, seconds=0.3)
    with metrics.encode_timer():
        pass
    assert metrics.value("streamfreq_publish_duration_seconds_bucket", le="0.25") == 0
    assert metrics.value("streamfreq_publish_duration_seconds_bucket", le="0.5") == 1
    assert metrics.value("streamfreq_encode_duration_seconds_count") == 1


def test_the_snapshot_ages_by_itself(metrics: Metrics, clock: ManualClock) -> None:
    assert math.isnan(metrics.value("streamfreq_snapshot_age_seconds"))
    metrics.published(7, clock.now_ms(), clock.now_ms() - 5_000, seconds=0.1)
    clock.advance(42)
    assert metrics.value("streamfreq_snapshot_age_seconds") == 42
    assert metrics.value("streamfreq_snapshot_version") == 7
    assert metrics.value("streamfreq_snapshot_created_timestamp_seconds") == 1_700_000_000
    assert metrics.value("streamfreq_snapshot_as_of_timestamp_seconds") == 1_699_999_995
    assert metrics.value("streamfreq_publishes_total") == 1


def test_a_snapshot_of_another_publisher_is_seen_but_not_counted(metrics: Metrics) -> None:
    metrics.snapshot_seen(9, 1_000, 1_000)
    assert metrics.value("streamfreq_snapshot_version") == 9
    assert metrics.value("streamfreq_publishes_total") == 0


def test_states_and_failures(metrics: Metrics) -> None:
    metrics.set_ready(True)
    metrics.set_partitions(6)
    metrics.watermark(1_234_500)
    metrics.publish_failed()
    metrics.service_failed("redis")
    metrics.service_failed("redis")
    assert metrics.value("streamfreq_ready") == 1
    assert metrics.value("streamfreq_partitions_assigned") == 6
    assert metrics.value("streamfreq_watermark_timestamp_seconds") == 1234.5
    assert metrics.value("streamfreq_publish_failures_total") == 1
    assert metrics.value("streamfreq_service_failures_total", service="redis") == 2
    metrics.set_ready(False)
    assert metrics.value("streamfreq_ready") == 0


def test_memory_is_that_of_this_process(metrics: Metrics) -> None:
    import psutil

    actual = psutil.Process().memory_info().rss
    assert metrics.value("streamfreq_memory_bytes") == pytest.approx(actual, rel=0.2)
    assert resident_memory_bytes() > 10_000_000


def test_device_memory_is_read_at_each_scrape(metrics: Metrics) -> None:
    used = iter([100.0, 200.0])
    metrics.watch_device_memory(lambda: next(used))
    assert metrics.value("streamfreq_device_memory_bytes") == 100
    assert metrics.value("streamfreq_device_memory_bytes") == 200


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    metrics.watch_device_memory(lambda: 0)
    units = ("_seconds", "_bytes", "_records", "_assigned", "_ready", "_held", "_version", "_info")
    ours = [
        family
        for family in text_string_to_metric_families(metrics.exposition()[0].decode())
        if family.name.startswith("streamfreq")
    ]
    assert len(ours) > 20
    for family in ours:
        assert re.fullmatch(r"streamfreq(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(s.name.endswith(("_total", "_created")) for s in family.samples)
        elif not family.name.endswith("_created"):
            assert family.name.endswith(units), family.name


def test_the_text_parses_and_says_whose_it_is(metrics: Metrics) -> None:
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    samples = {
        sample.name: sample
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert samples["streamfreq_info"].labels["streamfreq_job"] == "news"
    assert "process_resident_memory_bytes" in samples or "process_cpu_seconds_total" not in samples
    open_body, open_type = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert open_type.startswith("application/openmetrics-text")
    assert open_body.endswith(b"# EOF\n")
