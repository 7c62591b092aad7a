"""Schedulers of this process, each with a client of its own, and what their handlers wrote down."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from topologies import until

from anarchon import RedisBackend, Scheduler
from anarchon.testing import Ran, RunLog

__all__ = ["begun", "beyond_their_attempts", "now_ms", "outage_ms", "running", "side_by_side", "wait_for_runs"]

# What one call of these clients may take, three times over.
LEASE = "30s"


@contextmanager
def running(log: RunLog, clients: Iterable[Any], jobs: Iterable[str], **options: Any) -> Iterator[None]:
    jobs = list(jobs)
    schedulers = []
    for number, client in enumerate(clients):
        backend = RedisBackend(client=client, **options)
        scheduler = Scheduler(backend, instance_id=f"host-{number}", around_run=log.around_run, jitter="50ms")
        for job in jobs:
            scheduler.every(job, "500ms", lambda: None, lease=LEASE, history_limit=10_000)
        schedulers.append(scheduler)
    try:
        for scheduler in schedulers:
            scheduler.start()
        yield
    finally:
        in_time = [scheduler.stop(timeout="60s") for scheduler in schedulers]
    assert all(in_time)


def begun(log: RunLog, job: str, since_ms: int = 0) -> list[Ran]:
    """The runs of slots that came after this instant."""
    try:
        return [ran for ran in log.read() if ran.job == job and _ms(ran.slot) > since_ms]
    except FileNotFoundError:
        return []


def wait_for_runs(log: RunLog, job: str, count: int, since_ms: int = 0) -> list[Ran]:
    until(lambda: len(begun(log, job, since_ms)) >= count, f"{count} runs of {job}")
    return begun(log, job, since_ms)


def outage_ms(log: RunLog, job: str, gone_ms: int) -> int:
    return min(_ms(ran.started_at) for ran in begun(log, job, gone_ms)) - gone_ms


def beyond_their_attempts(log: RunLog, job: str, since_ms: int = 0) -> list[tuple[datetime, int]]:
    """Slots of which an attempt began more than once."""
    counts = Counter((ran.slot, ran.attempt) for ran in begun(log, job, since_ms))
    return [which for which, count in counts.items() if count > 1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms(instant: datetime) -> int:
    return round((instant - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1000)


def side_by_side(*scenarios: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def play(scenario: Callable[[], None]) -> None:
        try:
            scenario()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=play, args=(scenario,)) for scenario in scenarios]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
