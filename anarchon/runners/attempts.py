"""Makes the three values of an attempt: the claim that asks for it, the context that its handler gets, its record."""

from __future__ import annotations

from anarchon.context import RunContext
from anarchon.durations import from_ms
from anarchon.executor import Ended
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Mode, RunRecord, shorten_error
from anarchon.sources import Sources

__all__ = ["manual_run_id", "new_context", "new_record", "new_request"]


def manual_run_id(token: str) -> str:
    """The name of the manual run that is asked for with this token: it has letters, and so never equals a slot."""
    return f"manual-{token}"


def new_request(
    job: Job, slot_ms: int, trigger: str, window_ms: int, instance_id: str, sources: Sources, run_id: str | None = None
) -> ClaimRequest:
    """A claim with a fresh token. Without ``run_id`` it names a new run: its slot, or for a manual one a fresh name."""
    if run_id is None:
        run_id = manual_run_id(sources.chance.token()) if trigger == "manual" else str(slot_ms)
    return ClaimRequest(
        job=job.name,
        slot_ms=slot_ms,
        run_id=run_id,
        token=sources.chance.token(),
        instance_id=instance_id,
        lease_ms=job.options.lease_ms,
        overlap=job.options.overlap,
        max_attempts=job.options.max_attempts,
        window_ms=window_ms,
        mode=Mode.START,
        trigger=trigger,
        history_limit=job.options.history_limit,
    )


def new_context(
    job: Job, request: ClaimRequest, reply: ClaimReply, started_ms: int, sources: Sources, token: str | None
) -> RunContext:
    """The context of the attempt that was granted."""
    timeout_ms = job.options.timeout_ms
    return RunContext(
        job=job.name,
        slot_ms=request.slot_ms,
        run_id=request.run_id,
        attempt=reply.attempt or 1,
        trigger=request.trigger,
        token=token,
        fence=reply.fence,
        instance_id=request.instance_id,
        deadline_ms=None if timeout_ms is None else started_ms + timeout_ms,
        signal=sources.clock.event(),
    )


def new_record(context: RunContext, ended: Ended, started_ms: int) -> RunRecord:
    """The record of an attempt that has ended."""
    return RunRecord(
        job=context.job,
        slot=context.slot,
        run_id=context.run_id,
        attempt=context.attempt,
        trigger=context.trigger,
        status=ended.status,
        instance_id=context.instance_id,
        fence=context.fence or 0,
        started_at=from_ms(started_ms),
        finished_at=from_ms(started_ms + ended.duration_ms),
        duration=ended.duration_ms / 1000,
        error=None if ended.error is None else shorten_error(ended.error),
    )
