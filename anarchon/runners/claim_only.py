"""Runs on a store that can only say who came first: claim, execute, save the result. No heartbeats, backups, recovery.

A slot is run at most once. If its process dies, the slot is lost, and its history has no record of it.
"""

from __future__ import annotations

from collections.abc import Callable

from anarchon.context import RunContext, current_run
from anarchon.errors import RunRefused
from anarchon.executor import Ended
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Outcome, RunRecord
from anarchon.runners import Parts
from anarchon.runners.attempts import new_context, new_record, new_request
from anarchon.runners.first_claims import Claim, FirstClaims
from anarchon.runners.local_runs import stopping
from anarchon.runners.manual import run_on_thread
from anarchon.store import ClaimOnlyStore

__all__ = ["ClaimOnlyRunner"]


class ClaimOnlyRunner:
    """The runner of a claim-only backend; see ``Runner`` for what each method promises.

    Overlap ``skip`` holds within this instance; without leases nobody knows what the others are doing. A slot that was
    claimed cannot be given back: where it is not run after all, a ``skip`` says so, or its ``interrupted`` record.
    """

    def __init__(self, store: ClaimOnlyStore, parts: Parts) -> None:
        self._store = store
        self._parts = parts
        self._first_claims = FirstClaims(
            store.claim,
            store.clock.now_ms,
            parts.sources,
            parts.asks,
            self._blocked,
            parts.teller,
            self._answered,
            unsure=lambda claim: None,
        )

    def run(self, job: Job, slot_ms: int, trigger: str, window_ms: int) -> None:
        parts = self._parts
        request = new_request(job, slot_ms, trigger, window_ms, parts.instance_id, parts.sources)
        self._first_claims.ask(Claim(job, request))

    def run_now(self, job: Job, wait_ms: int | None = None, once: str | None = None) -> RunRecord | None:
        slot_ms = self._store.clock.now_ms(job.name)
        # Nobody else can know of a manual run, so there is nothing to claim, nor is ``once`` of use.
        request = new_request(job, slot_ms, "manual", 0, self._parts.instance_id, self._parts.sources)
        context = self._context(job, request, ClaimReply(Outcome.WON, slot_ms, attempt=1))
        runs, instance_id = self._parts.runs, self._parts.instance_id
        if runs.blocked(job):
            raise stopping(job.name) if runs.stopping else runs.refusal(job, instance_id)
        if not self._begin(job, context):
            raise stopping(job.name) if runs.stopping else RunRefused(job.name, instance_id)
        return run_on_thread(self._parts, context, lambda: self._execute(job, context), lambda: None, wait_ms)

    def recover(self, job: Job, since_ms: int, asked: Callable[[bool], None]) -> None:
        window_ms = job.options.catch_up_ms
        now_ms = self._store.clock.now_ms(job.name)
        try:
            newest_ms = job.schedule.newest_at(now_ms - (self._parts.sources.clock.monotonic_ms() - since_ms))
            if window_ms is not None and now_ms - newest_ms < window_ms:
                jitter_ms = self._parts.sources.chance.between(0, job.options.jitter_ms)
                self._parts.asks.after(jitter_ms, lambda: self.run(job, newest_ms, "catch-up", window_ms))
        except Exception as error:
            # A schedule that fails here may work for the timer.
            self._parts.teller.error("recover", job.name, error)
        asked(True)

    def close(self) -> None:
        """Nothing is watched here."""

    def _answered(self, claim: Claim, reply: ClaimReply) -> None:
        job, request = claim.job, claim.request
        if reply.outcome is not Outcome.WON:
            reason = "late" if reply.outcome is Outcome.LATE else "taken"
            self._parts.teller.skip(job.name, request.slot_ms, request.trigger, reason)
            return
        context = self._context(job, request, reply)
        if not self._begin(job, context):
            if self._parts.runs.stopping:
                self._store_end(job, context, Ended("interrupted", 0, reason="stop"))
            else:
                self._parts.teller.skip(job.name, request.slot_ms, request.trigger, "overlap", request.instance_id)
            return
        self._parts.asks.then(f"anarchon-run-{job.name}", lambda: self._execute(job, context))

    def _blocked(self, job: Job) -> bool:
        runs = self._parts.runs
        return runs.blocked(job) or (job.options.overlap == "skip" and runs.running(job.name))

    def _begin(self, job: Job, context: RunContext) -> bool:
        """False where it must not begin: also where a handler was left behind since the slot was asked for."""
        runs = self._parts.runs
        if not runs.add(context, alone=job.options.overlap == "skip"):
            return False
        # Only now: until it was added, a run that went on could end and leave its handler behind.
        if runs.blocked(job):
            runs.remove(context)
            return False
        return True

    def _execute(self, job: Job, context: RunContext) -> RunRecord:
        here = current_run.set(context)
        started_ms = self._store.clock.now_ms(job.name)
        try:
            if context.reason is None:
                ended = self._parts.executor.execute(job, context, lambda: self._parts.teller.start(context))
            else:
                ended = Ended("interrupted", 0, reason=context.reason)
            return self._store_end(job, context, ended, started_ms)
        finally:
            self._parts.runs.remove(context)
            current_run.reset(here)

    def _store_end(self, job: Job, context: RunContext, ended: Ended, started_ms: int | None = None) -> RunRecord:
        record = new_record(context, ended, self._store.clock.now_ms(job.name) if started_ms is None else started_ms)
        self._store.save_result(job.name, record, job.options.history_limit)
        self._parts.teller.result(context, ended, record)
        return record

    def _context(self, job: Job, request: ClaimRequest, reply: ClaimReply) -> RunContext:
        started_ms = self._store.clock.now_ms(job.name)
        return new_context(job, request, reply, started_ms, self._parts.sources, token=None)
