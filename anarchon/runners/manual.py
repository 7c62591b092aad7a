"""A manual run's caller: it waits while a library thread runs the handler, so that Ctrl-C can interrupt it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from anarchon.clock import Clock
from anarchon.context import RunContext
from anarchon.errors import RunRefused
from anarchon.records import RunRecord
from anarchon.runners import Parts

__all__ = ["run_on_thread"]

#: How long Ctrl-C waits for the handler to heed its signal and for its end to be stored.
_GRACE_MS = 10_000

# A signal that comes just before the main thread begins to wait does not end that wait: it is seen after it.
_PIECE_MS = 1_000


def run_on_thread(
    parts: Parts,
    context: RunContext,
    run: Callable[[], RunRecord],
    unable: Callable[[], object],
    wait_ms: int | None = None,
) -> RunRecord | None:
    """Runs an attempt, already counted among this instance's runs, on a library thread; blocks until it has ended.

    Args:
        unable: ends the attempt where no thread can be had.
        wait_ms: how long to block at the most; None: without limit.

    Returns:
        The record; None where the run goes on after that time.

    Raises:
        RunRefused: no thread could be had.
        KeyboardInterrupt: as it came, after the run was told to stop and had ten seconds to do so.
    """
    clock = parts.sources.clock
    ended = clock.event()
    records: list[RunRecord] = []

    def work() -> None:
        try:
            records.append(run())
        finally:
            ended.set()

    try:
        try:
            parts.threads.start(f"anarchon-run-{context.job}", work)
        except RuntimeError as error:
            unable()
            parts.runs.remove(context)
            raise RunRefused(context.job, why=f"Job {context.job!r} was not run: {error}.") from error
        if not _wait(clock, ended, wait_ms):
            return None
    except RunRefused:
        raise
    except BaseException:
        context._cancel("stop")
        for _ in range(_GRACE_MS // _PIECE_MS):
            if clock.wait(ended, _PIECE_MS):
                break
        raise
    if not records:
        raise RunRefused(context.job, why=f"The run of job {context.job!r} ended without a record: see the log.")
    return records[0]


def _wait(clock: Clock, ended: threading.Event, wait_ms: int | None) -> bool:
    """Waits in pieces for the run to end; False if the time, where there is one, is up before."""
    until_ms = None if wait_ms is None else clock.monotonic_ms() + wait_ms
    while True:
        left_ms = _PIECE_MS if until_ms is None else until_ms - clock.monotonic_ms()
        if clock.wait(ended, min(left_ms, _PIECE_MS)):
            return True
        if left_ms <= 0:
            return False
