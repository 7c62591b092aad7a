"""The only file that starts a thread: named daemon threads, used again when they are idle.

Guarantees:

- ``start`` returns as soon as the work has a thread; it never waits for other work.
- Work that raises is told to ``threading.excepthook``; its thread lives on. Each work has context variables of its own,
  so that none finds what another left behind.
- ``close`` ends idle threads at once and the others after their work. It may be called from a thread of this cache.
- ``join`` misses no thread: one that is about to end is waited for like the others.

Starting a thread costs several times as much as waking one that waits (trio's thread cache is the model). They are
daemons, so that no run can keep a process alive that wants to end. After a fork the child makes a new ``Threads``.
"""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import logging
import os
import sys
import threading
from collections.abc import Callable

from anarchon.clock import Clock

__all__ = ["Threads", "call_guarded", "end_forked_child", "on_library_thread", "start_from_signal"]

_logger = logging.getLogger("anarchon")

#: How long an idle thread waits for more work.
IDLE_MS = 10_000


class Threads:
    """A cache of threads. Every method may be called on any thread."""

    def __init__(self, clock: Clock, idle_ms: int = IDLE_MS) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._workers: set[_Worker] = set()
        # Those that have nothing left to do and may not quite be gone yet.
        self._ending: list[_Worker] = []
        self._closed = False

    def start(self, name: str, work: Callable[[], object]) -> None:
        """Runs ``work`` on a thread of that name.

        Raises:
            RuntimeError: the process has no thread left to give, or the interpreter is shutting down.
        """
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                worker.take(name, work)
                return
            worker = _Worker(self, name, work)
            # With the lock held, so that nobody joins a thread that has not begun.
            worker.start()
            self._workers.add(worker)

    def go_on(self, name: str, work: Callable[[], object]) -> None:
        """Runs ``work`` on this thread, which is at the end of its own, as if it had been started for it."""
        threading.current_thread().name = name
        contextvars.Context().run(call_guarded, work)

    def close(self) -> None:
        """Idle threads end now, busy ones after their work. Work may still be started: its thread ends with it."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in idle:
                worker.take(worker.name, None)

    def join(self, timeout_ms: int) -> bool:
        """After ``close``: waits for every thread to end, but for the one that asks; True if they all did."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        me = threading.current_thread()
        with self._lock:
            workers = [worker for worker in (*self._workers, *self._ending) if worker is not me]
        for worker in workers:
            worker.join(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)
        return not any(worker.is_alive() for worker in workers)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether the thread is one of this cache."""
        with self._lock:
            return thread in self._workers

    def _rest(self, worker: _Worker) -> bool:
        """The worker has nothing to do: True if it shall wait for more, False if it shall end."""
        with self._lock:
            if self._closed:
                self._leave(worker)
                return False
            self._idle.append(worker)
            return True

    def _end(self, worker: _Worker) -> bool:
        """The worker has waited long enough: True if it may end, False if work came in the last moment."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            self._leave(worker)
            return True

    def _leave(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        self._ending = [*filter(_Worker.is_alive, self._ending), worker]

    def _wait(self, woken: threading.Event) -> bool:
        return self._clock.wait(woken, self._idle_ms)

    def _event(self) -> threading.Event:
        return self._clock.event()


class _Worker(threading.Thread):
    def __init__(self, threads: Threads, name: str, work: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._threads = threads
        self._work: Callable[[], object] | None = work
        self._woken = threads._event()

    def take(self, name: str, work: Callable[[], object] | None) -> None:
        """Called with the cache's lock held, on a worker that is idle."""
        self.name = name
        self._work = work
        self._woken.set()

    def run(self) -> None:
        while self._work is not None:
            work, self._work = self._work, None
            contextvars.Context().run(call_guarded, work)
            # A local keeps the work, and all that it refers to, alive while the thread is idle.
            del work
            self._woken.clear()
            if not self._threads._rest(self):
                return
            while not self._threads._wait(self._woken):
                if self._threads._end(self):
                    return


def call_guarded(work: Callable[[], object]) -> None:
    """Calls ``work``; whatever it raises is told to ``threading.excepthook``, and the thread goes on."""
    try:
        work()
    except BaseException:
        try:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        except BaseException:
            _logger.exception("threading.excepthook raised.")


def on_library_thread() -> bool:
    """Whether this code runs inside of a handler or a listener, on a thread of this package."""
    return isinstance(threading.current_thread(), _Worker)


def end_forked_child(home: int, error: BaseException | None = None) -> None:
    """Ends this process where users' code, called on a library thread, has come back in the child of a fork.

    Such a child has this thread alone, and would go on in its parent's name: finish a run that the parent still works
    on, or begin one that the parent begins too. It ends like a process whose work is done, by ``os._exit``, since what
    is to be cleaned up is the parent's.

    Args:
        home: the process in which the code was called.
        error: what it raised, which becomes the exit code.
    """
    if os.getpid() == home or not on_library_thread():
        return
    code = 0
    with contextlib.suppress(BaseException):
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else error.code is not None
        elif error is not None:
            code = 1
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code)


def start_from_signal(work: Callable[[], object]) -> None:
    """Runs ``work`` on a bare new thread; for signal handlers only.

    A signal handler runs between two bytecodes of the main thread, which may hold any lock of this process, the ones
    inside ``threading`` included. This starts a thread without taking a single one.
    """
    _thread.start_new_thread(work, ())
