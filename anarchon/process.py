"""What happens to the process around the schedulers: signals, forks, and its end.

- *Signals.* A handler runs between two bytecodes of the main thread, which may hold any lock; setting an Event there
  can wait for ever for a lock that its own thread holds. So a stop from a signal handler is only queued.
- *Forks* (``forks.py``). Threads do not survive one, and a lock that another thread held stays locked in the child. The
  child is given a scheduler that is not started.
- *The end.* Python 3.12 cannot start a thread once it has begun to shut down; nothing here needs one.
"""

from __future__ import annotations

import atexit
import functools
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Protocol

from anarchon.clock import SystemClock
from anarchon.forks import in_child, meet_fork
from anarchon.threads import start_from_signal

__all__ = ["Guarded", "guard", "in_signal_handler", "on_stop_signals"]


class Guarded(Protocol):
    """What is told of the process's fate."""

    def _forked(self) -> None:
        """This process is the child of a fork; only this thread is left. Takes no lock that existed before."""

    def _begin_exit(self) -> None:
        """The interpreter is about to end: tells the runs to stop. Returns at once; starts no thread."""

    def _end_exit(self, end_ms: int) -> None:
        """Waits for the runs until then, on the host's monotonic clock, at the most."""


#: How long the end of the interpreter waits for runs whose handlers heed the signal.
_EXIT_GRACE_MS = 2_000

_guarded: weakref.WeakSet[Any] = weakref.WeakSet()


def guard(scheduler: Guarded) -> None:
    """Tells the scheduler, for as long as it lives, of forks and of the interpreter's end."""
    _guarded.add(scheduler)


def _tell_forked() -> None:
    for scheduler in list(_guarded):
        scheduler._forked()


def _tell_exiting() -> None:
    meet_fork()
    end_ms = SystemClock().monotonic_ms() + _EXIT_GRACE_MS
    # All begin before any is waited for, so that ten schedulers take no longer than one.
    guarded = list(_guarded)
    for scheduler in guarded:
        scheduler._begin_exit()
    for scheduler in guarded:
        scheduler._end_exit(end_ms)


in_child(_tell_forked)
atexit.register(_tell_exiting)


def in_signal_handler() -> bool:
    """Whether this thread is inside a Python signal handler.

    Python has no call for that. Handlers run on the main thread only, as a call of the function that is installed for
    some signal, whose second argument is the very frame that it interrupted; such a call is looked for on the stack.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = _handler_codes()
    if not handlers:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in handlers and _was_given(frame, frame.f_back):
            return True
        frame = frame.f_back
    return False


def _was_given(frame: FrameType, argument: object) -> bool:
    for value in list(frame.f_locals.values()):
        if value is argument or (isinstance(value, tuple) and any(item is argument for item in value)):
            return True
    return False


def _handler_codes() -> set[CodeType]:
    codes = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not callable(handler) or isinstance(handler, signal.Handlers):
            continue
        function = getattr(handler, "__func__", handler)
        if not hasattr(function, "__code__"):
            function = type(handler).__call__
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            codes.add(code)
    return codes


@contextmanager
def on_stop_signals(call: Callable[[], object]) -> Iterator[None]:
    """While inside, the first SIGTERM or SIGINT makes a bare thread call ``call``.

    The next one does what it did before this. On another thread than the main one no handler can be installed, and
    nothing is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def told_to_stop(number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C, or a second SIGTERM, must be able to end a process whose runs do not heed the first.
        restore()
        start_from_signal(call)

    for number in numbers:
        signal.signal(number, told_to_stop)
    try:
        yield
    finally:
        restore()
