"""A job and a context in, how it ended out. Never sees a backend.

Guarantees:

- Whatever a handler raises, ``BaseException`` included, becomes a value; none ends a thread in silence.
- The child of a fork that a handler makes ends where the handler does; it never speaks for its parent.
- With a timeout the handler runs on a thread of its own and races it. If the timeout wins, the signal is set and the
  run has failed, whether or not the handler returns; one that goes on is counted as left behind until it is gone.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from anarchon.clock import Clock
from anarchon.context import RunContext, current_run
from anarchon.durations import format_duration
from anarchon.errors import error_text
from anarchon.job import Job
from anarchon.threads import Threads, end_forked_child

__all__ = ["AroundRun", "Ended", "Executor"]

_logger = logging.getLogger("anarchon")

#: A context manager entered around every handler call, on its thread.
AroundRun = Callable[[RunContext], AbstractContextManager[object]]


@dataclass(frozen=True)
class Ended:
    """How one attempt ended.

    Attributes:
        status: ``success``, ``failed`` or ``interrupted``.
        exception: what was raised, or a TimeoutError; None for a success.
        duration_ms: measured on the monotonic clock.
        reason: for ``interrupted``, why: ``stop`` or ``lease-lost``.
    """

    status: str
    duration_ms: int
    exception: BaseException | None = None
    reason: str | None = None

    @property
    def error(self) -> str | None:
        """The exception as ``"ValueError: ..."``."""
        return None if self.exception is None else error_text(self.exception)


class Executor:
    """Calls handlers.

    Args:
        left_behind: told +1 when a handler goes on after its timeout, and -1 when it is gone.
    """

    def __init__(
        self,
        clock: Clock,
        threads: Threads,
        around_run: AroundRun | None,
        left_behind: Callable[[str, int], None],
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._around_run = around_run
        self._left_behind = left_behind

    def execute(self, job: Job, context: RunContext, begin: Callable[[], None]) -> Ended:
        """Calls the handler on this thread, or on one of its own where it has a timeout; blocks until it has ended.

        Args:
            begin: tells that the run begins, just before it does. It is part of what the timeout ends: a listener that
                hangs must not keep a run, and its job, for ever.
        """
        started_ms = self._clock.monotonic_ms()
        timeout_ms = job.options.timeout_ms
        if timeout_ms is None:
            exception, timed_out = self._call(job, context, begin), False
        else:
            exception, timed_out = self._race(job, context, begin, timeout_ms)
        duration_ms = self._clock.monotonic_ms() - started_ms
        return _classify(context, exception, timed_out, duration_ms)

    def _call(self, job: Job, context: RunContext, begin: Callable[[], None]) -> BaseException | None:
        here = current_run.set(context)
        home = os.getpid()
        try:
            begin()
            # A stop may have come while listeners were told.
            context.raise_if_cancelled()
            if self._around_run is None:
                _handle(job, context, home)
            else:
                with self._around_run(context):
                    _handle(job, context, home)
        except BaseException as error:
            end_forked_child(home, error)
            return error
        finally:
            current_run.reset(here)
        end_forked_child(home)
        return None

    def _race(
        self, job: Job, context: RunContext, begin: Callable[[], None], timeout_ms: int
    ) -> tuple[BaseException | None, bool]:
        race = _Race(self._clock.event())

        def handler() -> None:
            exception = self._call(job, context, begin)
            if not race.end(exception):
                self._left_behind(job.name, -1)

        try:
            self._threads.start(f"anarchon-handler-{job.name}", handler)
        except RuntimeError as error:
            return error, False
        self._clock.wait(race.over, timeout_ms)
        # The count goes up before the race is called lost, so that it is never seen below what is really going on.
        self._left_behind(job.name, +1)
        if race.give_up():
            context._cancel("timeout")
            timeout = format_duration(timeout_ms)
            _logger.warning("Job %r is over its timeout of %s; its handler is told to stop.", job.name, timeout)
            return TimeoutError(f"The run took longer than its timeout of {timeout}."), True
        self._left_behind(job.name, -1)
        return race.exception, False


class _Race:
    """Between a handler and its timeout: exactly one of ``end`` and ``give_up`` is true."""

    def __init__(self, over: threading.Event) -> None:
        self.over = over
        self.exception: BaseException | None = None
        self._lock = threading.Lock()
        self._decided = False

    def end(self, exception: BaseException | None) -> bool:
        with self._lock:
            if self._decided:
                return False
            self._decided = True
            self.exception = exception
        self.over.set()
        return True

    def give_up(self) -> bool:
        with self._lock:
            won, self._decided = not self._decided, True
        return won


def _classify(context: RunContext, exception: BaseException | None, timed_out: bool, duration_ms: int) -> Ended:
    if exception is None:
        # A handler that returns after it was told to stop has done its work.
        return Ended("success", duration_ms)
    reason = context.reason
    if not timed_out and reason in ("stop", "lease-lost"):
        return Ended("interrupted", duration_ms, exception, reason)
    return Ended("failed", duration_ms, exception)


def _handle(job: Job, context: RunContext, home: int) -> None:
    end_forked_child(home)
    try:
        _refuse_awaitable(job.call(context))
    except BaseException as error:
        end_forked_child(home, error)
        raise
    # Before anything of the parent's is left, such as its database connections by ``around_run``.
    end_forked_child(home)


def _refuse_awaitable(result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("The handler returned a coroutine, which nobody awaits: its work has not been done.")
