"""One instance of a fleet, whose jobs are each due once a minute, spread over it: ``fleet.py PLAN``.

It writes a line when every job has been recovered, and for each line that it reads what it has done since the last.
When there is no more to read, it stops.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

# The folder of this file has one of the package's name, and stands first on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from phased import Phased

from anarchon import RedisBackend, RunContext, Scheduler
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, Mode, Outcome, RunRecord, Verdict

MINUTE_MS = 60_000


class CountingBackend(RedisBackend):
    """Writes down what each call was, as soon as it was answered."""

    def __init__(self, url: str) -> None:
        super().__init__(url, prefix="fleet:")
        self.calls: list[str] = []

    def claim(self, request: ClaimRequest) -> ClaimReply:
        reply = super().claim(request)
        if request.mode is Mode.TAKEOVER:
            self.calls.append("check")
        else:
            self.calls.append("win" if reply.outcome is Outcome.WON else "lose")
        return reply

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        verdict = super().heartbeat(job, run_id, token, lease_ms)
        self.calls.append("heartbeat")
        return verdict

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        verdict = super().finish(job, run_id, token, record)
        self.calls.append("finish")
        return verdict

    def active(self, job: str) -> list[ActiveRun]:
        runs = super().active(job)
        self.calls.append("active")
        return runs


def main() -> None:
    plan: dict[str, Any] = json.loads(sys.argv[1])
    backend = CountingBackend(plan["url"])
    late_ms: list[float] = []

    def handler(ctx: RunContext) -> None:
        late_ms.append((time.time() - ctx.slot.timestamp()) * 1000)
        time.sleep(plan["lasts"])

    scheduler = Scheduler(backend, jitter=plan["jitter"])
    for job in range(plan["jobs"]):
        schedule = Phased("1m", MINUTE_MS, phase_ms=job * MINUTE_MS // plan["jobs"])
        scheduler._register_or_decorate(f"job-{job}", schedule, handler, {})
    with scheduler:
        while backend.calls.count("active") < plan["jobs"]:
            time.sleep(0.2)
        print(flush=True)
        used_s = cpu_s()
        for _ in sys.stdin:
            now_s = cpu_s()
            told = {"calls": Counter(taken(backend.calls)), "late_ms": taken(late_ms), "cpu_s": now_s - used_s}
            print(json.dumps(told), flush=True)
            used_s = now_s


def taken(values: list[Any]) -> list[Any]:
    """What stands in the list now, removed from it; other threads append meanwhile."""
    known = values[:]
    del values[: len(known)]
    return known


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


main()
