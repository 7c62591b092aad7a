"""One instance's way to its store: every call is bounded in number, timed, and its failures are told once.

Guarantees:

- At most ``ASKS_IN_FLIGHT`` questions of this instance are on their way at once, and as many more calls of those that
  hold a lease; further ones wait their turn. The two never wait for each other, nor for another store: a thousand
  readers must not keep a holder from its heartbeat.
- Every answer with the store's time is a sample for the store's clock.
- A failing store gives one ``error`` event per operation and outage, not one per repeat, and one line in the log when
  it is back. Repeats carry the same token, so a call whose answer was lost changes nothing when it is sent again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anarchon.backends import ClaimOnlyBackend, LeaseBackend
from anarchon.clock import Clock
from anarchon.errors import BackendError, error_text
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, DoneReason, Outcome, RunRecord, Verdict
from anarchon.sources import Sources
from anarchon.store_clock import StoreClock

__all__ = ["ClaimOnlyStore", "Outages", "Store", "pause_ms"]

_logger = logging.getLogger("anarchon")
_T = TypeVar("_T")

ASKS_IN_FLIGHT = 32

#: What the holder of a lease calls. Their number is bounded by the runs that go on here.
_OF_HOLDERS = ("heartbeat", "finish", "release", "save_result")

#: An operation that has not failed for so long fails anew: the job that failed last need not have asked again since.
#: While a store is away each is tried more often, the store's time every minute.
_SILENT_MS = 120_000

#: How much longer than its slot may begin a grant of a claim-only store is taken. Claims are kept for longer than that.
_SLOW_GRANT_MS = 10 * 60_000

#: What is over with an answer to the first: a run whose end is stored is not renewed again, and a claim's answer tells
#: the time.
_ALSO_OVER = {"finish": "heartbeat", "release": "heartbeat", "save_result": "heartbeat", "claim": "time"}

#: Tells a failure: the operation, the job, what went wrong.
Report = Callable[[str, str, BaseException], None]


class _Calls:
    """The way every call goes, whatever the backend."""

    def __init__(self, sources: Sources, report: Report) -> None:
        self._sources = sources
        self._outages = Outages(report, sources.clock)
        self._asking = threading.BoundedSemaphore(ASKS_IN_FLIGHT)
        self._holding = threading.BoundedSemaphore(ASKS_IN_FLIGHT)

    def _once(self, operation: str, job: str, send: Callable[[], _T]) -> _T:
        """One call, in its turn; its failure is told once and becomes a BackendError."""
        with self._holding if operation in _OF_HOLDERS else self._asking:
            sent_ms = self._sources.clock.monotonic_ms()
            try:
                answer = send()
            except BackendError as error:
                told = error
            except BaseException as error:
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    # Ctrl-C and the like: this call was interrupted, it did not fail.
                    raise
                # A backend that somebody else wrote, or a fault in ours: to the run it is a store that failed.
                told = BackendError(f"{operation} failed in the backend: {error_text(error)}")
                told.__cause__ = error
            else:
                self._outages.worked(operation, job)
                return answer
        self._outages.failed(operation, job, told, sent_ms)
        raise told

    def _repeat(self, operation: str, job: str, send: Callable[[], _T]) -> _T:
        """Until it is answered, with growing pauses; ends with the process, for this is a daemon's work."""
        tries = 0
        while True:
            try:
                return self._once(operation, job, send)
            except BackendError:
                tries += 1
                clock = self._sources.clock
                clock.wait(clock.event(), pause_ms(self._sources, tries))


class Store(_Calls):
    """The calls of one instance to a lease backend. Every method may be called on any thread, and blocks for one call.

    Raises, all but the repeated ones: ``BackendError``, whatever the backend raised.
    """

    def __init__(self, backend: LeaseBackend, sources: Sources, report: Report) -> None:
        super().__init__(sources, report)
        self._backend = backend
        self.clock = StoreClock(sources.clock, self.read_time, backend.clock_of)

    def claim(self, request: ClaimRequest) -> ClaimReply:
        sent_ms = self._sources.clock.exact_monotonic_ms()
        reply = self._once("claim", request.job, lambda: self._backend.claim(request))
        self.clock.observe(request.job, sent_ms, reply.store_time_ms)
        return reply

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        return self._once("heartbeat", job, lambda: self._backend.heartbeat(job, run_id, token, lease_ms))

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        """Repeated until it is answered."""
        return self._repeat("finish", job, lambda: self._backend.finish(job, run_id, token, record))

    def withdraw(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        """As ``finish``, but sent once: for a run that may not even have been granted."""
        return self._once("finish", job, lambda: self._backend.finish(job, run_id, token, record))

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        """Repeated until it is answered."""
        return self._repeat("release", job, lambda: self._backend.release(job, run_id, token, record, counts))

    def save_result(self, job: str, record: RunRecord) -> None:
        """Repeated until it is answered."""
        self._repeat("save_result", job, lambda: self._backend.save_result(job, record))

    def active(self, job: str) -> list[ActiveRun]:
        return self._once("active", job, lambda: self._backend.active(job))

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._once("history", job, lambda: self._backend.history(job, limit))

    def forget(self, job: str) -> None:
        self._once("forget", job, lambda: self._backend.forget(job))

    def advice(self) -> list[str]:
        """What the store says of how it is set up; empty where it does not tell."""
        try:
            return self._backend.advice()
        except Exception:
            # An account that may only do what jobs need is no fault, and a store that is away tells itself elsewhere.
            return []

    def read_time(self, job: str) -> None:
        """Asks the store for its time; ``clock`` keeps it."""
        sent_ms = self._sources.clock.exact_monotonic_ms()
        self.clock.observe(job, sent_ms, self._once("time", job, lambda: self._backend.time(job)))


class ClaimOnlyStore(_Calls):
    """The calls of one instance to a claim-only backend, in the words of a lease store where they have a meaning."""

    def __init__(self, backend: ClaimOnlyBackend, sources: Sources, report: Report) -> None:
        super().__init__(sources, report)
        self._backend = backend
        self.clock = StoreClock(sources.clock)

    def claim(self, request: ClaimRequest) -> ClaimReply:
        """``won``, or ``done``: somebody else has the slot, and there is no telling whether they have finished it.

        ``late``, by this host's clock: nobody else looks at the time. Also where a grant comes long after the slot
        could have begun: this process was paused inside the call, or the call hung, and the store may have dropped the
        claim of another instance since.
        """
        asked_ms = self.clock.now_ms(request.job)
        if asked_ms - request.slot_ms > request.window_ms:
            return ClaimReply(Outcome.LATE, asked_ms)
        send = lambda: self._backend.claim(request.job, request.slot_ms, request.token)  # noqa: E731
        won = self._once("claim", request.job, send)
        now_ms = self.clock.now_ms(request.job)
        if won and now_ms - request.slot_ms > request.window_ms + _SLOW_GRANT_MS:
            return ClaimReply(Outcome.LATE, now_ms)
        if won:
            return ClaimReply(Outcome.WON, now_ms, attempt=1)
        return ClaimReply(Outcome.DONE, now_ms, done=DoneReason.FINISHED)

    def save_result(self, job: str, record: RunRecord, history_limit: int) -> None:
        """Repeated until it is answered."""
        self._repeat("save_result", job, lambda: self._backend.save_result(job, record, history_limit))

    def active(self, job: str) -> list[ActiveRun]:
        """Empty: a store without leases does not know what is running."""
        return []

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._once("history", job, lambda: self._backend.history(job, limit))

    def forget(self, job: str) -> None:
        self._once("forget", job, lambda: self._backend.forget(job))


class Outages:
    """Which operations fail right now, and whether that has been told."""

    def __init__(self, report: Report, clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._going_on: dict[tuple[str, str], _Outage] = {}
        self._over_ms: dict[str, int] = {}

    def failed(self, operation: str, job: str, error: BaseException, sent_ms: int) -> None:
        """A call that was sent at that instant of the monotonic clock has failed."""
        # One job whose data is broken must not silence a store that goes away, so the kind of error is part of it.
        kind = (operation, type(error.__cause__ or error).__name__)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if sent_ms < self._over_ms.get(operation, sent_ms):
                # It was on its way while another was answered: the last of the outage that is over.
                return
            if error.__cause__ is None:
                # What no driver said, such as a turn that did not come, follows from the outage that is known.
                kind = next((known for known in self._going_on if known[0] == operation), kind)
            outage = self._going_on.get(kind)
            known = outage is not None and now_ms - outage.failed_last_ms < _SILENT_MS
            if outage is None or not known:
                outage = self._going_on[kind] = _Outage()
            outage.jobs.add(job)
            outage.failed_last_ms = now_ms
        if not known:
            self._report(operation, job, error)

    def worked(self, operation: str, job: str) -> None:
        if not self._going_on:
            return
        with self._lock:
            over = []
            for kind, outage in list(self._going_on.items()):
                if kind[0] in (operation, _ALSO_OVER.get(operation)) and job in outage.jobs:
                    outage.jobs.discard(job)
                    if not outage.jobs:
                        del self._going_on[kind]
                        self._over_ms[kind[0]] = self._clock.monotonic_ms()
                        over.append(kind)
        for kind in over:
            _logger.warning("The store answers again: %s.", kind[0])


@dataclass
class _Outage:
    """One operation that fails in one way, and the jobs for which it has not worked since."""

    jobs: set[str] = field(default_factory=set)
    failed_last_ms: int = 0


def pause_ms(sources: Sources, tries: int) -> int:
    """How long to wait before a call is repeated: 50 to 100 ms first, then twice as long each time, at most 5 s.

    Jittered, so that a fleet whose store comes back does not ask all at once.
    """
    longest_ms = min(5_000, 100 << min(tries - 1, 10))
    return sources.chance.between(longest_ms // 2, longest_ms)
