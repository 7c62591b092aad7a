"""The plainest lease backend: dictionaries under one lock. Also the model that the others are compared with.

One object is shared by many schedulers of one process. Its clock can be injected; nothing outlives the process, and a
child after a fork begins anew.
"""

from __future__ import annotations

import heapq
import threading
import weakref
from collections.abc import Callable

from anarchon.backends import LeaseBackend, claims
from anarchon.backends.state import REMEMBER_NEWEST, JobState
from anarchon.clock import Clock, SystemClock
from anarchon.forks import in_child
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict, decode_record, encode_record

__all__ = ["MemoryBackend"]


class MemoryBackend(LeaseBackend):
    """A lease backend in this process's memory.

    Args:
        clock: where the store's time comes from; None: the host's clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._now: Callable[[], int] = (clock or SystemClock()).now_ms
        self._begin_anew()
        _backends.add(self)

    def __repr__(self) -> str:
        return "<MemoryBackend>"

    def claim(self, request: ClaimRequest) -> ClaimReply:
        with self._lock:
            return claims.claim(self._kept(request.job), request, self._now())

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        with self._lock:
            return claims.heartbeat(self._seen(job), run_id, token, lease_ms, self._now())

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        with self._lock:
            return claims.finish(self._seen(job), run_id, token, record, self._now())

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        with self._lock:
            return claims.release(self._seen(job), run_id, token, record, counts, self._now())

    def save_result(self, job: str, record: RunRecord) -> None:
        with self._lock:
            claims.save_result(self._kept(job), record)

    def time(self, job: str) -> int:
        return self._now()

    def active(self, job: str) -> list[ActiveRun]:
        with self._lock:
            return claims.active(job, self._seen(job).runs.values(), self._now())

    def history(self, job: str, limit: int) -> list[RunRecord]:
        with self._lock:
            return self._seen(job).newest()[:limit]

    def forget(self, job: str) -> None:
        with self._lock:
            self._jobs.pop(job, None)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}

    def _kept(self, job: str) -> _Job:
        """The job's state, begun where there is none yet."""
        return self._jobs.setdefault(job, _Job(job))

    def _seen(self, job: str) -> _Job:
        """The job's state, for the calls that begin nothing."""
        return self._jobs.get(job, _Job(job))


_backends: weakref.WeakSet[MemoryBackend] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    # A child shares nothing with its parent: runs that go on there are no runs here, and a lock may be held for ever.
    for backend in list(_backends):
        backend._begin_anew()


in_child(_begin_anew_after_fork)


class _Job(JobState):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ends = 0
        # A finished run, or a token that released one, so that a repeat is recognised; and in what order to forget.
        self._finished: dict[str, str | None] = {}
        self._releasers: set[tuple[str, str | None]] = set()
        self._forget_after: list[tuple[int, int, str, str | None, bool]] = []
        self._history: dict[tuple[str, int], RunRecord] = {}

    def finished(self, run_id: str) -> bool:
        return run_id in self._finished

    def ended_by(self, run_id: str, token: str) -> bool | None:
        if self._finished.get(run_id) == token:
            return True
        return False if (run_id, token) in self._releasers else None

    def remember(self, run_id: str, token: str | None, finished: bool, keep_until_ms: int, now_ms: int) -> None:
        if finished:
            self._finished[run_id] = token
        else:
            self._releasers.add((run_id, token))
        self._ends += 1
        heapq.heappush(self._forget_after, (keep_until_ms, self._ends, run_id, token, finished))
        newest = []
        while self._forget_after and self._forget_after[0][0] <= now_ms:
            over = heapq.heappop(self._forget_after)
            if over[1] > self._ends - REMEMBER_NEWEST:
                newest.append(over)
            elif over[4]:
                self._finished.pop(over[2], None)
            else:
                self._releasers.discard((over[2], over[3]))
        for kept in newest:
            heapq.heappush(self._forget_after, kept)

    def has_record(self, run_id: str, attempt: int) -> bool:
        return (run_id, attempt) in self._history

    def save_record(self, record: RunRecord, keep: int) -> None:
        # As every other store keeps it: whole milliseconds, and an error's text at most 4 KiB long.
        record = decode_record(encode_record(record)) or record
        self._history[record.run_id, record.attempt] = record
        for record in self.newest()[keep:]:
            del self._history[record.run_id, record.attempt]

    def newest(self) -> list[RunRecord]:
        """The history, newest fence first."""
        return sorted(self._history.values(), key=lambda record: -record.fence)
