"""A job that fails, however it fails, and a listener that fails with it: the schedule goes on with the next slot."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import NoReturn

import pytest

from anarchon import Event, Scheduler

SLOTS = 4


def fail() -> NoReturn:
    raise ValueError("as always")


def leave() -> NoReturn:
    raise SystemExit(1)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("handler", [fail, leave, interrupt])
def test_a_job_that_fails_every_time_is_run_every_time(handler: Callable[[], object]) -> None:
    failures: queue.Queue[Event] = queue.Queue()

    def listen(event: Event) -> None:
        failures.put(event)
        handler()

    scheduler = Scheduler("memory://").every("fails", "50ms", handler).on("failure", listen)
    with scheduler:
        events = [failures.get(timeout=60) for _ in range(SLOTS)]
    slots = [event.slot for event in events]
    assert slots == sorted(set(slots))
    assert {event.attempt for event in events} == {1}
    # The stop may have come in the middle of one more.
    statuses = {record.slot: record.status for record in scheduler.history("fails")}
    assert [statuses[slot] for slot in slots] == ["failed"] * SLOTS
