"""The plainest lease backend: dictionaries under one lock. Also the model that the others are compared with.

One object is shared by many schedulers of one process. Its clock can be injected; nothing outlives the process.
Line numbers are those of the claim table in docs/protocol.rst.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from anarchon.backends import LeaseBackend
from anarchon.clock import Clock, SystemClock
from anarchon.durations import from_ms
from anarchon.records import (
    MANUAL_WINDOW_MS,
    ActiveRun,
    ClaimReply,
    ClaimRequest,
    DoneReason,
    Holder,
    Mode,
    Outcome,
    RunRecord,
    Verdict,
    granted,
)

__all__ = ["MemoryBackend"]

#: How long a finished run and a token that released one are remembered at least (and for two leases, if that is more).
REMEMBER_MS = 10 * 60_000

#: How many of them are remembered whatever their age.
REMEMBER_NEWEST = 16


@dataclass
class _Run:
    """One unfinished run, as the claim that was granted last left it."""

    run_id: str
    slot_ms: int
    trigger: str
    manual: bool
    attempt: int
    counted: int
    token: str
    fence: int
    instance_id: str
    started_at_ms: int
    lease_until_ms: int
    lease_ms: int
    overlap: str
    history_limit: int
    latest_before_ms: int | None
    released: bool = False
    ended: bool = False
    held_before: list[str] = field(default_factory=list)

    def live(self, now_ms: int) -> bool:
        return not self.released and not self.ended and self.lease_until_ms > now_ms

    def renew(self, now_ms: int, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.lease_until_ms = now_ms + lease_ms
        self.ended = False

    def holder(self, now_ms: int) -> Holder:
        return Holder(self.run_id, self.slot_ms, self.attempt, self.instance_id, self.lease_until_ms - now_ms)


@dataclass
class _Ended:
    """A finished run, or (``token`` alone) a token that released one, kept so that a repeat is recognised."""

    run_id: str
    token: str | None
    finished: bool
    keep_until_ms: int


@dataclass
class _Job:
    name: str
    latest_ms: int | None = None
    fence: int = 0
    history_limit: int = 1
    runs: dict[str, _Run] = field(default_factory=dict)
    ended: list[_Ended] = field(default_factory=list)
    history: dict[tuple[str, int], RunRecord] = field(default_factory=dict)

    def finished(self, run_id: str) -> bool:
        return any(e.finished and e.run_id == run_id for e in self.ended)

    def ended_by(self, run_id: str, token: str) -> _Ended | None:
        return next((e for e in self.ended if e.run_id == run_id and e.token == token), None)


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
            now_ms = self._now()
            job = self._jobs.setdefault(request.job, _Job(request.job))
            _cut_leases(job, now_ms)
            run = job.runs.get(request.run_id)
            if run is None:
                return _claim_unknown(job, request, now_ms)
            return _claim_unfinished(job, run, request, now_ms)

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        with self._lock:
            now_ms = self._now()
            state = self._jobs.get(job, _Job(job))
            _cut_leases(state, now_ms)
            if state.ended_by(run_id, token):
                return Verdict.FINISHED
            run = _held(state, run_id, token)
            if run is None:
                return Verdict.LOST
            if not run.live(now_ms):
                replaced = not run.manual and state.latest_ms is not None and state.latest_ms > run.slot_ms
                if replaced or _in_the_way(state, run, run.overlap, now_ms):
                    return Verdict.LOST
            run.renew(now_ms, lease_ms)
            return Verdict.OK

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        with self._lock:
            state = self._jobs.get(job, _Job(job))
            ended = state.ended_by(run_id, token)
            if ended is not None and ended.finished:
                return Verdict.OK
            run = _held(state, run_id, token)
            if run is None:
                return Verdict.LOST
            _close(state, run, token, self._now())
            _save(state, granted(record, run.attempt, run.fence), run.history_limit)
            return Verdict.OK

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        with self._lock:
            state = self._jobs.get(job, _Job(job))
            ended = state.ended_by(run_id, token)
            if ended is not None:
                return Verdict.OK
            run = _held(state, run_id, token)
            if run is None:
                return Verdict.LOST
            if run.manual:
                # Nobody takes over a run that a person asked for and whose caller is gone.
                _close(state, run, token, self._now())
            else:
                run.released = True
                run.counted -= 0 if counts else 1
                _remember(state, run, token, finished=False, now_ms=self._now())
            _save(state, granted(record, run.attempt, run.fence), run.history_limit)
            return Verdict.OK

    def save_result(self, job: str, record: RunRecord) -> None:
        with self._lock:
            state = self._jobs.setdefault(job, _Job(job))
            _save(state, record, state.history_limit)

    def time(self, job: str) -> int:
        return self._now()

    def active(self, job: str) -> list[ActiveRun]:
        with self._lock:
            now_ms = self._now()
            runs = sorted(self._jobs.get(job, _Job(job)).runs.values(), key=lambda run: -run.fence)
            return [
                ActiveRun(
                    job=job,
                    slot=from_ms(run.slot_ms),
                    run_id=run.run_id,
                    attempt=run.attempt,
                    trigger=run.trigger,
                    instance_id=run.instance_id,
                    fence=run.fence,
                    started_at=from_ms(run.started_at_ms),
                    lease_left=min(run.lease_until_ms - now_ms, run.lease_ms) / 1000 if run.live(now_ms) else 0.0,
                )
                for run in runs
            ]

    def history(self, job: str, limit: int) -> list[RunRecord]:
        with self._lock:
            records = self._jobs.get(job, _Job(job)).history.values()
            return sorted(records, key=lambda record: -record.fence)[:limit]

    def forget(self, job: str) -> None:
        with self._lock:
            self._jobs.pop(job, None)


def _claim_unfinished(job: _Job, run: _Run, request: ClaimRequest, now_ms: int) -> ClaimReply:
    """Lines 2 to 8: somebody has begun this run."""
    if run.live(now_ms):
        if run.token == request.token:  # 2
            return _won_again(run, request, now_ms)
        return ClaimReply(Outcome.RUNNING, now_ms, job.latest_ms, holder=run.holder(now_ms))  # 3
    if not run.manual and job.latest_ms is not None and run.slot_ms < job.latest_ms:  # 4
        _give_up(job, run, now_ms)
        return ClaimReply(Outcome.DONE, now_ms, job.latest_ms, done=DoneReason.SUPERSEDED)
    in_the_way = _in_the_way(job, run, request.overlap, now_ms)
    if request.token == run.token and not run.released:  # 5
        return _overlap(job, in_the_way, now_ms) if in_the_way else _won_again(run, request, now_ms)
    if request.token == run.token or request.token in run.held_before or job.ended_by(run.run_id, request.token):  # 5
        return ClaimReply(Outcome.NONE, now_ms, job.latest_ms)
    if run.counted >= (1 if run.manual else request.max_attempts):  # 6
        _give_up(job, run, now_ms)
        return ClaimReply(Outcome.DONE, now_ms, job.latest_ms, done=DoneReason.EXHAUSTED)
    if in_the_way:  # 7
        return _overlap(job, in_the_way, now_ms)
    _record_lost(job, run, now_ms)  # 8
    held_before = [*run.held_before] if run.released else [*run.held_before, run.token]
    return _grant(job, request, now_ms, run.attempt + 1, run.counted + 1, held_before)


def _claim_unknown(job: _Job, request: ClaimRequest, now_ms: int) -> ClaimReply:
    """Lines 1 and 9 to 14: nobody has begun this run, or it is over."""
    slot_ms, latest_ms = request.slot_ms, job.latest_ms
    if job.finished(request.run_id):  # 1
        return ClaimReply(Outcome.DONE, now_ms, latest_ms, done=DoneReason.FINISHED)
    if not request.manual:
        if slot_ms > now_ms:  # 9
            return ClaimReply(Outcome.NONE, now_ms, latest_ms, wait_ms=slot_ms - now_ms)
        if latest_ms is not None and slot_ms <= latest_ms <= now_ms:  # 10
            return ClaimReply(Outcome.DONE, now_ms, latest_ms, done=DoneReason.PASSED)
    if now_ms - slot_ms > (MANUAL_WINDOW_MS if request.manual else request.window_ms):  # 11
        return ClaimReply(Outcome.LATE, now_ms, latest_ms)
    if not request.manual and request.mode is Mode.TAKEOVER:  # 12
        return ClaimReply(Outcome.NONE, now_ms, latest_ms)
    in_the_way = _in_the_way(job, None, request.overlap, now_ms)
    if in_the_way:  # 13
        return _overlap(job, in_the_way, now_ms)
    for run in list(job.runs.values()):  # 14
        replaced = run.manual or (not request.manual and run.slot_ms < slot_ms)
        if replaced and not run.live(now_ms):
            _give_up(job, run, now_ms)
    reply = _grant(job, request, now_ms, attempt=1, counted=1, held_before=[])
    if not request.manual:
        job.latest_ms = slot_ms if latest_ms is None else max(latest_ms, slot_ms)
    return reply


def _grant(
    job: _Job, request: ClaimRequest, now_ms: int, attempt: int, counted: int, held_before: list[str]
) -> ClaimReply:
    for other in job.runs.values():
        # For good: a store clock that steps back must not revive a lease that a grant has found over.
        other.ended = other.ended or not other.live(now_ms)
    job.fence = max(job.fence + 1, now_ms)
    job.history_limit = request.history_limit
    job.runs[request.run_id] = _Run(
        run_id=request.run_id,
        slot_ms=request.slot_ms,
        trigger=request.trigger,
        manual=request.manual,
        attempt=attempt,
        counted=counted,
        token=request.token,
        fence=job.fence,
        instance_id=request.instance_id,
        started_at_ms=now_ms,
        lease_until_ms=now_ms + request.lease_ms,
        lease_ms=request.lease_ms,
        overlap=request.overlap,
        history_limit=request.history_limit,
        latest_before_ms=job.latest_ms,
        held_before=held_before,
    )
    return ClaimReply(Outcome.WON, now_ms, job.latest_ms, attempt, job.fence)


def _won_again(run: _Run, request: ClaimRequest, now_ms: int) -> ClaimReply:
    run.renew(now_ms, request.lease_ms)
    return ClaimReply(Outcome.WON, now_ms, run.latest_before_ms, run.attempt, run.fence)


def _overlap(job: _Job, in_the_way: _Run, now_ms: int) -> ClaimReply:
    return ClaimReply(Outcome.OVERLAP, now_ms, job.latest_ms, holder=in_the_way.holder(now_ms))


def _in_the_way(job: _Job, run: _Run | None, overlap: str, now_ms: int) -> _Run | None:
    """Another run with a live lease, where this claim or that run says overlap ``skip``; of several, the newest fence."""
    others = [
        other
        for other in job.runs.values()
        if other is not run and other.live(now_ms) and "skip" in (overlap, other.overlap)
    ]
    return max(others, key=lambda other: other.fence, default=None)


def _held(job: _Job, run_id: str, token: str) -> _Run | None:
    """The unfinished run whose newest attempt this token holds, its lease live or over."""
    run = job.runs.get(run_id)
    return run if run is not None and run.token == token and not run.released else None


def _cut_leases(job: _Job, now_ms: int) -> None:
    # A store clock that stepped back would otherwise leave leases that last for as long as the step.
    for run in job.runs.values():
        run.lease_until_ms = min(run.lease_until_ms, now_ms + run.lease_ms)


def _give_up(job: _Job, run: _Run, now_ms: int) -> None:
    """Closes a run that nobody will finish."""
    _record_lost(job, run, now_ms)
    _close(job, run, None, now_ms)


def _close(job: _Job, run: _Run, token: str | None, now_ms: int) -> None:
    del job.runs[run.run_id]
    _remember(job, run, token, finished=True, now_ms=now_ms)


def _remember(job: _Job, run: _Run, token: str | None, finished: bool, now_ms: int) -> None:
    keep_until_ms = now_ms + max(REMEMBER_MS, 2 * run.lease_ms)
    job.ended.append(_Ended(run.run_id, token, finished, keep_until_ms))
    newest = job.ended[-REMEMBER_NEWEST:]
    job.ended = [e for e in job.ended[:-REMEMBER_NEWEST] if e.keep_until_ms > now_ms] + newest


def _record_lost(job: _Job, run: _Run, now_ms: int) -> None:
    if run.released or (run.run_id, run.attempt) in job.history:
        return
    started_at_ms = min(run.started_at_ms, now_ms)
    record = RunRecord(
        job=job.name,
        slot=from_ms(run.slot_ms),
        run_id=run.run_id,
        attempt=run.attempt,
        trigger=run.trigger,
        status="lost",
        instance_id=run.instance_id,
        fence=run.fence,
        started_at=from_ms(started_at_ms),
        finished_at=from_ms(now_ms),
        duration=(now_ms - started_at_ms) / 1000,
    )
    _save(job, record, run.history_limit)


def _save(job: _Job, record: RunRecord, history_limit: int) -> None:
    job.history[record.run_id, record.attempt] = record
    # Never below the number of unfinished runs: a record that still tells whether an attempt is recorded must stay.
    keep = max(history_limit, len(job.runs))
    for key in sorted(job.history, key=lambda key: -job.history[key].fence)[keep:]:
        del job.history[key]
