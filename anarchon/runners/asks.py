"""Short calls to the store, made now or later, by a bounded number of threads.

First claims, the checks of backups and what a start asks all go this way, so a thousand jobs that are due at once, or
that are watched while others run them, cost a handful of threads, however slow the store is.

Guarantees: asks begin in the order in which they came due; after ``close`` none begins.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from anarchon.alarms import Alarm, Alarms
from anarchon.clock import Clock
from anarchon.threads import Threads, call_guarded

__all__ = ["Asks"]

_THREADS = 8
_LOOK_AGAIN_MS = 1_000


class Asks:
    """A queue and its threads. Every method may be called on any thread; only ``wait_until_idle`` blocks."""

    def __init__(self, clock: Clock, threads: Threads, alarms: Alarms, limit: int = _THREADS) -> None:
        self._clock = clock
        self._threads = threads
        self._alarms = alarms
        self._limit = limit
        self._lock = threading.Lock()
        self._queue: deque[Callable[[], None]] = deque()
        self._workers: set[int] = set()
        self._busy = 0
        self._closed = False
        self._ended = clock.event()

    def soon(self, ask: Callable[[], None]) -> None:
        """Makes the ask on one of the threads, as soon as one is free."""
        with self._lock:
            if self._closed:
                return
            self._queue.append(ask)
            if self._busy >= self._limit:
                return
            self._busy += 1
        try:
            self._threads.start("anarchon-ask", self._work)
        except RuntimeError:
            # No thread to be had. One that is at work takes it; otherwise it waits for the next ask, or this alarm.
            with self._lock:
                self._busy -= 1
            with contextlib.suppress(RuntimeError):
                self._alarms.after(_LOOK_AGAIN_MS, lambda: self.soon(lambda: None))

    def after(self, delay_ms: int, ask: Callable[[], None]) -> Alarm:
        """Makes the ask so many milliseconds from now, unless the alarm is cancelled."""
        return self._alarms.after(delay_ms, lambda: self.soon(ask))

    def close(self) -> None:
        """Drops what has not begun; what has goes on."""
        with self._lock:
            self._closed = True
            self._queue.clear()

    def wait_until_idle(self, timeout_ms: int | None) -> bool:
        """Waits until no ask is on its way, but for one that this thread is making; True if so."""
        mine = 1 if threading.get_ident() in self._workers else 0
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        while True:
            self._ended.clear()
            if self._busy <= mine:
                return True
            left_ms = None if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            self._clock.wait(self._ended, _LOOK_AGAIN_MS if left_ms is None else min(left_ms, _LOOK_AGAIN_MS))

    def _work(self) -> None:
        me = threading.get_ident()
        self._workers.add(me)
        while True:
            with self._lock:
                if not self._queue:
                    self._busy -= 1
                    self._workers.discard(me)
                    break
                ask = self._queue.popleft()
            call_guarded(ask)
        self._ended.set()
