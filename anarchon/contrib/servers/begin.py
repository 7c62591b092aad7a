"""The start itself: on a library thread, when the application is ready."""

from __future__ import annotations

from collections.abc import Callable

from anarchon.clock import SystemClock
from anarchon.threads import Threads

__all__ = ["begin", "on_thread"]


def begin(start: Callable[[], object], ready: Callable[[], object]) -> None:
    """Calls ``ready``, then ``start``, on a library thread; returns at once."""

    def work() -> None:
        ready()
        start()

    on_thread(work)


def on_thread(work: Callable[[], object]) -> None:
    """Runs ``work`` on a library thread that ends with it."""
    threads = Threads(SystemClock())
    threads.start("anarchon-start", work)
    threads.close()
