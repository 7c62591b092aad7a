"""What the winner of a slot tells of the slots before it."""

from __future__ import annotations

import threading
from datetime import timedelta

from anarchon import MemoryBackend, Scheduler
from anarchon.records import Event
from anarchon.sources import Sources
from anarchon.testing import ManualClock


def _starts(scheduler: Scheduler) -> tuple[list[Event], threading.Semaphore]:
    starts: list[Event] = []
    told = threading.Semaphore(0)

    @scheduler.on("start")
    def remember(event: Event) -> None:
        starts.append(event)
        told.release()

    return starts, told


def _run_one_slot(clock: ManualClock, backend: MemoryBackend) -> Event:
    scheduler = Scheduler(backend, sources=Sources(clock=clock)).every("sync", "10s", lambda: None, jitter=0)
    starts, told = _starts(scheduler)
    with scheduler:
        clock.wait_until_blocked(2)
        clock.advance("10s")
        assert told.acquire(timeout=60)
    return starts[0]


def test_start_names_the_slot_granted_before_so_that_a_gap_shows() -> None:
    clock = ManualClock()
    backend = MemoryBackend(clock)
    first = _run_one_slot(clock, backend)
    assert first.previous is None, "nothing was granted before the first slot of all"

    clock.advance("5m")  # nobody is up
    second = _run_one_slot(clock, backend)
    assert second.previous == first.slot
    assert second.slot is not None and first.slot is not None
    assert second.slot - first.slot > timedelta(minutes=5)


def test_start_of_a_manual_run_names_no_slot_before_it() -> None:
    clock = ManualClock()
    backend = MemoryBackend(clock)
    _run_one_slot(clock, backend)
    scheduler = Scheduler(backend, sources=Sources(clock=clock)).every("sync", "10s", lambda: None)
    starts, _ = _starts(scheduler)
    scheduler.run_now("sync")
    assert scheduler.stop()
    assert [event.previous for event in starts] == [None]
