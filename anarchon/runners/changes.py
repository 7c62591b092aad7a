"""Waiting until something holds of what changes under a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from anarchon.clock import Clock

__all__ = ["Changes"]

# A signal that comes just before the main thread begins to wait does not end that wait: it is seen after it.
_PIECE_MS = 1_000


class Changes:
    """Tells those who wait that something has changed.

    Args:
        lock: guards what changes.
    """

    def __init__(self, clock: Clock, lock: threading.Lock) -> None:
        self._clock = clock
        self._lock = lock
        # A new one for each change, so that no waiter misses one, however many wait.
        self._changed = clock.event()

    def tell(self) -> None:
        """Called with the lock held."""
        changed, self._changed = self._changed, self._clock.event()
        changed.set()

    def wait_until(self, holds: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Waits until ``holds``, which is asked with the lock held; False if the time ran out. None: no limit."""
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        while True:
            with self._lock:
                if holds():
                    return True
                changed = self._changed
            left_ms = None if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            self._clock.wait(changed, _PIECE_MS if left_ms is None else min(left_ms, _PIECE_MS))
