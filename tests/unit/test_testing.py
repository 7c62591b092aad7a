"""The manual clock that users test their own jobs with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest

from anarchon.durations import to_ms
from anarchon.errors import ConfigurationError
from anarchon.testing import ManualClock

BEGIN = datetime(2026, 3, 29, 1, 0, tzinfo=timezone.utc)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN)


class Waiter:
    """A thread that waits on a clock, and what its wait returned."""

    def __init__(self, wait: Callable[[], bool]) -> None:
        self.answer: bool | None = None
        self._thread = threading.Thread(target=self._run, args=(wait,), daemon=True)
        self._thread.start()

    def _run(self, wait: Callable[[], bool]) -> None:
        self.answer = wait()

    def is_back(self) -> bool:
        self._thread.join(timeout=60)
        return not self._thread.is_alive()


Start = Callable[[Callable[[], bool]], Waiter]


@pytest.fixture
def waiting() -> Iterator[Start]:
    """Starts a thread on a wait; all must have come back by the end of the test."""
    waiters: list[Waiter] = []

    def start(wait: Callable[[], bool]) -> Waiter:
        waiters.append(Waiter(wait))
        return waiters[-1]

    yield start
    assert all(waiter.is_back() for waiter in waiters)


def test_clock_stands_still_until_it_is_moved(clock: ManualClock) -> None:
    assert clock.now_ms() == to_ms(BEGIN)
    before = clock.monotonic_ms()
    clock.advance("1h30m")
    assert clock.now_ms() == to_ms(BEGIN + timedelta(hours=1, minutes=30))
    assert clock.monotonic_ms() == before + 5_400_000


def test_clock_starts_in_2026_unless_told() -> None:
    assert ManualClock().now_ms() == to_ms(datetime(2026, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("duration", ["250ms", 0.25, timedelta(milliseconds=250)])
def test_clock_takes_durations_as_options_do(clock: ManualClock, duration: str | float | timedelta) -> None:
    clock.advance(duration)
    assert clock.now_ms() == to_ms(BEGIN) + 250


def test_time_never_goes_back_by_advancing(clock: ManualClock) -> None:
    with pytest.raises(ConfigurationError):
        clock.advance(-1)


@pytest.mark.parametrize(
    "step, ms", [("-1h", -3_600_000), ("1h", 3_600_000), (-0.5, -500), (timedelta(days=-1), -86_400_000)]
)
def test_step_moves_the_wall_clock_alone(clock: ManualClock, step: str | float | timedelta, ms: int) -> None:
    before = clock.monotonic_ms()
    clock.step_wall(step)
    assert clock.now_ms() == to_ms(BEGIN) + ms
    assert clock.monotonic_ms() == before


def test_set_lets_time_go_by_until_the_instant(clock: ManualClock) -> None:
    before = clock.monotonic_ms()
    clock.set(datetime(2026, 3, 29, 4, 0, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now_ms() == to_ms(BEGIN) + 3_600_000
    assert clock.monotonic_ms() == before + 3_600_000


def test_set_refuses_the_past_and_names_the_way_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="step_wall"):
        clock.set(BEGIN - timedelta(milliseconds=1))
    assert clock.now_ms() == to_ms(BEGIN)


def test_naive_instants_are_refused(clock: ManualClock) -> None:
    for use in (ManualClock, clock.set):
        with pytest.raises(ValueError, match="aware"):
            use(datetime(2026, 3, 29))


def test_wait_ends_at_its_time_and_not_a_millisecond_before(clock: ManualClock, waiting: Start) -> None:
    waiter = waiting(lambda: clock.wait(clock.event(), 1_000))
    clock.wait_until_blocked()
    clock.advance("999ms")
    clock.wait_until_blocked()
    clock.advance("1ms")
    assert waiter.is_back()
    assert waiter.answer is False


def test_step_of_the_wall_clock_ends_no_wait(clock: ManualClock, waiting: Start) -> None:
    waiter = waiting(lambda: clock.wait(clock.event(), 1_000))
    clock.wait_until_blocked()
    clock.step_wall("10h")
    clock.wait_until_blocked()
    clock.advance(1)
    assert waiter.is_back()


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("timeout_ms", [None, 1_000])
def test_event_that_is_set_ends_the_wait(
    clock: ManualClock, waiting: Start, foreign: bool, timeout_ms: int | None
) -> None:
    event = threading.Event() if foreign else clock.event()
    waiter = waiting(lambda: clock.wait(event, timeout_ms))
    clock.wait_until_blocked()
    event.set()
    assert waiter.is_back()
    assert waiter.answer is True


def test_own_event_waits_by_the_clock(clock: ManualClock, waiting: Start) -> None:
    event = clock.event()
    waiter = waiting(lambda: event.wait(0.5))
    clock.wait_until_blocked()
    clock.advance(0.5)
    assert waiter.is_back()
    assert waiter.answer is False
    event.set()
    assert event.wait(3_600) is True


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_wait_that_is_over_already_does_not_block(clock: ManualClock, timeout_ms: int) -> None:
    assert clock.wait(clock.event(), timeout_ms) is False


def test_woken_thread_is_not_counted_as_blocked(clock: ManualClock, waiting: Start) -> None:
    events = [clock.event() for _ in range(3)]
    for event in events:
        waiting(lambda event=event: clock.wait(event, 1_000))
    clock.wait_until_blocked(3)
    events[0].set()
    with pytest.raises(TimeoutError, match="Only 2 of 3"):
        clock.wait_until_blocked(3, within="50ms")
    clock.advance(1)
    with pytest.raises(TimeoutError, match="Only 0 of 1"):
        clock.wait_until_blocked(within=0)


def test_many_threads_wake_one_after_the_other_in_their_time(clock: ManualClock, waiting: Start) -> None:
    waiters = [waiting(lambda ms=ms: clock.wait(clock.event(), ms)) for ms in range(100, 1_100, 100)]
    for left in range(len(waiters), 0, -1):
        clock.wait_until_blocked(left)
        clock.advance("100ms")
        assert waiters[len(waiters) - left].is_back()
