"""The only file that reads a clock or waits.

Three clocks are told apart. The *wall clock* says what time it is and may be stepped by anybody. The *monotonic clock*
measures how long something took and only grows. The *store's clock* (``store_clock.py``) is the one that decides; this
file knows nothing of it.

A test or a simulation hands in another ``Clock``; nothing else in the package reads the time or blocks on its own.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Protocol

from anarchon.durations import to_ms

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Where the time comes from, and the one way to wait. Every method may be called on any thread."""

    def now_ms(self) -> int:
        """The wall clock: milliseconds since the Unix epoch (UTC)."""

    def exact_now_ms(self) -> float:
        """The wall clock with its fraction of a millisecond."""

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start; never goes back, and runs on while the machine is suspended."""

    def exact_monotonic_ms(self) -> float:
        """As ``monotonic_ms``, with its fraction."""

    def event(self) -> threading.Event:
        """A new event, whose own ``wait`` keeps this clock's time."""

    def wait(self, event: threading.Event, timeout_ms: float | None) -> bool:
        """Blocks until the event is set or the time is over (None: no limit); returns whether it is set.

        May return early on neither; callers look again. Never holds a lock that another thread could need.
        """


class SystemClock:
    """The host's clocks."""

    # CLOCK_MONOTONIC stands still while a machine is suspended, so a lease counted on it would outlive the store's.
    _BOOT = getattr(time, "CLOCK_BOOTTIME", None)

    def now_ms(self) -> int:
        # datetime.now, and looked up late: the one reading that freezegun changes alike on every thread.
        return to_ms(datetime.now(timezone.utc))

    def exact_now_ms(self) -> float:
        now = datetime.now(timezone.utc)
        return to_ms(now) + now.microsecond % 1000 / 1000

    def monotonic_ms(self) -> int:
        return self._monotonic_ns() // 1_000_000

    def exact_monotonic_ms(self) -> float:
        return self._monotonic_ns() / 1_000_000

    def _monotonic_ns(self) -> int:
        return time.monotonic_ns() if self._BOOT is None else time.clock_gettime_ns(self._BOOT)

    def event(self) -> threading.Event:
        return threading.Event()

    def wait(self, event: threading.Event, timeout_ms: float | None) -> bool:
        return event.wait(None if timeout_ms is None else max(0, timeout_ms) / 1000)
