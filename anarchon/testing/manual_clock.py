"""A clock that moves only when it is told to."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from anarchon.durations import Duration, parse_duration, to_ms

__all__ = ["ManualClock"]

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)

# An event that this clock did not make cannot tell it of being set, so a thread that waits for one looks this often.
_LOOK_AGAIN_S = 0.002


class ManualClock:
    """A ``Clock`` that moves only when it is told to.

    May be shared by any number of threads. The wall clock and the monotonic clock move together, but for
    ``step_wall``, which is somebody setting the host's clock.

    Args:
        start: what the wall clock says first, an aware datetime; None is the start of 2026 in UTC.

    Raises:
        ValueError: ``start`` is not aware.
    """

    def __init__(self, start: datetime | None = None) -> None:
        # Two conditions over one lock: a thread that begins to wait does not wake all those that wait already.
        lock = threading.RLock()
        self._moved = threading.Condition(lock)
        self._blocking = threading.Condition(lock)
        self._wall_ms = _aware_ms(_START if start is None else start)
        self._monotonic_ms = 1_000_000  # arbitrary, and unlike the wall clock, so that mixing the two up shows
        self._waits: dict[object, tuple[threading.Event, float | None]] = {}

    # -- what the package asks of a clock

    def now_ms(self) -> int:
        """The wall clock: milliseconds since the Unix epoch (UTC)."""
        with self._moved:
            return self._wall_ms

    def exact_now_ms(self) -> float:
        """The wall clock; here it has whole milliseconds only."""
        return self.now_ms()

    def exact_monotonic_ms(self) -> float:
        """As ``monotonic_ms``, likewise."""
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never goes back."""
        with self._moved:
            return self._monotonic_ms

    def event(self) -> threading.Event:
        """A new event, whose own ``wait`` keeps this clock's time."""
        return _ManualEvent(self)

    def wait(self, event: threading.Event, timeout_ms: float | None) -> bool:
        """Blocks until the event is set or this clock has moved past the time-out; returns whether it is set."""
        with self._moved:
            deadline_ms = None if timeout_ms is None else self._monotonic_ms + math.ceil(timeout_ms)
            with self._waiting(event, deadline_ms):
                while not event.is_set() and (deadline_ms is None or deadline_ms > self._monotonic_ms):
                    self._moved.wait(None if isinstance(event, _ManualEvent) else _LOOK_AGAIN_S)
        return event.is_set()

    # -- what a test does with it

    def advance(self, duration: Duration) -> None:
        """Lets time go by on both clocks, and wakes the threads whose wait is over. Returns before they have run.

        Args:
            duration: ``"10s"``, a timedelta or a number of seconds; not negative.
        """
        self._move(parse_duration(duration, "duration"))

    def set(self, instant: datetime) -> None:
        """Lets time go by until the wall clock says this instant.

        Raises:
            ValueError: the instant is in the clock's past (``step_wall`` goes back), or not aware.
        """
        target_ms = _aware_ms(instant)
        with self._moved:
            ahead_ms = target_ms - self._wall_ms
            if ahead_ms < 0:
                raise ValueError(f"{instant} is {-ahead_ms} ms in this clock's past; step_wall() sets a clock back.")
            self._move(ahead_ms)

    def step_wall(self, duration: Duration) -> None:
        """Steps the wall clock alone, as if somebody had set it. No wait ends, for waits count on the monotonic clock.

        Args:
            duration: as for ``advance``; one that is negative, such as ``"-1h"``, steps back.
        """
        step_ms = _signed_ms(duration)
        with self._moved:
            self._wall_ms += step_ms

    def wait_until_blocked(self, count: int = 1, within: Duration = "60s") -> None:
        """Blocks until at least ``count`` threads wait on this clock with nothing yet to end their wait.

        A thread that ``advance`` or a set event has just woken is not counted, even if it has not run yet: so a test
        can go back and forth between moving the time and waiting until everybody has settled again.

        Args:
            within: the most real time to allow for it.

        Raises:
            TimeoutError: fewer threads than that were waiting when the real time was up.
        """
        end = time.monotonic() + parse_duration(within, "within") / 1000
        with self._blocking:
            while self._blocked() < count:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"Only {self._blocked()} of {count} threads wait on the clock after {within}.")
                self._blocking.wait(left)

    # -- inside; the lock may be held, and is one that its thread may take twice

    def _blocked(self) -> int:
        return sum(
            not event.is_set() and (deadline_ms is None or deadline_ms > self._monotonic_ms)
            for event, deadline_ms in self._waits.values()
        )

    @contextmanager
    def _waiting(self, event: threading.Event, deadline_ms: float | None) -> Iterator[None]:
        wait = object()
        self._waits[wait] = event, deadline_ms
        self._blocking.notify_all()
        try:
            yield
        finally:
            del self._waits[wait]

    def _move(self, ms: int) -> None:
        with self._moved:
            self._wall_ms += ms
            self._monotonic_ms += ms
            self._moved.notify_all()

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()


class _ManualEvent(threading.Event):
    """An event that keeps a manual clock's time, and tells that clock when it is set."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def set(self) -> None:
        super().set()
        self._clock._wake()

    def wait(self, timeout: float | None = None) -> bool:
        return self._clock.wait(self, None if timeout is None else math.ceil(timeout * 1000))


def _aware_ms(instant: datetime) -> int:
    if instant.tzinfo is None:
        raise ValueError(f"A clock needs an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {instant!r}.")
    return to_ms(instant)


def _signed_ms(duration: Duration) -> int:
    if isinstance(duration, str):
        text = duration.strip()
        negative = text.startswith("-")
        return (-1 if negative else 1) * parse_duration(text[1:] if negative else text, "duration")
    zero = timedelta() if isinstance(duration, timedelta) else 0
    negative = duration < zero  # type: ignore[operator]
    return -parse_duration(-duration, "duration") if negative else parse_duration(duration, "duration")
