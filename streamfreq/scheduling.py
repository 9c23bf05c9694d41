"""Jobs on a schedule, each in its own thread, so that a commit never waits for a publish.

A job never overlaps itself: turns that come while it runs are left out, and after a pause of
the machine one turn stands for all that were missed. A job that raises is logged in one line and
keeps its schedule. The only module that knows APScheduler.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, JobExecutionEvent
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from streamfreq.clock import Clock, SystemClock
from streamfreq.errors import ConfigError, StreamfreqError

log = logging.getLogger("streamfreq.scheduling")

_LONGEST_SECONDS = 10 * 365 * 86_400.0
_SHORTEST_SECONDS = 0.001
_GUARD_SECONDS = 1.0


class _OneThread(BaseExecutor):  # type: ignore[misc]
    """Runs the turns of one job in one thread, which never keeps the process from ending."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._turns: queue.SimpleQueue[tuple[Job, list[datetime]] | None] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name=f"schedule-{name}", daemon=True)

    def start(self, scheduler: BackgroundScheduler, alias: str) -> None:
        super().start(scheduler, alias)
        self._thread.start()

    def shutdown(self, wait: bool = True) -> None:
        self._stopping = True
        self._turns.put(None)
        if wait:
            self._thread.join()

    def join(self, timeout: float) -> bool:
        """Whether the thread has ended within `timeout` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self._turns.put((job, run_times))

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None and not self._stopping:
            job, run_times = turn
            events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
            self._run_job_success(job.id, events)


class _AtMultiples(BaseTrigger):  # type: ignore[misc]
    """Fires at the whole multiples of an interval since the epoch: on all machines together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """The next multiple behind `now`."""
        passed = math.floor(now.timestamp() / self._seconds)
        due = datetime.fromtimestamp((passed + 1) * self._seconds, UTC)
        return due if due > now else due + timedelta(seconds=self._seconds)


class _Task:
    """A job with its name, its own error handling, and the wish for one more turn."""

    def __init__(self, name: str, run: Callable[[], object], interval_seconds: float) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.executor = _OneThread(name)
        self.wanted = threading.Event()
        self._run = run
        self._told_slow = False

    def __call__(self) -> None:
        self.wanted.clear()
        try:
            self._run()
        except StreamfreqError as error:
            log.error("%s failed: %s", self.name, error)
        except Exception as error:
            log.error("%s failed: %s: %s", self.name, type(error).__name__, error)
            log.debug("%s failed", self.name, exc_info=True)
        finally:
            self._told_slow = False

    def turn_left_out(self) -> None:
        """A turn came while the job runs: said once per run."""
        if not self._told_slow and not self.wanted.is_set():
            self._told_slow = True
            log.warning("%s takes longer than its interval; turns are left out", self.name)


class Schedule:
    """Jobs by name: add them, `start`, `stop`. The first turn comes after one interval.

    >>> schedule = Schedule()
    >>> schedule.every("commit", 10, lambda: None)
    >>> schedule.cron("publish", "*/5 * * * *", lambda: None)
    >>> schedule.start()
    >>> schedule.stop(timeout=1)
    True
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        quiet = logging.getLogger("streamfreq.scheduling.apscheduler")
        quiet.setLevel(logging.ERROR)
        self._scheduler = BackgroundScheduler(timezone=UTC, logger=quiet)
        self._scheduler.add_listener(self._heard, EVENT_JOB_EXECUTED | EVENT_JOB_MAX_INSTANCES)
        self._tasks: dict[str, tuple[_Task, Callable[[], BaseTrigger]]] = {}
        self._stopped = threading.Event()
        self._guard = threading.Thread(target=self._watch, name="schedule-guard", daemon=True)
        self._started = False

    def every(
        self, name: str, seconds: float, job: Callable[[], object], *, together: bool = False
    ) -> None:
        """Run `job` every `seconds`, first after one interval; `inf`: only by `run_now`.

        together: at whole multiples of the interval by the wall clock, so that the daemons of a
        job have their turns at the same time; the first comes within one interval.
        """
        if not seconds > 0:
            raise ConfigError(f"interval of {name} = {seconds}: has to be above 0 seconds")
        interval = min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        at = _AtMultiples if together else _after_each
        self._add(_Task(name, job, interval), lambda: at(interval))

    def cron(self, name: str, expression: str, job: Callable[[], object]) -> None:
        """Run `job` at the minutes that five cron fields name, in UTC.

        Sunday is 0 or 7. Raises ConfigError when the expression is no such thing.
        """
        trigger = cron_trigger(expression, field=f"schedule.{name}_cron")
        self._add(_Task(name, job, 0.0), lambda: trigger)

    def start(self) -> None:
        """Begin; intervals count from now. A Schedule is used once."""
        self._started = True
        for task, trigger in self._tasks.values():
            self._schedule(task, trigger())
        self._scheduler.start()
        self._guard.start()
        for task, _ in self._tasks.values():
            if task.wanted.is_set():
                self._move(task.name, self._now())

    def run_now(self, name: str) -> None:
        """Ask for a turn at once, in the job's thread; one more follows if the job runs already."""
        task, _ = self._tasks[name]
        task.wanted.set()
        self._move(name, self._now())

    def stop(self, timeout: float) -> bool:
        """No further turns; wait for running jobs up to `timeout` seconds in all.

        Returns whether every job has ended; one that has not can't keep the process from ending.
        """
        deadline = time.monotonic() + timeout
        if not self._started or self._stopped.is_set():
            return True
        self._stopped.set()
        self._scheduler.shutdown(wait=False)
        ended = [
            task.executor.join(max(0.0, deadline - time.monotonic()))
            for task, _ in self._tasks.values()
        ]
        self._guard.join(max(0.0, deadline - time.monotonic()))
        return all(ended)

    def next_run_ms(self, name: str) -> int | None:
        """When the job's next turn comes, in ms since the epoch; None when it is not scheduled."""
        job = self._scheduler.get_job(name)
        due = getattr(job, "next_run_time", None)
        return None if due is None else round(due.timestamp() * 1000)

    def _add(self, task: _Task, trigger: Callable[[], BaseTrigger]) -> None:
        if task.name in self._tasks:
            raise ValueError(f"two jobs are called {task.name}")
        self._tasks[task.name] = (task, trigger)
        if self._started:
            self._schedule(task, trigger())

    def _schedule(self, task: _Task, trigger: BaseTrigger) -> None:
        self._scheduler.add_executor(task.executor, task.name)
        self._scheduler.add_job(
            task,
            trigger,
            id=task.name,
            name=task.name,
            executor=task.name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=None,
        )

    def _heard(self, event: JobExecutionEvent) -> None:
        task, _ = self._tasks[event.job_id]
        if event.code == EVENT_JOB_MAX_INSTANCES:
            task.turn_left_out()
        elif task.wanted.is_set():
            self._move(task.name, self._now())

    def _move(self, name: str, due: datetime) -> None:
        if self._started:
            # After `stop` the scheduler knows no job any more, and none is to run.
            with suppress(JobLookupError):
                self._scheduler.modify_job(name, next_run_time=due)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    def _watch(self) -> None:
        """Keep turns near when the wall clock, by which APScheduler counts, is set back."""
        while not self._stopped.wait(_GUARD_SECONDS):
            self._bring_back()

    def _bring_back(self) -> None:
        now = self._now()
        for task, _ in self._tasks.values():
            interval = timedelta(seconds=task.interval_seconds)
            due = getattr(self._scheduler.get_job(task.name), "next_run_time", None)
            if interval and due is not None and due > now + interval:
                self._move(task.name, now + interval)


def _after_each(seconds: float) -> BaseTrigger:
    return IntervalTrigger(seconds=seconds)


_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def cron_trigger(expression: str, field: str) -> CronTrigger:
    """The trigger of five cron fields in UTC; raises ConfigError that names `field`.

    Weekdays are numbered as cron does it (0 and 7 are Sunday), which APScheduler does not.
    """
    fields = expression.split()
    try:
        if len(fields) != 5:
            raise ValueError(f"it has {len(fields)} fields")
        minute, hour, day, month, weekday = fields
        if day != "*" and weekday != "*":
            raise ValueError("give the day of the month or the day of the week, not both")
        return CronTrigger(
            minute=minute,
            hour=hour,
            day=day,
            month=month,
            day_of_week=_weekday_names(weekday),
            timezone=UTC,
        )
    except ValueError as error:
        raise ConfigError(
            f"{field} = {expression!r}: {error}; allowed are five fields in UTC: minute hour day "
            "month weekday, like */5 * * * *"
        ) from error


def _weekday_names(field: str) -> str:
    """The weekday field with every day spelled out: 5-7 becomes fri,sat,sun.

    >>> _weekday_names("5-7"), _weekday_names("*/3"), _weekday_names("*")
    ('sun,fri,sat', 'sun,wed,sat', '*')
    """
    if field == "*":
        return field
    days = set(itertools.chain.from_iterable(_weekday_range(part) for part in field.split(",")))
    return ",".join(name for day, name in enumerate(_WEEKDAYS) if day in days)


def _weekday_range(part: str) -> Sequence[int]:
    body, _, step = part.partition("/")
    first, dash, last = body.partition("-")
    if body == "*":
        low, high = 0, 6
    else:
        low = _weekday_number(first)
        high = _weekday_number(last) if dash else (6 if step else low)
    if high < low:
        raise ValueError(f"weekday range {body} goes backwards")
    stride = int(step) if step else 1
    if stride < 1:
        raise ValueError(f"step {step} is below 1")
    return [day % 7 for day in range(low, high + 1, stride)]


def _weekday_number(text: str) -> int:
    name = text.lower()
    if name in _WEEKDAYS:
        return _WEEKDAYS.index(name)
    if name.isdecimal() and int(name) <= 7:
        return int(name)
    raise ValueError(f"weekday {text!r} is none of 0 to 7, sun to sat")
