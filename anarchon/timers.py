"""One daemon thread a job: it waits for the next slot, and fires it.

Guarantees:

- The next slot comes from the schedule, never from the last run, and is known before this one is fired. ``fire`` must
  return at once, so a long run never delays the schedule.
- A wait is never longer than a minute; after each the clock is read again, so that a clock change or a suspended
  machine is noticed. The clock is the store's, as far as it is known.
- If several slots came due during a wait, the newest is fired and the older ones are told to ``missed``, which never
  walks through them here. If the clock was set back, the slots of the new time are waited for, from the last look on:
  how long ago that was the monotonic clock knows, so none that came due after the step is passed over.
- Nothing that ``fire`` or a schedule raises ends a timer, nor makes it pass over a slot in silence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from anarchon.job import Job
from anarchon.sources import Sources
from anarchon.store_clock import StoreClock
from anarchon.threads import Threads

__all__ = ["JobTimers"]

_LONGEST_WAIT_MS = 60_000
_SET_BACK_MS = 1_000
#: The pause after a schedule has raised; twice as long each time that it does so again, up to the longest wait.
_AFTER_FAULT_MS = 1_000


class _Seen(NamedTuple):
    """One look at the clocks."""

    time_ms: int  # the store's
    monotonic_ms: int


class JobTimers:
    """The timers of one instance. Every method may be called on any thread, and none blocks.

    Args:
        clock: the store's time.
        fire: takes (job, slot) when a slot is due; called on the job's timer thread.
        missed: takes (job, first, newest): the slots from ``first`` up to but not including ``newest`` came due while
            nobody looked.
        failed: takes (job, exception) where a schedule or ``fire`` raised.
    """

    def __init__(
        self,
        sources: Sources,
        threads: Threads,
        clock: StoreClock,
        fire: Callable[[Job, int], None],
        missed: Callable[[Job, int, int], None],
        failed: Callable[[Job, Exception], None],
    ) -> None:
        self._sources = sources
        self._threads = threads
        self._clock = clock
        self._fire = fire
        self._missed = missed
        self._failed = failed
        self._lock = threading.Lock()
        self._armed: set[str] = set()
        self._stopped = sources.clock.event()

    def arm(self, job: Job, since_ms: int) -> None:
        """Starts the job's timer: its first slot is the first one after ``since_ms``. Nothing happens where it runs.

        Raises:
            RuntimeError: the process has no thread left to give; it may be tried again.
        """
        with self._lock:
            if job.name in self._armed or self._stopped.is_set():
                return
            armed = _Seen(since_ms, self._sources.clock.monotonic_ms())
            self._threads.start(f"anarchon-timer-{job.name}", lambda: self._keep_time(job, armed))
            self._armed.add(job.name)

    def stop(self) -> None:
        """Ends every timer; one that is firing ends after that."""
        self._stopped.set()

    def _keep_time(self, job: Job, seen: _Seen) -> None:
        """``since_ms`` is the newest slot that was fired; at first, the instant after which the first one lies."""
        schedule = job.schedule
        since_ms, next_ms = seen.time_ms, None
        pause_ms = _AFTER_FAULT_MS
        while not self._stopped.is_set():
            try:
                due = self._wait_for(job, schedule.next_after(since_ms) if next_ms is None else next_ms, seen)
                if due is None:
                    return
                slot_ms, now = due
                newest_ms = max(slot_ms, schedule.newest_at(now.time_ms))
                # All three or none: whatever raises above leaves the last slot and the last look that go together.
                since_ms, next_ms, seen = newest_ms, schedule.next_after(newest_ms), now
            except Exception as error:
                self._failed(job, error)
                self._sources.clock.wait(self._stopped, pause_ms)
                pause_ms = min(2 * pause_ms, _LONGEST_WAIT_MS)
                # From the last slot on, so that none is passed over.
                next_ms = None
                continue
            pause_ms = _AFTER_FAULT_MS
            if newest_ms > slot_ms:
                self._guarded(job, self._missed, slot_ms, newest_ms)
            self._guarded(job, self._fire, newest_ms)

    def _guarded(self, job: Job, call: Callable[..., None], *slots_ms: int) -> None:
        try:
            call(job, *slots_ms)
        except Exception as error:
            self._failed(job, error)

    def _wait_for(self, job: Job, slot_ms: int, seen: _Seen) -> tuple[int, _Seen] | None:
        """Waits until a slot and its jitter are past: the slot, and what was seen then; None if they were stopped.

        ``seen`` is the last look, which was before the last slot was fired; the clock may have been stepped since. What
        it says without a look tells how long to wait first. Nothing else follows from it: no slot is due, nor is the
        clock taken for set back, before there was a look.
        """
        due_ms = slot_ms + self._jitter_ms(job, slot_ms)
        now_ms = self._clock.now_ms(job.name)
        left_ms = due_ms - now_ms if now_ms >= seen.time_ms - _SET_BACK_MS else 0
        while True:
            if left_ms > 0 and self._sources.clock.wait(self._stopped, min(left_ms, _LONGEST_WAIT_MS)):
                return None
            before, seen = seen, self._look(job)
            if seen.time_ms < before.time_ms - _SET_BACK_MS:
                slot_ms = job.schedule.next_after(seen.time_ms - (seen.monotonic_ms - before.monotonic_ms))
                due_ms = slot_ms + self._jitter_ms(job, slot_ms)
            left_ms = due_ms - seen.time_ms
            if left_ms <= 0:
                return None if self._stopped.is_set() else (slot_ms, seen)

    def _look(self, job: Job) -> _Seen:
        self._clock.look(job.name)
        return _Seen(self._clock.now_ms(job.name), self._sources.clock.monotonic_ms())

    def _jitter_ms(self, job: Job, slot_ms: int) -> int:
        longest_ms = job.options.jitter_ms
        if longest_ms and job.schedule.interval_ms is None:
            # A cron text may have slots that lie closer together than the jitter: none is delayed past the next.
            longest_ms = min(longest_ms, (job.schedule.next_after(slot_ms) - slot_ms) // 2)
        return self._sources.chance.between(0, longest_ms)
