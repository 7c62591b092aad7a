"""Calls functions at instants of the monotonic clock, all on one thread.

Guarantees:

- A function is called once, at or after its instant, unless it was cancelled before.
- The thread is there only while something is set, or kept; ``close`` ends it and drops what was set.
- Functions must not block: they set a signal or hand work to another thread.

Waits are cut to a second, since an Event's wait stands still while the machine is suspended and the clock runs on: a
lease that ran out in suspend is noticed within a second of waking up.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from anarchon.clock import Clock
from anarchon.threads import Threads, call_guarded

__all__ = ["Alarm", "Alarms"]

_LONGEST_WAIT_MS = 1_000


class Alarm:
    """Something to be called later."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It will not be called, unless its call has begun."""
        self.call = None


class Alarms:
    """A heap of alarms and the one thread that looks at it. Every method may be called on any thread."""

    def __init__(self, clock: Clock, threads: Threads) -> None:
        self._clock = clock
        self._threads = threads
        self._lock = threading.Lock()
        self._woken = clock.event()
        self._heap: list[tuple[int, int, Alarm]] = []
        #: When the thread looks next if nobody wakes it; None: not by itself.
        self._looks_at_ms: int | None = None
        self._order = itertools.count()
        self._watched = False
        self._kept = False
        self._closed = False

    def keep(self) -> None:
        """Takes the thread now and keeps it: until ``keep_no_longer`` no alarm can fail for want of one.

        Raises:
            RuntimeError: the process has no thread left to give.
        """
        with self._lock:
            if not self._closed:
                self._begin_watch()
                self._kept = True

    def keep_no_longer(self) -> None:
        """The thread ends when nothing is set."""
        with self._lock:
            self._kept = False
        self._woken.set()

    def after(self, delay_ms: int, call: Callable[[], None]) -> Alarm:
        """Calls ``call`` once, so many milliseconds from now. Raises as ``at``."""
        return self.at(self._clock.monotonic_ms() + delay_ms, call)

    def at(self, when_ms: int, call: Callable[[], None]) -> Alarm:
        """Calls ``call`` once at that instant of the monotonic clock; at once if it is past.

        Raises:
            RuntimeError: no thread watches, and the process has none left to give. Nothing is set.
        """
        alarm = Alarm(call)
        with self._lock:
            if self._closed:
                return alarm
            self._begin_watch()
            heapq.heappush(self._heap, (when_ms, next(self._order), alarm))
            # Most alarms are set and cancelled long before the thread looks again; it need not wake for each.
            sooner = self._looks_at_ms is None or when_ms < self._looks_at_ms
        if sooner:
            self._woken.set()
        return alarm

    def close(self) -> None:
        """Drops every alarm; the thread ends."""
        with self._lock:
            self._closed = True
            self._heap.clear()
        self._woken.set()

    def _begin_watch(self) -> None:
        # With the lock held: an alarm is set by a thread that watches, or not at all.
        if not self._watched:
            self._threads.start("anarchon-alarms", self._watch)
            self._watched = True

    def _watch(self) -> None:
        while True:
            self._woken.clear()
            with self._lock:
                due = self._take_due()
                if self._closed or not (due or self._heap or self._kept):
                    self._watched = False
                    return
                now_ms = self._clock.monotonic_ms()
                wait_ms = min(self._heap[0][0] - now_ms, _LONGEST_WAIT_MS) if self._heap else None
                self._looks_at_ms = None if wait_ms is None else now_ms + wait_ms
            for alarm in due:
                call = alarm.call
                if call is not None:
                    call_guarded(call)
            if not due and (wait_ms is None or wait_ms > 0):
                self._clock.wait(self._woken, wait_ms)

    def _take_due(self) -> list[Alarm]:
        now_ms = self._clock.monotonic_ms()
        due = []
        while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].call is None):
            due.append(heapq.heappop(self._heap)[2])
        return due
