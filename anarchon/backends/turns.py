"""Turns: who may use what only one thread may use at a time, first come first served, each within its time.

A plain lock serves whom it likes: a heartbeat could be passed over until its lease is lost.
"""

from __future__ import annotations

import threading
from collections import deque

from anarchon.clock import Clock

__all__ = ["Turns"]


class Turns:
    """Every method may be called on any thread; a turn may be given back on another than took it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    def take(self, timeout_ms: int) -> bool:
        """Waits for a turn; False if the time is over first."""
        called = self._clock.event()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        try:
            with self._lock:
                if not self._taken:
                    self._taken = True
                    return True
                self._waiting.append(called)
            while not called.is_set() and (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
                self._clock.wait(called, left_ms)
        except BaseException:
            if not self._leave(called):
                self.give()
            raise
        return not self._leave(called)

    def give(self) -> None:
        """Ends a turn: the one who has waited longest has the next."""
        with self._lock:
            if self._waiting:
                # The turn passes on without ever being free, so that no newcomer slips in between.
                self._waiting.popleft().set()
            else:
                self._taken = False

    def _leave(self, called: threading.Event) -> bool:
        """Stops waiting; False if the turn was given to us meanwhile."""
        with self._lock:
            if called in self._waiting:
                self._waiting.remove(called)
            return not called.is_set()
