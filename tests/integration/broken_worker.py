"""A worker (``worker.py``) whose store is broken, for each job as its name says; ``sound`` is a job like any other."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import worker

from anarchon import LeaseBackend, RunRecord, open_backend
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, Verdict

_TAKEN = (Outcome.RUNNING, Outcome.DONE, Outcome.OVERLAP)


def broken(url: str, prefix: str | None) -> LeaseBackend:
    backend = open_backend(url, prefix=prefix)
    sound_claim, sound_heartbeat, sound_finish = backend.claim, backend.heartbeat, backend.finish

    def claim(request: ClaimRequest) -> ClaimReply:
        if request.job == "passed-over" and request.slot_ms % 2000:
            return ClaimReply(Outcome.LATE, backend.time(request.job))
        reply = sound_claim(request)
        if request.job == "granted-to-all" and request.mode is Mode.START and reply.outcome in _TAKEN:
            return replace(reply, outcome=Outcome.WON, attempt=1, fence=reply.store_time_ms)
        if request.job == "not-fenced" and reply.outcome is Outcome.WON:
            return replace(reply, fence=1)
        return reply

    def heartbeat(job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        return Verdict.OK if job == "not-renewed" else sound_heartbeat(job, run_id, token, lease_ms)

    def finish(job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        if job == "forgotten":
            backend.forget(job)
        return Verdict.OK if job in ("forgotten", "not-stored") else sound_finish(job, run_id, token, record)

    backend.claim, backend.heartbeat, backend.finish = claim, heartbeat, finish  # type: ignore[method-assign]
    return backend


if __name__ == "__main__":
    worker.open_backend = broken
    worker.Worker(json.loads(sys.argv[1])).work()
