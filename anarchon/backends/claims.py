"""The claim table and the other verbs, decided over a ``JobState``: the rules of docs/protocol.rst, once in Python.

Nothing here reads a clock, takes a lock or does I/O. The store calls one verb inside one atomic step, with its own
time, and keeps whatever the verb changed. Line numbers are those of the claim table.
"""

from __future__ import annotations

from collections.abc import Iterable

from anarchon.backends.state import REMEMBER_MS, JobState, Run
from anarchon.durations import from_ms
from anarchon.records import (
    MANUAL_WINDOW_MS,
    ActiveRun,
    ClaimReply,
    ClaimRequest,
    DoneReason,
    Mode,
    Outcome,
    RunRecord,
    Verdict,
    granted,
)

__all__ = ["active", "claim", "finish", "heartbeat", "release", "save_result"]


def claim(job: JobState, request: ClaimRequest, now_ms: int) -> ClaimReply:
    _cut_leases(job, now_ms)
    run = job.runs.get(request.run_id)
    if run is None:
        return _claim_unknown(job, request, now_ms)
    return _claim_unfinished(job, run, request, now_ms)


def heartbeat(job: JobState, run_id: str, token: str, lease_ms: int, now_ms: int) -> Verdict:
    _cut_leases(job, now_ms)
    run = _held(job, run_id, token)
    if run is None and job.ended_by(run_id, token) is not None:
        return Verdict.FINISHED
    if run is None:
        return Verdict.LOST
    if not run.live(now_ms):
        replaced = not run.manual and job.latest_ms is not None and job.latest_ms > run.slot_ms
        if replaced or _in_the_way(job, run, run.overlap, now_ms):
            return Verdict.LOST
    _renew(job, run, lease_ms, now_ms)
    return Verdict.OK


def finish(job: JobState, run_id: str, token: str, record: RunRecord, now_ms: int) -> Verdict:
    if job.ended_by(run_id, token):
        return Verdict.OK
    run = _held(job, run_id, token)
    if run is None:
        return Verdict.LOST
    _close(job, run, token, now_ms)
    _save(job, granted(record, run.attempt, run.fence), run.history_limit)
    return Verdict.OK


def release(job: JobState, run_id: str, token: str, record: RunRecord, counts: bool, now_ms: int) -> Verdict:
    run = _held(job, run_id, token)
    if run is None and job.ended_by(run_id, token) is not None:
        return Verdict.OK
    if run is None:
        return Verdict.LOST
    if run.manual:
        # Nobody takes over a run that a person asked for and whose caller is gone.
        _close(job, run, token, now_ms)
    else:
        run.released = True
        run.counted -= 0 if counts else 1
        _remember(job, run, token, finished=False, now_ms=now_ms)
    _save(job, granted(record, run.attempt, run.fence), run.history_limit)
    return Verdict.OK


def save_result(job: JobState, record: RunRecord) -> None:
    _save(job, record, job.history_limit)


def active(job: str, runs: Iterable[Run], now_ms: int) -> list[ActiveRun]:
    """The unfinished runs as readers see them, newest fence first. Changes nothing."""
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
        for run in sorted(runs, key=lambda run: -run.fence)
    ]


def _claim_unfinished(job: JobState, run: Run, request: ClaimRequest, now_ms: int) -> ClaimReply:
    """Lines 2 to 8: somebody has begun this run."""
    if run.live(now_ms):
        if run.token == request.token:  # 2
            return _won_again(job, run, request, now_ms)
        return ClaimReply(Outcome.RUNNING, now_ms, job.latest_ms, holder=run.holder(now_ms))  # 3
    if not run.manual and job.latest_ms is not None and run.slot_ms < job.latest_ms:  # 4
        _give_up(job, run, now_ms)
        return ClaimReply(Outcome.DONE, now_ms, job.latest_ms, done=DoneReason.SUPERSEDED)
    in_the_way = _in_the_way(job, run, request.overlap, now_ms)
    if request.token == run.token and not run.released:  # 5
        return _overlap(job, in_the_way, now_ms) if in_the_way else _won_again(job, run, request, now_ms)
    if _has_held(job, run, request.token):  # 5
        return ClaimReply(Outcome.NONE, now_ms, job.latest_ms)
    if run.counted >= (1 if run.manual else request.max_attempts):  # 6
        _give_up(job, run, now_ms)
        return ClaimReply(Outcome.DONE, now_ms, job.latest_ms, done=DoneReason.EXHAUSTED)
    if in_the_way:  # 7
        return _overlap(job, in_the_way, now_ms)
    _record_lost(job, run, now_ms)  # 8
    held_before = [*run.held_before] if run.released else [*run.held_before, run.token]
    return _grant(job, request, now_ms, run.attempt + 1, run.counted + 1, held_before)


def _claim_unknown(job: JobState, request: ClaimRequest, now_ms: int) -> ClaimReply:
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
    job: JobState, request: ClaimRequest, now_ms: int, attempt: int, counted: int, held_before: list[str]
) -> ClaimReply:
    _end_leases_over(job, now_ms)
    job.fence = max(job.fence + 1, now_ms)
    job.history_limit = request.history_limit
    job.runs[request.run_id] = Run(
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


def _won_again(job: JobState, run: Run, request: ClaimRequest, now_ms: int) -> ClaimReply:
    _renew(job, run, request.lease_ms, now_ms)
    return ClaimReply(Outcome.WON, now_ms, run.latest_before_ms, run.attempt, run.fence)


def _renew(job: JobState, run: Run, lease_ms: int, now_ms: int) -> None:
    if not run.live(now_ms):
        _end_leases_over(job, now_ms)  # a lease that was over and is renewed comes in the way anew, like a grant
    run.renew(now_ms, lease_ms)


def _end_leases_over(job: JobState, now_ms: int) -> None:
    """For good: a store clock that steps back must not revive a lease that a grant has found over."""
    for run in job.runs.values():
        run.ended = run.ended or not run.live(now_ms)


def _overlap(job: JobState, in_the_way: Run, now_ms: int) -> ClaimReply:
    return ClaimReply(Outcome.OVERLAP, now_ms, job.latest_ms, holder=in_the_way.holder(now_ms))


def _in_the_way(job: JobState, run: Run | None, overlap: str, now_ms: int) -> Run | None:
    """Another run with a live lease, where this claim or that run says ``skip``; of several, the newest fence."""
    others = [
        other
        for other in job.runs.values()
        if other is not run and other.live(now_ms) and "skip" in (overlap, other.overlap)
    ]
    return max(others, key=lambda other: other.fence, default=None)


def _held(job: JobState, run_id: str, token: str) -> Run | None:
    """The unfinished run whose newest attempt this token holds, its lease live or over."""
    run = job.runs.get(run_id)
    return run if run is not None and run.token == token and not run.released else None


def _has_held(job: JobState, run: Run, token: str) -> bool:
    return token == run.token or token in run.held_before or job.ended_by(run.run_id, token) is not None


def _cut_leases(job: JobState, now_ms: int) -> None:
    # A store clock that stepped back would otherwise leave leases that last for as long as the step.
    for run in job.runs.values():
        run.lease_until_ms = min(run.lease_until_ms, now_ms + run.lease_ms)


def _give_up(job: JobState, run: Run, now_ms: int) -> None:
    """Closes a run that nobody will finish."""
    _record_lost(job, run, now_ms)
    _close(job, run, None, now_ms)


def _close(job: JobState, run: Run, token: str | None, now_ms: int) -> None:
    del job.runs[run.run_id]
    _remember(job, run, token, finished=True, now_ms=now_ms)


def _remember(job: JobState, run: Run, token: str | None, finished: bool, now_ms: int) -> None:
    job.remember(run.run_id, token, finished, now_ms + max(REMEMBER_MS, 2 * run.lease_ms), now_ms)


def _record_lost(job: JobState, run: Run, now_ms: int) -> None:
    if run.released or job.has_record(run.run_id, run.attempt):
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


def _save(job: JobState, record: RunRecord, history_limit: int) -> None:
    # Never below the number of unfinished runs: a record that still tells whether an attempt is recorded must stay.
    job.save_record(record, keep=max(history_limit, len(job.runs)))
