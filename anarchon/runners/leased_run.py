"""One attempt that this instance holds, from its grant to its stored end.

Guarantees:

- The heartbeat goes on until the end is stored, or is known to be lost: a store that is away at that moment must not
  let a backup repeat work that is done. The call is repeated; the job is not.
- The event about the result comes after the result is stored.
- A run whose signal is set before it began, since a stop began or its lease was lost meanwhile, never begins.
- An interrupted run is released, so that a backup takes it over without waiting; a manual one is finished, for nobody
  takes over a run whose caller is gone.
- A holder that lost its lease still tries to finish; where that is refused, what really happened replaces its ``lost``
  record, marked ``lease_lost``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from anarchon.context import current_run
from anarchon.executor import Ended
from anarchon.heartbeat import Heartbeat
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, RunRecord, Verdict
from anarchon.runners.attempts import new_context, new_record
from anarchon.store import Store

if TYPE_CHECKING:
    from anarchon.runners import Parts

__all__ = ["LeasedRun"]


class LeasedRun:
    """Made when an attempt was granted; run on a thread of its own.

    Args:
        counted_from_ms: the instant of the monotonic clock from which the lease is counted.
        released: told when the run was given back. Where no stop has begun, this instance is to watch it again.
    """

    def __init__(
        self,
        job: Job,
        request: ClaimRequest,
        reply: ClaimReply,
        counted_from_ms: int,
        store: Store,
        parts: Parts,
        released: Callable[[], None],
    ) -> None:
        self._job = job
        self.request = request
        self._latest_ms = reply.latest_ms
        self._counted_from_ms = counted_from_ms
        self._store = store
        self._parts = parts
        self._released = released
        self._started_ms = store.clock.now_ms(job.name)
        self.context = new_context(job, request, reply, self._started_ms, parts.sources, request.token)

    def run(self) -> RunRecord:
        """Runs the attempt on this thread; returns its record, as it was stored."""
        here = current_run.set(self.context)
        heartbeat = self._new_heartbeat()
        try:
            ended = self._execute(heartbeat)
            record = self._store_end(ended)
            heartbeat.stop()
            self._parts.teller.result(self.context, ended, record)
            return record
        finally:
            heartbeat.stop()
            self._parts.runs.remove(self.context)
            current_run.reset(here)

    def give_back(self) -> RunRecord:
        """Ends an attempt that never started: a stop began, a handler was left behind, or no thread was to be had."""
        return self._store_end(Ended("interrupted", 0, reason="stop"))

    def _execute(self, heartbeat: Heartbeat) -> Ended:
        try:
            heartbeat.start()
        except RuntimeError as error:
            # No thread to be had that would watch the lease: the handler could not be told that it is over.
            self._parts.teller.error("start", self._job.name, error)
            return Ended("interrupted", 0, error)
        if not heartbeat.trusted():
            self.context._cancel("lease-lost")
        if self.context.reason is not None:
            return Ended("interrupted", 0, reason=self.context.reason)
        return self._parts.executor.execute(
            self._job, self.context, lambda: self._parts.teller.start(self.context, self._latest_ms)
        )

    def _new_heartbeat(self) -> Heartbeat:
        request, parts = self.request, self._parts
        return Heartbeat(
            job=request.job,
            lease_ms=request.lease_ms,
            interval_ms=self._job.options.heartbeat_ms,
            counted_from_ms=self._counted_from_ms,
            renew=lambda: self._store.heartbeat(request.job, request.run_id, request.token, request.lease_ms),
            lost=lambda: self.context._cancel("lease-lost"),
            sources=parts.sources,
            alarms=parts.alarms,
            threads=parts.threads,
        )

    def _store_end(self, ended: Ended) -> RunRecord:
        request = self.request
        record = new_record(self.context, ended, self._started_ms)
        if ended.status == "interrupted" and not request.manual:
            # Ten deploys in a row must not use up a long job's attempts; a lease that was lost counts.
            counts = ended.reason == "lease-lost"
            verdict = self._store.release(request.job, request.run_id, request.token, record, counts)
            if verdict is Verdict.OK:
                self._released()
        else:
            verdict = self._store.finish(request.job, request.run_id, request.token, record)
        if verdict is not Verdict.OK:
            record = replace(record, lease_lost=True)
            self._store.save_result(request.job, record)
        return record
