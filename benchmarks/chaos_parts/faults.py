"""Every kind of fault: what it does to the cluster. It returns when all services are back.

What a fault does to workers it also makes good as an operator's platform would: a worker that died
is started again, and nothing else is done for it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.chaos_parts.cluster import (
    END_SECONDS,
    NOTICE_SECONDS,
    SESSION_SECONDS,
    ChaosError,
    Cluster,
    Worker,
)
from benchmarks.chaos_parts.watcher import Watcher
from streamfreq.faults import POINTS

POINT_SECONDS = 30.0
"""So long at most until somebody reaches an armed point."""
ZOMBIE_SECONDS = SESSION_SECONDS + 2.0
LOST_WRITES_SECONDS = 3.0
SLOW_SECONDS = 8.0
FULL_SECONDS = 4.0
CLOCK_STEP = "2h"


@dataclass
class Trial:
    """What a fault works on."""

    cluster: Cluster
    watcher: Watcher
    random: random.Random
    outage_seconds: float
    zombies: list[Zombie] = field(default_factory=list)

    def judge_zombies(self) -> None:
        """Each zombie since the last call has to say that its partitions are another's now."""
        for zombie in self.zombies:
            if zombie.judged:
                continue
            zombie.judged = True
            deadline = time.monotonic() + NOTICE_SECONDS
            while not zombie.noticed() and time.monotonic() < deadline:
                time.sleep(0.1)
            if not zombie.noticed():
                self.cluster.violations.append(
                    f"{zombie.worker.name} was a zombie and does not say that it lost partitions"
                )


@dataclass
class Zombie:
    """A worker that was stopped for longer than the session while it had partitions."""

    worker: Worker
    since: int
    judged: bool = False

    def noticed(self) -> bool:
        """Whether it says that it lost partitions."""
        return self.worker.said("to another worker", self.since) or self.refused()

    def refused(self) -> bool:
        """Whether the store refused a commit of it."""
        return self.worker.said("can't follow", self.since)


Fault = Callable[[Trial], None]


def kill(trial: Trial) -> None:
    """SIGKILL at a random moment."""
    cluster = trial.cluster
    time.sleep(trial.random.random())
    cluster.kill(trial.random.choice(cluster.workers))
    cluster.start_worker()


def terminate(trial: Trial) -> None:
    """SIGTERM, an orderly end, and a new worker."""
    trial.cluster.terminate(trial.random.choice(trial.cluster.workers))
    trial.cluster.start_worker()


def zombie(trial: Trial) -> None:
    """A worker stops for longer than the session, and goes on as if nothing had been."""
    trial.cluster.wait_until_settled()
    worker = trial.random.choice(trial.cluster.workers)
    worker.send(signal.SIGSTOP)
    _outlive_the_session(trial, [worker])


def join(trial: Trial) -> None:
    """One worker more; one leaves first when there are enough."""
    cluster = trial.cluster
    if len(cluster.workers) >= cluster.most_workers:
        cluster.terminate(trial.random.choice(cluster.workers))
    cluster.wait_until_ready(cluster.start_worker())


def leave(trial: Trial) -> None:
    """One worker less; one joins first when it is the only one."""
    cluster = trial.cluster
    if len(cluster.workers) < 2:
        cluster.wait_until_ready(cluster.start_worker())
    cluster.terminate(trial.random.choice(cluster.workers))


def broker_restart(trial: Trial) -> None:
    """The broker dies and starts again with its data."""
    trial.cluster.broker.stop()
    time.sleep(trial.random.random() * 2)
    trial.cluster.broker.start()


def redis_set_back(trial: Trial) -> None:
    """The store loses its last seconds: an older file is put back."""
    saved = trial.cluster.redis.save()
    time.sleep(LOST_WRITES_SECONDS)
    trial.cluster.redis.set_back(saved)


def redis_set_back_kill(trial: Trial) -> None:
    """The same, and every worker dies with what it remembers."""
    saved = trial.cluster.redis.save()
    time.sleep(LOST_WRITES_SECONDS)
    trial.watcher.nobody_knows = True
    _set_back_with_all_dead(trial.cluster, saved)


def redis_lost(trial: Trial) -> None:
    """The store loses everything; the workers live."""
    trial.watcher.epoch_may_end = True
    trial.cluster.redis.set_back(None)


def redis_lost_kill(trial: Trial) -> None:
    """The store loses everything, and every worker dies: all is counted again."""
    trial.watcher.epoch_may_end = True
    _set_back_with_all_dead(trial.cluster, None)


def redis_away(trial: Trial) -> None:
    """Nobody gets through to the store for a while: connections are refused."""
    trial.cluster.proxy.cut()
    time.sleep(trial.outage_seconds)
    trial.cluster.proxy.mend()


def redis_hangs(trial: Trial) -> None:
    """The store takes requests and does not answer for a while."""
    trial.cluster.proxy.hang()
    time.sleep(min(trial.outage_seconds, 12.0))
    trial.cluster.proxy.mend()


def redis_slow(trial: Trial) -> None:
    """Every answer of the store comes half a second late."""
    trial.cluster.proxy.delay_seconds = 0.5
    time.sleep(SLOW_SECONDS)
    trial.cluster.proxy.mend()


def redis_full(trial: Trial) -> None:
    """The store refuses writes: it has no room."""
    trial.cluster.redis.command("CONFIG", "SET", "maxmemory", "1")
    time.sleep(FULL_SECONDS)
    trial.cluster.redis.command("CONFIG", "SET", "maxmemory", "0")


def clock_jumps(trial: Trial) -> None:
    """A worker's wall clock jumps ahead, then back, while it works."""
    cluster = trial.cluster
    worker = next((one for one in cluster.workers if one.clock_file.exists()), None)
    if worker is None:
        cluster.terminate(trial.random.choice(cluster.workers))
        worker = cluster.start_worker(own_clock=True)
        cluster.wait_until_ready(worker)
    for jump in (f"+{CLOCK_STEP}", f"-{CLOCK_STEP}", "+0s"):
        worker.set_clock(jump)
        time.sleep(2.5)


def dies_at(point: str) -> Fault:
    """A worker kills itself exactly at this point."""

    def fault(trial: Trial) -> None:
        for worker in _arm(trial.cluster, point, "kill"):
            trial.cluster.expect_end(worker, -signal.SIGKILL, 10)
            trial.cluster.start_worker()

    fault.__doc__ = f"A worker is killed at {point}."
    return fault


def ends_at(point: str) -> Fault:
    """A worker gets SIGTERM exactly at this point, and ends in order."""

    def fault(trial: Trial) -> None:
        for worker in _arm(trial.cluster, point, "stop"):
            worker.send(signal.SIGTERM)
            worker.send(signal.SIGCONT)
            trial.cluster.expect_end(worker, 0, END_SECONDS)
            trial.cluster.start_worker()

    fault.__doc__ = f"A worker gets SIGTERM at {point}."
    return fault


def stops_at(point: str) -> Fault:
    """A worker stops exactly at this point, for longer than the session, and goes on there."""

    def fault(trial: Trial) -> None:
        trial.cluster.wait_until_settled()
        _outlive_the_session(trial, _arm(trial.cluster, point, "stop"))

    fault.__doc__ = f"A worker stops at {point} and goes on later."
    return fault


def _outlive_the_session(trial: Trial, stopped: list[Worker]) -> None:
    """Let these workers, which are stopped, go on when the group has given up on them."""
    zombies = [Zombie(worker, len(worker.log())) for worker in stopped]
    time.sleep(ZOMBIE_SECONDS)
    for worker in stopped:
        worker.send(signal.SIGCONT)
    trial.zombies += zombies


def _arm(cluster: Cluster, point: str, action: str) -> list[Worker]:
    """Those that reached the point first; the others are not armed any more.

    With the action `stop` they are stopped when this returns.
    """
    armed = list(cluster.workers)
    for worker in armed:
        worker.fault_file.write_text(f"{point} {action}")
    deadline = time.monotonic() + POINT_SECONDS
    while all(worker.fault_file.exists() for worker in armed):
        if time.monotonic() > deadline:
            cluster.violations.append(f"nobody reached {point} within {POINT_SECONDS:g} s")
            break
        time.sleep(0.01)
    reached = []
    for worker in armed:
        try:
            worker.fault_file.unlink()
        except FileNotFoundError:
            reached.append(worker)
    for worker in reached if action == "stop" else ():
        _wait_until_stopped(worker)
    return reached


def _wait_until_stopped(worker: Worker) -> None:
    """A SIGCONT that came before the stop would be lost."""
    deadline = time.monotonic() + POINT_SECONDS
    while not worker.stopped():
        if worker.exit_code is not None or time.monotonic() > deadline:
            raise ChaosError(f"{worker.name} reached its point, but did not stop there")
        time.sleep(0.01)


def _set_back_with_all_dead(cluster: Cluster, saved: bytes | None) -> None:
    """Kill every worker, set the store back, and start as many again."""
    killed = list(cluster.workers)
    for worker in killed:
        cluster.kill(worker)
    cluster.redis.set_back(saved)
    for _ in killed:
        cluster.start_worker()


KINDS: dict[str, Fault] = {
    "kill": kill,
    "term": terminate,
    "zombie": zombie,
    "join": join,
    "leave": leave,
    "broker-restart": broker_restart,
    "redis-set-back": redis_set_back,
    "redis-set-back-kill": redis_set_back_kill,
    "redis-lost": redis_lost,
    "redis-lost-kill": redis_lost_kill,
    "redis-away": redis_away,
    "redis-hangs": redis_hangs,
    "redis-slow": redis_slow,
    "redis-full": redis_full,
    "clock-jumps": clock_jumps,
    **{f"kill-at-{point}": dies_at(point) for point in POINTS},
    **{f"term-at-{point}": ends_at(point) for point in POINTS},
    **{f"stop-at-{point}": stops_at(point) for point in ("commit.2", "commit.3", "publish.6")},
}

SERVICE_OUTAGES = frozenset(
    {"broker-restart", *(kind for kind in KINDS if kind.startswith("redis-"))}
)
"""Kinds during which nothing can be published, whatever the workers do."""
