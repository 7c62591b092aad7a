"""The parts of one scheduler from a start to its stop, wired.

Guarantees:

- ``fire`` is policy alone and returns at once: the timer has armed the next slot before.
- After ``stop`` began no run begins; a run still going when its time is up keeps its heartbeat while the process lives.
- When ``stop`` returned True, no thread of this engine is left, with two exceptions: a timer that asks a store which
  hangs ends with that call; and where it was called from one of them, its run (or ask) goes on, and is ``over`` a
  little later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from anarchon.alarms import Alarms
from anarchon.clock import SystemClock
from anarchon.executor import AroundRun, Executor
from anarchon.job import Job
from anarchon.records import Event, RunRecord
from anarchon.runners import Parts, Runner
from anarchon.runners.asks import Asks
from anarchon.runners.claim_only import ClaimOnlyRunner
from anarchon.runners.lease import LeaseRunner
from anarchon.runners.local_runs import LeftBehind, LocalRuns
from anarchon.runners.teller import Teller
from anarchon.sources import Sources
from anarchon.store import ClaimOnlyStore, Store
from anarchon.surroundings import check_threads
from anarchon.timers import JobTimers

__all__ = ["Engine"]

_logger = logging.getLogger("anarchon")

AnyStore = Store | ClaimOnlyStore

#: How many slots that came due while nobody looked are reported one by one.
_MISSED_ONE_BY_ONE = 100

#: How long a stop that has ended every run waits for its own threads: a timer may be asking a store that hangs.
_JOIN_MS = 5_000
_LEAST_JOIN_MS = 500

#: How often the end of the interpreter looks whether the runs have ended.
_LOOK_AGAIN_MS = 10

#: How long to wait before a timer that found no thread is started again.
_ARM_AGAIN_MS = 1_000


class Engine:
    """One set of parts. Every method may be called on any thread; ``run_now`` and ``stop`` block."""

    def __init__(
        self,
        store: AnyStore,
        sources: Sources,
        emit: Callable[[Event], None],
        around_run: AroundRun | None,
        instance_id: str,
        left_behind: LeftBehind | None = None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._threads = sources.make_threads(sources.clock)
        self._alarms = Alarms(sources.clock, self._threads)
        self._asks = Asks(sources.clock, self._threads, self._alarms)
        self._runs = LocalRuns(sources.clock, left_behind)
        self._teller = Teller(emit, instance_id)
        executor = Executor(sources.clock, self._threads, around_run, self._runs.left_behind)
        parts = Parts(sources, self._threads, self._alarms, self._asks, executor, self._runs, self._teller, instance_id)
        self._runner: Runner
        if isinstance(store, Store):
            self._runner = LeaseRunner(store, parts)
        else:
            self._runner = ClaimOnlyRunner(store, parts)
        self._timers = JobTimers(sources, self._threads, store.clock, self._asks.soon, self._due, self._timer_failed)
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Job, int]] = {}
        self._advised = False
        self.started = False
        self.stopping = False

    def begin(self) -> None:
        """Takes what must not be lacking later.

        Raises:
            RuntimeError: the process has no thread left to give, or is one in which none would run.
        """
        check_threads()
        self._alarms.keep()
        self.started = True

    def start(self, job: Job) -> None:
        """Recovers the job's unfinished runs, then starts its timer; its first slot is the first one after now."""
        since_ms = self._sources.clock.monotonic_ms()
        with self._lock:
            self._waiting[job.name] = (job, since_ms)
        self._runner.recover(job, since_ms, lambda answered: self._asked(job, answered))

    def fire(self, job: Job, slot_ms: int) -> None:
        """A slot is due: late on this side, or the runner's."""
        if self.stopping:
            return
        late_ms = self._store.clock.now_ms(job.name) - slot_ms
        if late_ms > job.options.max_late_ms:
            self._teller.skip(job.name, slot_ms, "scheduled", "late")
            return
        self._runner.run(job, slot_ms, "scheduled", job.options.max_late_ms)

    def missed(self, job: Job, first_ms: int, newest_ms: int) -> None:
        """Slots came due while nobody looked: a hundred are told one by one, then how many more there were."""
        slot_ms = first_ms
        for _ in range(_MISSED_ONE_BY_ONE):
            self._teller.skip(job.name, slot_ms, "scheduled", "late")
            slot_ms = job.schedule.next_after(slot_ms)
            if slot_ms >= newest_ms:
                return
        count = job.schedule.count(slot_ms - 1, newest_ms - 1)
        self._teller.skip(job.name, slot_ms, "scheduled", "late", count=count)

    def run_now(self, job: Job, wait_ms: int | None, once: str | None = None) -> RunRecord | None:
        """Runs the job here; blocks until its result is stored, or for that time: then None."""
        return self._runner.run_now(job, wait_ms, once)

    def stop(self, timeout_ms: int | None) -> bool:
        """No new runs; those that go on are told to stop and waited for. True if all ended in time. Safe to repeat.

        Called from a handler or a listener it does not wait for that run itself, nor for another that waits like it.
        """
        clock = self._sources.clock
        deadline_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        self._begin_stop()
        with self._asks.excused() as asking, self._runs.excused() as running:
            inside = asking or running
            ended = self._asks.wait_until_idle(timeout_ms, inside)
            left_ms = None if deadline_ms is None else max(0, deadline_ms - clock.monotonic_ms())
            ended = self._runs.wait_until_over(left_ms, inside) and ended
        self._threads.close()
        if self.over():
            self._alarms.close()
            # One of them could wait in vain for another that waits for it: a timer, say, for its answer about the time.
            if not self._threads.owns(threading.current_thread()):
                left_ms = _JOIN_MS if deadline_ms is None else deadline_ms - clock.monotonic_ms()
                self._threads.join(min(max(left_ms, _LEAST_JOIN_MS), _JOIN_MS))
        return ended

    def over(self) -> bool:
        """Whether no run and no ask goes on, the caller's own included. Once it is stopping, it stays so."""
        return self._asks.idle() and self._runs.over()

    def begin_exit(self) -> None:
        """The interpreter ends: no run begins, and those that go on are told to stop."""
        self._begin_stop()

    def end_exit(self, end_ms: int) -> None:
        """Runs whose handlers end until then, on the host's monotonic clock, are stored; other leases run out."""
        # The host's own clock: nobody is left to move another one.
        clock = SystemClock()
        while not self._runs.over() and clock.monotonic_ms() < end_ms:
            clock.wait(clock.event(), _LOOK_AGAIN_MS)

    def _begin_stop(self) -> None:
        self.stopping = True
        self._timers.stop()
        self._asks.close()
        self._runner.close()
        self._alarms.keep_no_longer()
        self._runs.stop()

    def _asked(self, job: Job, answered: bool) -> None:
        """The store has been asked about a job. One that is away holds back no timer by more than that one call."""
        with self._lock:
            names = list(self._waiting) if not answered else [job.name]
            ready = [self._waiting.pop(name) for name in names if name in self._waiting]
            advise, self._advised = answered and not self._advised, self._advised or answered
        if advise:
            self._asks.soon(self._advise)
        for waiting, since_ms in ready:
            self._arm(waiting, since_ms)

    def _advise(self) -> None:
        """Warns once of a store that is set up so that it may lose what decides."""
        if isinstance(self._store, Store):
            for sentence in self._store.advice():
                _logger.warning("%s", sentence)

    def _arm(self, job: Job, since_ms: int, tries: int = 0) -> None:
        ago_ms = self._sources.clock.monotonic_ms() - since_ms
        try:
            self._timers.arm(job, self._store.clock.now_ms(job.name) - ago_ms)
        except RuntimeError as error:
            if tries == 0:
                self._timer_failed(job, error)
            self._asks.after(_ARM_AGAIN_MS, lambda: self._arm(job, since_ms, tries + 1))

    def _due(
        self, job: Job, first_ms: int, newest_ms: int, relieve: Callable[[], None] | None
    ) -> Callable[[], None] | None:
        """Makes what is due an ask: listeners are told of what was missed, and may take their time."""

        def ask() -> None:
            if first_ms < newest_ms:
                self._guarded(job, lambda: self.missed(job, first_ms, newest_ms))
            self._guarded(job, lambda: self.fire(job, newest_ms))

        if relieve is not None:
            return self._asks.here(ask, relieve)
        self._asks.soon(ask)
        return None

    def _guarded(self, job: Job, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self._teller.error("timer", job.name, error)

    def _timer_failed(self, job: Job, error: Exception) -> None:
        self._asks.soon(lambda: self._teller.error("timer", job.name, error))
