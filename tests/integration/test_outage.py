"""The store is gone for a while: holders are told in time, nobody dies or shouts, and the schedule goes on."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from fleet import Fleet, Line, cron_at, only, together
from judge import faults_of_early_runs
from stage import Stage

NAMES = ("one", "two", "three")
LEASE_MS = 4000

# Its lease is so long that nothing here comes of its end. How long a call may take follows from the shorter one above.
TICK: Line = {"name": "tick", "every": "500ms", "lease": "60s", "history_limit": 1000}
TICK_LEASE_MS = 60_000

# What a busy machine may add.
SLACK_MS = 30_000

Gone = Callable[[], AbstractContextManager[None]]


@contextmanager
def away(leave: Callable[[], object], come_back: Callable[[], object]) -> Iterator[None]:
    leave()
    yield
    come_back()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def be_without_a_store(stage: Stage, seconds: int) -> None:
    """A fleet for each way in which a store can be gone."""
    stopped, hanging, directory = stage.redis_server(), stage.redis_server(), stage.directory()
    file = directory / "jobs.db"
    ways: dict[Fleet, Gone] = {
        stage.fleet_on(stopped.url, stage.directory()): lambda: away(stopped.stop, stopped.start),
        stage.fleet_on(hanging.url, stage.directory()): lambda: away(hanging.pause, hanging.resume),
        stage.fleet_on(f"sqlite:///{file}", directory): lambda: locked(file),
    }
    together(ways, lambda fleet: live_through(fleet, ways[fleet], seconds))


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=lambda stage: be_without_a_store(stage, 6))
def test_a_store_that_is_gone_for_a_while_ends_no_thread_and_no_schedule(played: Callable[[], None]) -> None:
    played()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_store_that_is_gone_for_a_minute_ends_no_thread_and_no_schedule(stage: Stage) -> None:
    be_without_a_store(stage, 60)


def live_through(fleet: Fleet, gone: Gone, seconds: int) -> None:
    fleet.start_all(NAMES, [TICK])
    slot = cron_at(now_ms() + 2000)
    for worker in fleet.workers.values():
        worker.ask("add", name="long", cron=slot, jitter="100ms", catch_up="1m", lasts=[120, 0], lease="4s")
    fleet.wait_for(2, what="begin", job="tick")
    labels = (f"before, {number}" for number in itertools.count())
    fleet.wait_until(lambda: keep_time(fleet, next(labels)), "each worker keeps the time")
    # Last: a machine that stands still from here to the outage ends the lease before.
    fleet.wait_for(what="begin", job="long")
    leaving_ms = now_ms()
    with gone():
        gone_ms = now_ms()
        told = only(fleet.wait_for(what="told", job="long"))
        assert told["reason"] == "lease-lost"
        # Its last renewal was sent before the store was gone, so its lease is over at this time at the latest.
        assert told["wall_ms"] < gone_ms + LEASE_MS + SLACK_MS
        fleet.start("newcomer", [TICK])
        fleet.wait_for(what="ready", worker="newcomer")
        fleet.wait_until(lambda: now_ms() - gone_ms > seconds * 1000, "the outage")
        for name in NAMES:
            fleet.wait_for(what="error", worker=name, operation="claim")
        assert keep_time(fleet, "during")
        assert [line for line in fleet.lines(what="begin") if line["wall_ms"] > gone_ms + LEASE_MS] == []
    back_ms = now_ms()

    fleet.wait_until(lambda: len(begun_since(fleet, back_ms)) >= 4, "four ticks after the store came back")
    ticks = begun_since(fleet, back_ms)
    assert max(Counter(tick["slot_ms"] for tick in ticks).values()) == 1
    print(f"{fleet!r}: the first run begins {ticks[0]['wall_ms'] - back_ms} ms after the store is back")
    # With one of the next slots. A store that hung may have granted a claim that was given up long ago: that does not
    # hold up the job until the lease is over.
    assert ticks[0]["wall_ms"] - back_ms < TICK_LEASE_MS / 2
    fleet.wait_until(lambda: takes_part(fleet, "newcomer"), "the newcomer takes part")
    # The run that was cut off: its holder's word was kept and told at last, and the run is done.
    assert only(fleet.wait_for(what="interrupted", job="long"))["reason"] == "lease-lost"
    fleet.wait_for(what="success", job="long", attempt=2)
    assert keep_time(fleet, "after")
    fleet.stop()

    assert faults_of_early_runs(fleet.lines()) == []
    # A claim that was granted while nobody waited for the answer is no takeover, whenever it is found.
    assert [line for line in fleet.lines("begin") if (line["trigger"] == "takeover") != (line["attempt"] > 1)] == []
    errors = fleet.lines(what="error")
    of_the_outage = [line for line in errors if leaving_ms <= line["wall_ms"] <= back_ms]
    causes = Counter((line["worker"], line["operation"], line["cause"]) for line in of_the_outage)
    print(f"{fleet!r}: {causes}")
    assert {"claim", "heartbeat"} <= {line["operation"] for line in of_the_outage}
    assert max(causes.values()) == 1
    for name, worker in fleet.workers.items():
        print(worker.complaints)
        assert "Traceback" not in worker.complaints
        # As many lines for a minute as for seconds: an operation fails, and works again. On a machine that is kept busy
        # a call may fail at any time, and be told likewise.
        others = [line for line in errors if line not in of_the_outage and line["worker"] == name]
        assert len(worker.complaints.splitlines()) <= 3 * 6 + 2 * len(others)


def keep_time(fleet: Fleet, label: str) -> bool:
    """Whether each worker that was there from the start has a thread that waits for the next slot, now."""
    for name in NAMES:
        fleet.workers[name].ask("threads", label=label)
    told = {name: only(fleet.wait_for(what="threads", worker=name, label=label)) for name in NAMES}
    return all("anarchon-timers" in [thread for thread, _ in line["threads"]] for line in told.values())


def begun_since(fleet: Fleet, since_ms: int) -> list[Line]:
    return [line for line in fleet.lines(what="begin", job="tick") if line["slot_ms"] > since_ms]


def takes_part(fleet: Fleet, name: str) -> bool:
    """The worker has asked the store for a slot, and was answered: it ran it, or another did."""
    return any(
        line["what"] == "begin" or line.get("reason") in ("taken", "overlap") for line in fleet.lines(worker=name)
    )
