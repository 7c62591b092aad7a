"""Workers are killed, paused and stopped, and the store hangs, at random: what must always hold, holds."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from fleet import Fleet, Line, together
from judge import faults_of_attempts, faults_of_early_runs, faults_of_exclusion, faults_of_records
from servers import RedisServer

JOBS: list[Line] = [
    {"name": "quick", "every": "500ms"},
    {"name": "long", "every": "2s", "lasts": [1.3]},
    {"name": "free", "every": "1s", "lasts": [1.3], "overlap": "allow"},
]
OPTIONS = {"lease": "3s", "history_limit": 10_000}

NAMES = ("one", "two", "three", "four")

Hang = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def stores(redis_server: Callable[..., RedisServer], tmp_path: Path) -> Iterator[dict[Fleet, Hang]]:
    """A fleet on each kind of store, and a way to make that hang."""
    server = redis_server().start()
    file = tmp_path / "sqlite" / "jobs.db"
    made: dict[Fleet, Hang] = {
        Fleet(tmp_path / "redis", server.url): lambda: hanging(server),
        Fleet(tmp_path / "sqlite", f"sqlite:///{file}"): lambda: locked(file),
    }
    yield made
    for fleet in made:
        fleet.close()


@contextmanager
def hanging(server: RedisServer) -> Iterator[None]:
    server.pause()
    yield
    server.resume()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("seconds", [10, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(400)])])
def test_whatever_happens_to_workers_and_store_no_attempt_is_granted_twice_and_the_schedule_goes_on(
    stores: dict[Fleet, Hang], seconds: int
) -> None:
    seed = int(os.environ.get("ANARCHON_SOAK_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    together(stores, lambda fleet: trouble(fleet, stores[fleet], seconds, random.Random(f"{seed} {fleet!r}")))


def trouble(fleet: Fleet, hang: Hang, seconds: int, chance: random.Random) -> None:
    jobs = [{**OPTIONS, **job} for job in JOBS]
    fleet.start_all(NAMES, jobs)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        what = chance.choice([kill, kill, stop, pause, pause, hang])
        if what is hang:
            fleet.note("hangs")
            with hang():
                time.sleep(chance.uniform(0.2, 5))
            fleet.note("hangs no more")
        else:
            what(fleet, chance.choice(NAMES), jobs, chance)
        time.sleep(chance.uniform(0.1, 1))

    quiet_ms = time.time_ns() // 1_000_000
    for job in jobs:
        name = job["name"]
        fleet.wait_until(lambda name=name: ended_since(fleet, name, quiet_ms), f"a run of {name} after all")
    fleet.stop()
    judge(fleet)


def kill(fleet: Fleet, name: str, jobs: list[Line], chance: random.Random) -> None:
    fleet.workers[name].kill()
    fleet.note("killed", worker=name)
    fleet.restart(name, jobs)


def stop(fleet: Fleet, name: str, jobs: list[Line], chance: random.Random) -> None:
    fleet.workers[name].terminate()
    fleet.workers[name].wait()
    fleet.restart(name, jobs)


def pause(fleet: Fleet, name: str, jobs: list[Line], chance: random.Random) -> None:
    fleet.workers[name].pause()
    fleet.note("paused", worker=name)
    time.sleep(chance.uniform(0.2, 5))
    fleet.note("resumed", worker=name)
    fleet.workers[name].resume()


def ended_since(fleet: Fleet, job: str, since_ms: int) -> bool:
    return any(line["slot_ms"] > since_ms for line in fleet.lines("success", job=job))


def judge(fleet: Fleet) -> None:
    lines = fleet.lines()
    reader = fleet.reader()
    try:
        faults = faults_of_early_runs(lines)
        for job in JOBS:
            faults += faults_of_attempts(lines, job["name"], most=3)
            faults += faults_of_records(lines, job["name"], reader.history(job["name"], limit=10_000))
        for name in ("quick", "long"):
            faults += faults_of_exclusion(lines, name)
    finally:
        reader.stop()
    counts = {what: len(fleet.lines(what)) for what in ("begin", "end", "told", "killed", "stopped", "paused", "hangs")}
    print(f"{fleet!r}: {counts}")
    assert faults == []
