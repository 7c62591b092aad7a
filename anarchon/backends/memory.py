"""The plainest lease backend: dictionaries under one lock. Also the model that the others are compared with.

One object is shared by many schedulers of one process. Its clock can be injected; nothing outlives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from anarchon.backends import LeaseBackend, claims
from anarchon.backends.state import REMEMBER_NEWEST, JobState
from anarchon.clock import Clock, SystemClock
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict, decode_record, encode_record

__all__ = ["MemoryBackend"]


class MemoryBackend(LeaseBackend):
    """A lease backend in this process's memory.

    Args:
        clock: where the store's time comes from; None: the host's clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._now: Callable[[], int] = (clock or SystemClock()).now_ms
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}

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

    def _kept(self, job: str) -> _Job:
        """The job's state, begun where there is none yet."""
        return self._jobs.setdefault(job, _Job(job))

    def _seen(self, job: str) -> _Job:
        """The job's state, for the calls that begin nothing."""
        return self._jobs.get(job, _Job(job))


@dataclass
class _Ended:
    """A finished run, or (``token`` alone) a token that released one, kept so that a repeat is recognised."""

    run_id: str
    token: str | None
    finished: bool
    keep_until_ms: int


class _Job(JobState):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._ended: list[_Ended] = []
        self._history: dict[tuple[str, int], RunRecord] = {}

    def finished(self, run_id: str) -> bool:
        return any(e.finished and e.run_id == run_id for e in self._ended)

    def ended_by(self, run_id: str, token: str) -> bool | None:
        return next((e.finished for e in self._ended if e.run_id == run_id and e.token == token), None)

    def remember(self, run_id: str, token: str | None, finished: bool, keep_until_ms: int, now_ms: int) -> None:
        self._ended.append(_Ended(run_id, token, finished, keep_until_ms))
        newest = self._ended[-REMEMBER_NEWEST:]
        self._ended = [e for e in self._ended[:-REMEMBER_NEWEST] if e.keep_until_ms > now_ms] + newest

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
