"""When each job is due: one thread keeps the time of them all.

Guarantees:

- A slot comes from the schedule, never from the last run, and the next one is known before this one is told. ``due``
  must return at once, so nobody's run delays anybody's schedule; nor does a store that hangs: it is asked elsewhere.
- A slot that is due has no other thread to wait for: the one that kept the time goes on with it, and another takes its
  place (*leader and followers*: Schmidt et al., "Pattern-Oriented Software Architecture", volume 2, 2000).
- A job is looked at at least once a minute. Then the clock is read again, so that a clock change or a suspended machine
  is noticed. The clock is the store's, as far as it is known.
- If several slots came due since the last look, the newest is due, and the older ones are told with it; nobody walks
  through them here. If the clock was set back, the slots of the new time are waited for, from the last look on: how
  long ago that was the monotonic clock knows, so none that came due after the step is passed over.
- Nothing that ``due`` or a schedule raises ends the thread, nor makes a job pass over a slot in silence.

A thread a job would be simpler still; but where a thousand are due at one instant as many threads wake up, and each
wants Python's one lock: most of the second goes into handing it around.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
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


class _Timer:
    """One job's.

    Attributes:
        since_ms: the newest slot that was due; at first, the instant after which the first one lies.
        slot_ms: the next slot; None: the schedule must be asked. due_ms: with its jitter.
        following_ms: the slot after that and when it is due; None: not calculated yet.
        seen: the last look, which was before the last slot was told. No slot is due before there was one.
        look_ms: when the next look comes, on the monotonic clock.
    """

    def __init__(self, job: Job, seen: _Seen) -> None:
        self.job = job
        self.seen = seen
        self.since_ms = seen.time_ms
        self.slot_ms: int | None = None
        self.due_ms = 0
        self.following_ms: tuple[int, int] | None = None
        self.look_ms: float = seen.monotonic_ms
        self.pause_ms = _AFTER_FAULT_MS


class JobTimers:
    """The timers of one instance. Every method may be called on any thread, and none blocks.

    Args:
        clock: the store's time.
        elsewhere: runs a function that may block on another thread, soon.
        due: takes (job, first, newest, relieve) when a slot is due, the newest; those from ``first`` up to it came due
            while nobody looked. Called on the timers' thread, it may start another in its place by ``relieve``, which
            raises RuntimeError where none can be had, and gives what this one then goes on with. Called elsewhere,
            relieve is None, and so is what it gives.
        failed: takes (job, exception) where a schedule or ``due`` raised; called likewise.
    """

    def __init__(
        self,
        sources: Sources,
        threads: Threads,
        clock: StoreClock,
        elsewhere: Callable[[Callable[[], None]], None],
        due: Callable[[Job, int, int, Callable[[], None] | None], Callable[[], None] | None],
        failed: Callable[[Job, Exception], None],
    ) -> None:
        self._clock = sources.clock
        self._chance = sources.chance
        self._threads = threads
        self._store_clock = clock
        self._elsewhere = elsewhere
        self._due = due
        self._failed = failed
        self._lock = threading.Lock()
        self._woken = self._clock.event()
        self._armed: set[str] = set()
        self._heap: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        #: Those that wait until the store has been asked what time it is.
        self._unsure: list[_Timer] = []
        self._begun = False
        self._stopped = False

    def arm(self, job: Job, since_ms: int) -> None:
        """Starts the job's timer: its first slot is the first one after ``since_ms``. Nothing happens where it runs.

        Raises:
            RuntimeError: the process has no thread left to give; it may be tried again.
        """
        with self._lock:
            if job.name in self._armed or self._stopped:
                return
            if not self._begun:
                self._begin()
                self._begun = True
            self._armed.add(job.name)
        self._set(_Timer(job, _Seen(since_ms, self._clock.monotonic_ms())))

    def stop(self) -> None:
        """Ends every timer; what is being told is told."""
        self._stopped = True
        self._woken.set()

    def _set(self, timer: _Timer) -> None:
        """Has it looked at in its time."""
        with self._lock:
            heapq.heappush(self._heap, (timer.look_ms, next(self._order), timer))
            first = self._heap[0][2] is timer
        if first:
            self._woken.set()

    def _begin(self) -> None:
        self._threads.start("anarchon-timers", self._keep_time)

    def _keep_time(self) -> None:
        going_on = None
        while going_on is None:
            # Before it looks: whatever comes after this wakes it again.
            self._woken.clear()
            if self._stopped:
                return
            timer, left_ms = self._take()
            if timer is not None and left_ms == 0:
                going_on = self._look(timer)
            elif timer is None or not self._foresee(timer):
                self._clock.wait(self._woken, left_ms)
        self._threads.go_on("anarchon-ask", going_on)

    def _take(self) -> tuple[_Timer | None, float | None]:
        """The next timer, and how long it is until it is to be looked at; 0: now, and it is taken out. None: none."""
        with self._lock:
            if not self._heap:
                return None, None
            look_ms, _, timer = self._heap[0]
            left_ms = look_ms - self._clock.exact_monotonic_ms()
            if left_ms > 0:
                return timer, left_ms
            heapq.heappop(self._heap)
            return timer, 0

    def _foresee(self, timer: _Timer) -> bool:
        """What follows the next slot, calculated while there is time; whether it took some.

        A schedule that raises is asked again in its time, and told of then.
        """
        if timer.slot_ms is None or timer.following_ms is not None:
            return False
        with contextlib.suppress(Exception):
            timer.following_ms = self._next_after(timer.job, timer.slot_ms)
        return timer.following_ms is not None

    def _look(self, timer: _Timer) -> Callable[[], None] | None:
        """Looks at one timer, at its time; first the store must have been asked what time it is, if it can be.

        What this thread goes on with, while another keeps the time; None: it keeps it.
        """
        with contextlib.suppress(Exception):  # it comes again inside, and is told of
            if not self._store_clock.is_fresh(timer.job.name):
                self._ask_first(timer)
                return None
        return self._step(timer, self._begin)

    def _ask_first(self, timer: _Timer) -> None:
        with self._lock:
            self._unsure.append(timer)
            alone = len(self._unsure) == 1
        if alone:
            self._elsewhere(self._refresh)

    def _refresh(self) -> None:
        """Asks each clock once, however many timers wait for it, and goes on whether it answers or not."""
        with self._lock:
            unsure, self._unsure = self._unsure, []
        asked = set()
        for timer in unsure:
            with contextlib.suppress(Exception):  # likewise
                clock = self._store_clock.clock_of(timer.job.name)
                if clock not in asked:
                    asked.add(clock)
                    self._store_clock.look(timer.job.name)
            self._step(timer, None)

    def _step(self, timer: _Timer, relieve: Callable[[], None] | None) -> Callable[[], None] | None:
        first_ms = None
        try:
            first_ms = self._advance(timer)
            timer.pause_ms = _AFTER_FAULT_MS
        except Exception as error:
            # Later from the last slot on, so that none is passed over.
            timer.slot_ms = None
            timer.look_ms = self._clock.monotonic_ms() + timer.pause_ms
            timer.pause_ms = min(2 * timer.pause_ms, _LONGEST_WAIT_MS)
            self._tell_of(timer.job, error)
        newest_ms = timer.since_ms
        self._set(timer)
        if first_ms is None or self._stopped:
            return None
        try:
            return self._due(timer.job, first_ms, newest_ms, relieve)
        except Exception as error:
            self._tell_of(timer.job, error)
            return None

    def _advance(self, timer: _Timer) -> int | None:
        """Reads the clocks, and what follows. The first of the slots that have come due; None: none has.

        All of it or nothing: whatever raises leaves the last slot and the last look that go together.
        """
        job, schedule = timer.job, timer.job.schedule
        now = _Seen(self._store_clock.now_ms(job.name), self._clock.monotonic_ms())
        since_ms, slot_ms, due_ms, following_ms = timer.since_ms, timer.slot_ms, timer.due_ms, timer.following_ms
        if now.time_ms < timer.seen.time_ms - _SET_BACK_MS:
            since_ms, slot_ms = now.time_ms - (now.monotonic_ms - timer.seen.monotonic_ms), None
        if slot_ms is None:
            slot_ms, due_ms = self._next_after(job, since_ms)
            following_ms = None
        if self._store_clock.until_ms(job.name, due_ms) > 0:
            self._wait_for(timer, now, slot_ms, due_ms, following_ms)
            return None
        newest_ms = slot_ms
        if following_ms is None or following_ms[0] <= now.time_ms:
            newest_ms = max(slot_ms, schedule.newest_at(now.time_ms))
            following_ms = self._next_after(job, newest_ms)
        self._wait_for(timer, now, *following_ms, None)
        timer.since_ms = newest_ms
        return slot_ms

    def _wait_for(
        self, timer: _Timer, now: _Seen, slot_ms: int, due_ms: int, following_ms: tuple[int, int] | None
    ) -> None:
        left_ms = self._store_clock.until_ms(timer.job.name, due_ms)
        timer.seen, timer.slot_ms, timer.due_ms, timer.following_ms = now, slot_ms, due_ms, following_ms
        # To the fraction of a millisecond, which half of all slots would be late by.
        timer.look_ms = self._clock.exact_monotonic_ms() + min(left_ms, _LONGEST_WAIT_MS)

    def _next_after(self, job: Job, slot_ms: int) -> tuple[int, int]:
        """The slot after this one, and when it is due."""
        next_ms = job.schedule.next_after(slot_ms)
        return next_ms, next_ms + self._jitter_ms(job, next_ms)

    def _tell_of(self, job: Job, error: Exception) -> None:
        # Where even that is lost, there is nobody left to tell.
        with contextlib.suppress(Exception):
            self._failed(job, error)

    def _jitter_ms(self, job: Job, slot_ms: int) -> int:
        longest_ms = job.options.jitter_ms
        if longest_ms and job.schedule.interval_ms is None:
            # A cron text may have slots that lie closer together than the jitter: none is delayed past the next.
            longest_ms = min(longest_ms, (job.schedule.next_after(slot_ms) - slot_ms) // 2)
        return self._chance.between(0, longest_ms)
