"""Short calls to the store, made now or later, by a bounded number of threads.

First claims, the checks of backups and what a start asks all go this way, so a thousand jobs that are due at once, or
that are watched while others run them, cost a handful of threads, however slow the store is.

Guarantees: asks begin in the order in which they came due; after ``close`` none begins.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anarchon.alarms import Alarm, Alarms
from anarchon.clock import Clock
from anarchon.runners.changes import Changes
from anarchon.threads import Threads, call_guarded

__all__ = ["Asks"]

_THREADS = 8
_LOOK_AGAIN_MS = 1_000


class Asks:
    """A queue and its threads. Every method may be called on any thread; only ``wait_until_idle`` blocks."""

    def __init__(self, clock: Clock, threads: Threads, alarms: Alarms, limit: int = _THREADS) -> None:
        self._threads = threads
        self._alarms = alarms
        self._limit = limit
        self._lock = threading.Lock()
        self._queue: deque[Callable[[], object]] = deque()
        #: How many asks a thread makes, by what ``threading.get_ident`` calls it; and how many those that wait make.
        self._asking: Counter[int] = Counter()
        self._excused = 0
        self._workers = 0
        #: What the thread of an ask goes on with when that is over.
        self._next: dict[int, tuple[str, Callable[[], object]]] = {}
        self._apart = 0
        self._closed = False
        self._changes = Changes(clock, self._lock)

    def soon(self, ask: Callable[[], object]) -> None:
        """Makes the ask on one of the threads, as soon as one is free."""
        if self._add(ask):
            self._start(self._begin)

    def here(self, ask: Callable[[], object], relieve: Callable[[], None]) -> Callable[[], None] | None:
        """As ``soon``, but the calling thread becomes one of those that ask, if there may be one more: none is woken.

        Args:
            relieve: starts another thread in place of this one; RuntimeError where none can be had.

        Returns:
            What this thread is to go on with, where it was relieved. None: others make the ask.
        """
        return self._work if self._add(ask) and self._start(relieve) else None

    def then(self, name: str, work: Callable[[], object]) -> None:
        """Inside of an ask: when that is over its thread goes on with ``work``, by that name, and asks no more.

        So a run begins on the thread that has won it: none has to be woken for it, and none can be lacking.
        """
        with self._lock:
            self._next[threading.get_ident()] = name, work

    def _add(self, ask: Callable[[], object]) -> bool:
        """Whether another thread is to ask, which is counted already."""
        with self._lock:
            if self._closed:
                return False
            self._queue.append(ask)
            more = self._workers < self._limit
            self._workers += more
            return more

    def _begin(self) -> None:
        self._threads.start("anarchon-ask", self._work)

    def _start(self, start: Callable[[], None]) -> bool:
        try:
            start()
            return True
        except RuntimeError:
            # No thread to be had. One that is at work takes it; otherwise it waits for the next ask, or this alarm.
            with self._lock:
                self._workers -= 1
                self._changes.tell()
            with contextlib.suppress(RuntimeError):
                self._alarms.after(_LOOK_AGAIN_MS, lambda: self.soon(lambda: None))
            return False

    def after(self, delay_ms: int, ask: Callable[[], object]) -> Alarm:
        """Makes the ask so many milliseconds from now, unless the alarm is cancelled."""
        return self._alarms.after(delay_ms, lambda: self.soon(ask))

    @contextmanager
    def apart(self) -> Iterator[bool]:
        """Inside, this thread makes an ask of its own, which is waited for like the others.

        Yields:
            Whether it may: False after ``close``.
        """
        me = threading.get_ident()
        with self._lock:
            may = not self._closed
            self._apart += may
            self._asking[me] += may
        try:
            yield may
        finally:
            with self._lock:
                self._apart -= may
                self._asking[me] -= may
                self._asking += Counter()  # which drops what has come to zero
                self._changes.tell()

    def close(self) -> None:
        """Drops what has not begun; what has goes on."""
        with self._lock:
            self._closed = True
            self._queue.clear()

    @contextmanager
    def excused(self) -> Iterator[bool]:
        """While inside, this thread waits: others that wait likewise need not wait for the asks that it makes.

        Yields:
            Whether it makes one: whether it is inside of a listener that an ask has called.
        """
        with self._lock:
            mine = self._asking[threading.get_ident()]
            self._excused += mine
            self._changes.tell()
        try:
            yield mine > 0
        finally:
            with self._lock:
                self._excused -= mine

    def idle(self) -> bool:
        """Whether no ask is on its way."""
        with self._lock:
            return self._is_idle(0)

    def wait_until_idle(self, timeout_ms: int | None, but_for_excused: bool = False) -> bool:
        """Waits until no ask is on its way, or none but those excused; False if the time ran out. None: no limit."""
        return self._changes.wait_until(lambda: self._is_idle(self._excused if but_for_excused else 0), timeout_ms)

    def _work(self) -> None:
        me = threading.get_ident()
        with self._lock:
            self._asking[me] += 1
        following = None
        while following is None:
            with self._lock:
                if not self._queue:
                    break
                ask = self._queue.popleft()
            call_guarded(ask)
            following = self._next.get(me)
        with self._lock:
            self._workers -= 1
            del self._asking[me]
            self._next.pop(me, None)
            # Another one takes the place of a thread that leaves.
            replaced = bool(self._queue) and self._workers < self._limit
            self._workers += replaced
            self._changes.tell()
        if replaced:
            self._start(self._begin)
        if following is not None:
            self._threads.go_on(*following)

    def _is_idle(self, excused: int) -> bool:
        return self._workers + self._apart <= excused
