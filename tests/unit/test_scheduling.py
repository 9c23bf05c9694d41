"""Schedules hold: no overlap, no pile-up, jobs survive their errors, and the end is prompt."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from streamfreq.clock import ManualClock, SystemClock
from streamfreq.errors import ConfigError, ServiceUnavailable, UsageError
from streamfreq.scheduling import Schedule, _AtMultiples, cron_trigger

WAIT_SECONDS = 20.0


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    schedule = Schedule()
    yield schedule
    assert schedule.stop(WAIT_SECONDS)


class Job:
    """Counts its runs and how many of them overlap."""

    def __init__(self, body: Callable[[], object] = lambda: None) -> None:
        self.body = body
        self.runs = 0
        self.running = 0
        self.most_at_once = 0
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.runs += 1
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()
        try:
            self.body()
        finally:
            with self._changed:
                self.running -= 1
                self._changed.notify_all()

    def wait_for_runs(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.runs >= count, WAIT_SECONDS)

    def wait_until_idle(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.running == 0, WAIT_SECONDS)


def test_runs_again_and_again_at_less_than_a_second(schedule: Schedule) -> None:
    job = Job()
    schedule.every("commit", 0.02, job)
    schedule.start()
    job.wait_for_runs(5)
    assert job.most_at_once == 1


def test_first_turn_comes_after_one_interval(schedule: Schedule) -> None:
    job = Job()
    begin_ms = SystemClock().now_ms()
    schedule.every("commit", 3600, job)
    schedule.start()
    due_ms = schedule.next_run_ms("commit")
    assert due_ms is not None
    assert due_ms - begin_ms >= 3_600_000
    assert job.runs == 0


def test_interval_counts_from_start_not_from_construction(schedule: Schedule) -> None:
    schedule.every("commit", 3600, Job())
    assert schedule.next_run_ms("commit") is None
    time.sleep(0.05)
    begin_ms = SystemClock().now_ms()
    schedule.start()
    due_ms = schedule.next_run_ms("commit")
    assert due_ms is not None
    assert due_ms - begin_ms >= 3_600_000


def test_a_job_added_after_start_runs_too(schedule: Schedule) -> None:
    job = Job()
    schedule.start()
    schedule.every("commit", 0.02, job)
    job.wait_for_runs(2)


def test_slow_job_neither_overlaps_nor_piles_up(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    slow = Job(lambda: release.wait(WAIT_SECONDS))
    ticks = Job()
    schedule.every("publish", 0.02, slow)
    schedule.every("ticks", 0.02, ticks)
    schedule.start()
    slow.wait_for_runs(1)
    ticks.wait_for_runs(ticks.runs + 15)
    assert (slow.runs, slow.most_at_once) == (1, 1)
    before = ticks.runs
    schedule.stop(0)
    release.set()
    slow.wait_until_idle()
    # About 15 turns were left out. None of them is made up for once the job is free again.
    assert slow.runs == 1
    assert before >= 15
    warnings = [record for record in caplog.records if "publish takes longer" in record.message]
    assert len(warnings) == 1
    assert not [record for record in caplog.records if "apscheduler" in record.name]


def test_a_slow_job_goes_on_afterwards_without_making_up(schedule: Schedule) -> None:
    first = threading.Event()
    slow = Job(lambda: first.wait(WAIT_SECONDS))
    ticks = Job()
    schedule.every("publish", 0.5, slow)
    schedule.every("ticks", 0.02, ticks)
    schedule.start()
    slow.wait_for_runs(1)
    ticks.wait_for_runs(ticks.runs + 60)
    first.set()
    slow.wait_for_runs(2)
    assert slow.most_at_once == 1


def test_each_job_has_a_thread_of_its_own(schedule: Schedule) -> None:
    release = threading.Event()
    publish = Job(lambda: release.wait(WAIT_SECONDS))
    commit = Job()
    schedule.every("publish", 0.01, publish)
    schedule.every("commit", 0.01, commit)
    schedule.start()
    publish.wait_for_runs(1)
    commit.wait_for_runs(commit.runs + 5)
    release.set()
    assert publish.threads == {"schedule-publish"}
    assert commit.threads == {"schedule-commit"}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ServiceUnavailable("no answer from localhost:6379"), "no answer from localhost:6379"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_a_job_that_raises_is_logged_in_one_line_and_stays(
    schedule: Schedule, caplog: pytest.LogCaptureFixture, error: Exception, line: str
) -> None:
    def fail() -> None:
        raise error

    caplog.set_level(logging.INFO, "streamfreq")
    job = Job(fail)
    schedule.every("commit", 0.02, job)
    schedule.start()
    job.wait_for_runs(3)
    schedule.stop(WAIT_SECONDS)
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == job.runs
    assert {record.getMessage() for record in errors} == {f"commit failed: {line}"}
    assert all(record.exc_info is None for record in errors)


def test_stop_waits_for_the_running_job(schedule: Schedule) -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def body() -> None:
        started.set()
        release.wait(WAIT_SECONDS)
        ended.set()

    schedule.every("commit", 0.01, body)
    schedule.start()
    assert started.wait(WAIT_SECONDS)
    threading.Timer(0.1, release.set).start()
    assert schedule.stop(WAIT_SECONDS)
    assert ended.is_set()


def test_stop_gives_up_on_a_job_that_hangs_and_says_so() -> None:
    schedule, release = Schedule(), threading.Event()
    job = Job(lambda: release.wait(WAIT_SECONDS))
    schedule.every("commit", 0.01, job)
    schedule.start()
    job.wait_for_runs(1)
    assert schedule.stop(0.05) is False
    hanging = [item for item in threading.enumerate() if item.name == "schedule-commit"]
    assert hanging
    assert all(item.daemon for item in hanging), "it must not keep the process from ending"
    release.set()
    job.wait_until_idle()
    for item in hanging:
        item.join(WAIT_SECONDS)
    assert job.runs == 1


def test_no_turn_after_stop(schedule: Schedule) -> None:
    job = Job()
    schedule.every("commit", 0.01, job)
    schedule.start()
    job.wait_for_runs(2)
    assert schedule.stop(WAIT_SECONDS)
    runs = job.runs
    schedule.run_now("commit")
    time.sleep(0.05)
    assert job.runs == runs
    assert schedule.stop(WAIT_SECONDS), "stopping twice is allowed"


def test_stop_before_start_does_nothing() -> None:
    schedule = Schedule()
    schedule.every("commit", 1, Job())
    assert schedule.stop(1)


def test_run_now_does_not_wait_for_the_interval(schedule: Schedule) -> None:
    job = Job()
    schedule.every("commit", float("inf"), job)
    schedule.start()
    schedule.run_now("commit")
    job.wait_for_runs(1)
    job.wait_until_idle()
    schedule.run_now("commit")
    job.wait_for_runs(2)


def test_run_now_before_start_is_kept(schedule: Schedule) -> None:
    job = Job()
    schedule.every("commit", 3600, job)
    schedule.run_now("commit")
    schedule.start()
    job.wait_for_runs(1)


def test_run_now_while_running_adds_one_turn_after_it(schedule: Schedule) -> None:
    release = threading.Event()
    job = Job(lambda: release.wait(WAIT_SECONDS))
    schedule.every("commit", 3600, job)
    schedule.start()
    schedule.run_now("commit")
    job.wait_for_runs(1)
    schedule.run_now("commit")
    schedule.run_now("commit")
    time.sleep(0.05)
    assert job.runs == 1
    release.set()
    job.wait_for_runs(2)
    job.wait_until_idle()
    assert job.most_at_once == 1


def test_two_jobs_of_one_name_are_refused(schedule: Schedule) -> None:
    schedule.every("commit", 1, Job())
    with pytest.raises(ValueError, match="two jobs are called commit"):
        schedule.every("commit", 1, Job())


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_interval_of_nothing_is_refused(schedule: Schedule, seconds: float) -> None:
    with pytest.raises(ConfigError, match="above 0 seconds"):
        schedule.every("commit", seconds, Job())


def test_a_wall_clock_set_back_does_not_silence_the_jobs() -> None:
    clock = ManualClock(start_ms=SystemClock().now_ms())
    schedule, job = Schedule(clock), Job()
    schedule.every("commit", 600, job)
    schedule.start()
    before_ms = schedule.next_run_ms("commit")
    clock.jump(-3600)
    expected_ms = clock.now_ms() + 600_000
    assert before_ms is not None
    assert before_ms > expected_ms
    # For the scheduler, whose clock was not set back, that time is long past: it runs at once.
    job.wait_for_runs(1)
    assert schedule.stop(WAIT_SECONDS)


def _next(expression: str, after: str) -> str:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    fire = cron_trigger(expression, "schedule.publish_cron").get_next_fire_time(None, moment)
    assert fire is not None
    assert fire.utcoffset() == moment.utcoffset()
    return str(fire.strftime("%a %Y-%m-%d %H:%M"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/5 * * * *", "Wed 2025-01-01 12:05"),
        ("0 3 * * *", "Thu 2025-01-02 03:00"),
        ("0 0 1 * *", "Sat 2025-02-01 00:00"),
        ("0 0 * 3 *", "Sat 2025-03-01 00:00"),
        ("0 0 * * 0", "Sun 2025-01-05 00:00"),
        ("0 0 * * 7", "Sun 2025-01-05 00:00"),
        ("0 0 * * 1", "Mon 2025-01-06 00:00"),
        ("0 0 * * sat", "Sat 2025-01-04 00:00"),
        ("0 0 * * 5-7", "Fri 2025-01-03 00:00"),
        ("0 0 * * 0,3", "Sun 2025-01-05 00:00"),
        ("0 13 * * */3", "Wed 2025-01-01 13:00"),
        ("0 0 * * MON-WED", "Mon 2025-01-06 00:00"),
    ],
)
def test_cron_fields_mean_what_cron_means(expression: str, expected: str) -> None:
    assert _next(expression, "2025-01-01T12:01") == expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "every day",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "* 25 * * *",
        "x * * * *",
        "* * * * 8",
        "* * * * funday",
        "* * * * 5-2",
        "* * * * 1/0",
        "* * * * 1/x",
        "0 0 1 * 1",
    ],
)
def test_a_bad_cron_expression_is_one_line_that_names_the_field(expression: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule().cron("publish", expression, Job())
    message = str(caught.value)
    assert message.startswith(f"schedule.publish_cron = {expression!r}: ")
    assert "five fields in UTC" in message
    assert "\n" not in message
    assert isinstance(caught.value, UsageError)


def test_a_cron_job_is_scheduled_at_the_next_match(schedule: Schedule) -> None:
    schedule.cron("publish", "* * * * *", Job())
    schedule.start()
    due_ms = schedule.next_run_ms("publish")
    assert due_ms is not None
    assert due_ms % 60_000 == 0


@pytest.mark.parametrize("seconds", [0.1, 0.5, 1.0, 7.0, 30.0, 3600.0])
@pytest.mark.parametrize("now_ms", [0, 1, 499, 500, 1_764_000_000_123, 1_764_000_000_000])
def test_turns_together_are_at_multiples_of_the_interval(seconds: float, now_ms: int) -> None:
    trigger = _AtMultiples(seconds)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    due = trigger.get_next_fire_time(None, now)
    assert 0 < (due - now).total_seconds() <= seconds + 1e-6
    ticks = due.timestamp() / seconds
    assert abs(ticks - round(ticks)) < 1e-3
    # Whatever ran before, also out of turn, changes nothing.
    assert trigger.get_next_fire_time(now, now) == due
