"""Turns are given in the order of asking, each within its time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from anarchon.backends.turns import Turns
from anarchon.clock import SystemClock


class AskingClock(SystemClock):
    """Tells when a thread has begun to wait; may fail in a wait."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def wait(self, event: threading.Event, timeout_ms: int | None) -> bool:
        self.waiting.release()
        if self.failure is not None:
            raise self.failure
        return super().wait(event, timeout_ms)


@pytest.fixture
def clock() -> AskingClock:
    return AskingClock()


@pytest.fixture
def turns(clock: AskingClock) -> Turns:
    return Turns(clock)


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_free_turn_is_taken_without_waiting(turns: Turns) -> None:
    assert turns.take(0)


def test_a_taken_turn_is_refused_when_the_time_is_over(turns: Turns) -> None:
    assert turns.take(0)
    assert not turns.take(0)
    assert not turns.take(10)


def test_a_turn_given_back_can_be_taken_again(turns: Turns) -> None:
    assert turns.take(0)
    turns.give()
    assert turns.take(0)


def test_who_gave_up_waiting_is_not_served(turns: Turns) -> None:
    assert turns.take(0)
    assert not turns.take(1)
    turns.give()
    assert turns.take(0)


def test_threads_are_served_in_the_order_in_which_they_asked(turns: Turns, clock: AskingClock) -> None:
    served: list[int] = []

    def ask(number: int) -> None:
        assert turns.take(30_000)
        served.append(number)
        turns.give()

    assert turns.take(0)
    threads = []
    for number in range(8):
        threads.append(start(lambda number=number: ask(number)))
        assert clock.waiting.acquire(timeout=30)
    turns.give()
    for thread in threads:
        thread.join(30)
    assert served == list(range(8))


def test_a_newcomer_does_not_slip_in_before_one_who_waits(turns: Turns, clock: AskingClock) -> None:
    taken = threading.Event()
    assert turns.take(0)
    waiter = start(lambda: turns.take(30_000) and taken.set())
    assert clock.waiting.acquire(timeout=30)
    turns.give()
    assert not turns.take(0)
    assert taken.wait(30)
    waiter.join(30)


def test_an_interrupted_wait_leaves_the_turn_to_others(turns: Turns, clock: AskingClock) -> None:
    assert turns.take(0)
    clock.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        turns.take(30_000)
    turns.give()
    assert turns.take(0)


def test_a_turn_given_to_a_wait_that_is_interrupted_goes_on_to_the_next(turns: Turns, clock: AskingClock) -> None:
    class GivingClock(AskingClock):
        def wait(self, event: threading.Event, timeout_ms: int | None) -> bool:
            turns.give()  # The turn comes in the very moment of the interruption.
            raise KeyboardInterrupt

    assert turns.take(0)
    turns._clock = GivingClock()
    with pytest.raises(KeyboardInterrupt):
        turns.take(30_000)
    assert turns.take(0)
