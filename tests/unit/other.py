"""Another instance, ``b``, that speaks to the store directly."""

from __future__ import annotations

from typing import Any

from world import World

from anarchon.executor import Ended
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, RunRecord, Verdict
from anarchon.runners.attempts import new_context, new_record, new_request


class Other:
    """What it claims it holds until it says otherwise."""

    def __init__(self, world: World, name: str = "b") -> None:
        self.world = world
        self.name = name

    def ask(self, job: Job, slot_ms: int | None = None, trigger: str = "scheduled", **fields: Any) -> ClaimReply:
        return self.world.store.claim(self._request(job, slot_ms, trigger, **fields))

    def hold(self, job: Job, slot_ms: int | None = None, trigger: str = "scheduled", **fields: Any) -> ClaimRequest:
        """Wins a run, due now where nothing else is said."""
        request = self._request(job, slot_ms, trigger, **fields)
        assert self.world.store.claim(request).outcome is Outcome.WON
        return request

    def take_over(self, job: Job, run_id: str, slot_ms: int) -> ClaimRequest:
        return self.hold(job, slot_ms, "takeover", run_id=run_id, mode=Mode.TAKEOVER)

    def renew(self, run: ClaimRequest) -> None:
        assert self.world.store.heartbeat(run.job, run.run_id, run.token, run.lease_ms) is Verdict.OK

    def finish(self, job: Job, run: ClaimRequest, status: str = "success") -> None:
        record = self._record(job, run, status)
        assert self.world.store.finish(run.job, run.run_id, run.token, record) is Verdict.OK

    def release(self, job: Job, run: ClaimRequest, counts: bool = False) -> None:
        record = self._record(job, run, "interrupted")
        assert self.world.store.release(run.job, run.run_id, run.token, record, counts) is Verdict.OK

    def _request(self, job: Job, slot_ms: int | None, trigger: str, **fields: Any) -> ClaimRequest:
        slot_ms = self.world.now_ms if slot_ms is None else slot_ms
        request = new_request(job, slot_ms, trigger, 60_000, self.name, self.world.sources())
        return ClaimRequest(**{**request.__dict__, **fields})

    def _record(self, job: Job, run: ClaimRequest, status: str) -> RunRecord:
        reply = ClaimReply(Outcome.WON, self.world.now_ms, attempt=1, fence=1)
        context = new_context(job, run, reply, self.world.now_ms, self.world.sources(), run.token)
        return new_record(context, Ended(status, 0), self.world.now_ms)
