"""A second store, written from ``docs/protocol.rst`` alone and from no other store's code.

It is as slow and as plain as it can be: where a backend keeps indexes, this keeps lists; where a backend
shares conditions between lines, this asks the whole question of each line. Walks compare it with every backend, so that
a rule misread once is found by somebody who read it another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anarchon.durations import from_ms
from anarchon.records import (
    ActiveRun,
    ClaimReply,
    ClaimRequest,
    DoneReason,
    Holder,
    Mode,
    Outcome,
    RunRecord,
    Verdict,
    decode_record,
    encode_record,
)

REMEMBERED_MS = 10 * 60_000
REMEMBERED_NEWEST = 16
MANUAL_WINDOW_MS = 5 * 60_000


@dataclass
class Run:
    """One unfinished run, and the attempt that holds it or held it last."""

    run_id: str
    slot_ms: int
    manual: bool
    attempt: int
    counted: int
    token: str
    fence: int
    instance_id: str
    trigger: str
    started_ms: int
    until_ms: int
    lease_ms: int
    overlap: str
    history_limit: int
    latest_before_ms: int | None
    released: bool = False
    found_over: bool = False
    tokens: list[str] = field(default_factory=list)


@dataclass
class End:
    """What is remembered for a while of a run that is over, or of a token that released one."""

    run_id: str
    token: str | None
    how: str
    at_ms: int
    lease_ms: int
    may_be_forgotten: bool = False


@dataclass
class Job:
    latest_ms: int | None = None
    fence: int = 0
    limit: int = 1  # the page is silent on a job without a grant; its newest result is kept
    runs: list[Run] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)


class Model:
    """The store of the protocol's page, to the letter; ``now_ms`` is its clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._jobs: dict[str, Job] = {}
        self.lines: Counter[int] = Counter()  # how often each line of the claim table has answered

    # -- the calls

    def claim(self, ask: ClaimRequest) -> ClaimReply:
        now = self._now_ms()
        job = self._jobs.setdefault(ask.job, Job())
        self._cut_leases(job, now)
        self._age_ends(job, now)

        def answer(line: int, outcome: Outcome, **facts: object) -> ClaimReply:
            self.lines[line] += 1
            facts.setdefault("latest_ms", job.latest_ms)
            return ClaimReply(outcome, now, **facts)  # type: ignore[arg-type]

        def repeated(line: int, run: Run) -> ClaimReply:
            if not live(run, now):
                self._end_leases_over(job, now)
            run.until_ms, run.lease_ms, run.found_over = now + ask.lease_ms, ask.lease_ms, False
            return answer(line, Outcome.WON, latest_ms=run.latest_before_ms, attempt=run.attempt, fence=run.fence)

        def granted(line: int, run: Run) -> ClaimReply:
            self._end_leases_over(job, now)
            return answer(line, Outcome.WON, latest_ms=run.latest_before_ms, attempt=run.attempt, fence=run.fence)

        run = find(job, ask.run_id)
        in_the_way = [
            other
            for other in job.runs
            if other.run_id != ask.run_id and live(other, now) and "skip" in (ask.overlap, other.overlap)
        ]
        first_in_the_way = max(in_the_way, key=lambda other: other.fence, default=None)

        if any(end.run_id == ask.run_id and end.how != "released" for end in job.ends):
            return answer(1, Outcome.DONE, done=DoneReason.FINISHED)
        if run is not None and live(run, now) and run.token == ask.token:
            return repeated(2, run)
        if run is not None and live(run, now):
            return answer(3, Outcome.RUNNING, holder=holder(run, now))
        if run is not None and not run.manual and job.latest_ms is not None and run.slot_ms < job.latest_ms:
            self._close(job, run, now)
            return answer(4, Outcome.DONE, done=DoneReason.SUPERSEDED)
        if run is not None and ask.token in run.tokens:
            if run.token != ask.token or run.released:
                return answer(5, Outcome.NONE)
            if first_in_the_way is not None:
                return answer(5, Outcome.OVERLAP, holder=holder(first_in_the_way, now))
            return repeated(5, run)
        if run is not None and run.counted >= (1 if run.manual else ask.max_attempts):
            self._close(job, run, now)
            return answer(6, Outcome.DONE, done=DoneReason.EXHAUSTED)
        if run is not None and first_in_the_way is not None:
            return answer(7, Outcome.OVERLAP, holder=holder(first_in_the_way, now))
        if run is not None:
            if not run.released:
                self._record_lost(job, run, now)
            job.fence = max(job.fence + 1, now)
            job.limit = ask.history_limit
            run.attempt += 1
            run.counted += 1
            run.tokens.append(ask.token)
            run.token, run.fence, run.instance_id, run.trigger = ask.token, job.fence, ask.instance_id, ask.trigger
            run.started_ms, run.until_ms, run.lease_ms = now, now + ask.lease_ms, ask.lease_ms
            run.overlap, run.history_limit, run.latest_before_ms = ask.overlap, ask.history_limit, job.latest_ms
            run.released = run.found_over = False
            return granted(8, run)

        if not ask.manual and ask.slot_ms > now:
            return answer(9, Outcome.NONE, wait_ms=ask.slot_ms - now)
        if not ask.manual and job.latest_ms is not None and ask.slot_ms <= job.latest_ms <= now:
            return answer(10, Outcome.DONE, done=DoneReason.PASSED)
        if now - ask.slot_ms > (MANUAL_WINDOW_MS if ask.manual else ask.window_ms):
            return answer(11, Outcome.LATE)
        if not ask.manual and ask.mode is Mode.TAKEOVER:
            return answer(12, Outcome.NONE)
        if first_in_the_way is not None:
            return answer(13, Outcome.OVERLAP, holder=holder(first_in_the_way, now))

        for other in list(job.runs):
            replaced = other.manual or (not ask.manual and other.slot_ms < ask.slot_ms)
            if not live(other, now) and replaced:
                self._close(job, other, now)
        job.fence = max(job.fence + 1, now)
        job.limit = ask.history_limit
        run = Run(
            run_id=ask.run_id,
            slot_ms=ask.slot_ms,
            manual=ask.manual,
            attempt=1,
            counted=1,
            token=ask.token,
            fence=job.fence,
            instance_id=ask.instance_id,
            trigger=ask.trigger,
            started_ms=now,
            until_ms=now + ask.lease_ms,
            lease_ms=ask.lease_ms,
            overlap=ask.overlap,
            history_limit=ask.history_limit,
            latest_before_ms=job.latest_ms,
            tokens=[ask.token],
        )
        job.runs.append(run)
        if not ask.manual:
            job.latest_ms = ask.slot_ms if job.latest_ms is None else max(job.latest_ms, ask.slot_ms)
        return granted(14, run)

    def heartbeat(self, job_name: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        now = self._now_ms()
        job = self._jobs.get(job_name)
        if job is None:
            return Verdict.LOST
        self._cut_leases(job, now)
        self._age_ends(job, now)
        if any(end.run_id == run_id and end.token == token for end in job.ends):
            return Verdict.FINISHED
        run = find(job, run_id)
        if run is None or run.token != token:
            return Verdict.LOST
        if run.released:
            return Verdict.FINISHED
        if not live(run, now):
            newer_granted = not run.manual and job.latest_ms is not None and run.slot_ms < job.latest_ms
            others = [other for other in job.runs if other is not run and live(other, now)]
            if newer_granted or any("skip" in (run.overlap, other.overlap) for other in others):
                return Verdict.LOST
            self._end_leases_over(job, now)
        run.until_ms, run.lease_ms, run.found_over = now + lease_ms, lease_ms, False
        return Verdict.OK

    def finish(self, job_name: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        now = self._now_ms()
        job = self._jobs.get(job_name)
        if job is None:
            return Verdict.LOST
        self._age_ends(job, now)
        if any(end.run_id == run_id and end.token == token and end.how == "finished" for end in job.ends):
            return Verdict.OK
        run = find(job, run_id)
        if run is None or run.token != token or run.released:
            return Verdict.LOST
        self._end(job, run, now, token, record)
        return Verdict.OK

    def release(self, job_name: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        now = self._now_ms()
        job = self._jobs.get(job_name)
        if job is None:
            return Verdict.LOST
        self._age_ends(job, now)
        if any(end.run_id == run_id and end.token == token for end in job.ends):
            return Verdict.OK
        run = find(job, run_id)
        if run is None or run.token != token:
            return Verdict.LOST
        if run.manual:
            self._end(job, run, now, token, record)
            return Verdict.OK
        run.released = True
        run.counted -= 0 if counts else 1
        job.ends.append(End(run_id, token, "released", now, run.lease_ms))
        self._save(job, replace(record, attempt=run.attempt, fence=run.fence), run.history_limit)
        return Verdict.OK

    def save_result(self, job_name: str, record: RunRecord) -> None:
        job = self._jobs.setdefault(job_name, Job())
        self._save(job, record, job.limit)

    def time(self, job_name: str) -> int:
        return self._now_ms()

    def active(self, job_name: str) -> list[ActiveRun]:
        now = self._now_ms()
        job = self._jobs.get(job_name, Job())
        return [
            ActiveRun(
                job=job_name,
                slot=from_ms(run.slot_ms),
                run_id=run.run_id,
                attempt=run.attempt,
                trigger=run.trigger,
                instance_id=run.instance_id,
                fence=run.fence,
                started_at=from_ms(run.started_ms),
                # A reader cuts nothing, and yet shows no more than the next claim would leave.
                lease_left=min(run.until_ms - now, run.lease_ms) / 1000 if live(run, now) else 0.0,
            )
            for run in sorted(job.runs, key=lambda run: run.fence, reverse=True)
        ]

    def history(self, job_name: str, limit: int) -> list[RunRecord]:
        return self._jobs.get(job_name, Job()).records[:limit]

    def forget(self, job_name: str) -> None:
        self._jobs.pop(job_name, None)

    def left_open(self, job_name: str, run_id: str, token: str) -> bool:
        """Whether the page leaves the answer open: it depends on an end that a store may have forgotten by now.

        This model forgets nothing, so walks ask here first.
        """
        return any(
            end.may_be_forgotten and end.run_id == run_id and (end.how != "released" or end.token == token)
            for end in self._jobs.get(job_name, Job()).ends
        )

    def has_passed(self, ask: ClaimRequest) -> bool:
        """Whether line 10 refuses the claim, were the run forgotten."""
        job, now = self._jobs.get(ask.job, Job()), self._now_ms()
        known = ask.manual or find(job, ask.run_id) is not None
        return not known and job.latest_ms is not None and ask.slot_ms <= job.latest_ms <= now

    # -- the effects

    def _end_leases_over(self, job: Job, now: int) -> None:
        for run in job.runs:
            run.found_over = run.found_over or not live(run, now)

    def _cut_leases(self, job: Job, now: int) -> None:
        for run in job.runs:
            run.until_ms = min(run.until_ms, now + run.lease_ms)

    def _age_ends(self, job: Job, now: int) -> None:
        for end in job.ends[:-REMEMBERED_NEWEST]:
            end.may_be_forgotten |= now - end.at_ms >= max(REMEMBERED_MS, 2 * end.lease_ms)

    def _close(self, job: Job, run: Run, now: int) -> None:
        # Recorded while the run still counts as unfinished: the page is silent on which comes first, and it shows in
        # a history that is cut to the number of unfinished runs.
        if not run.released:
            self._record_lost(job, run, now)
        job.runs.remove(run)
        job.ends.append(End(run.run_id, None, "closed", now, run.lease_ms))

    def _end(self, job: Job, run: Run, now: int, token: str, record: RunRecord) -> None:
        job.runs.remove(run)
        job.ends.append(End(run.run_id, token, "finished", now, run.lease_ms))
        self._save(job, replace(record, attempt=run.attempt, fence=run.fence), run.history_limit)

    def _record_lost(self, job: Job, run: Run, now: int) -> None:
        if any((kept.run_id, kept.attempt) == (run.run_id, run.attempt) for kept in job.records):
            return
        # After the store's clock stepped back an attempt may seem to have begun after it was found lost.
        started_ms = min(run.started_ms, now)
        lost = RunRecord(
            job=next(name for name, known in self._jobs.items() if known is job),
            slot=from_ms(run.slot_ms),
            run_id=run.run_id,
            attempt=run.attempt,
            trigger=run.trigger,
            status="lost",
            instance_id=run.instance_id,
            fence=run.fence,
            started_at=from_ms(started_ms),
            finished_at=from_ms(now),
            duration=(now - started_ms) / 1000,
        )
        self._save(job, lost, run.history_limit)

    def _save(self, job: Job, record: RunRecord, limit: int) -> None:
        record = decode_record(encode_record(record)) or record  # whole milliseconds, an error of at most 4 KiB
        job.records = [kept for kept in job.records if (kept.run_id, kept.attempt) != (record.run_id, record.attempt)]
        job.records.append(record)
        job.records.sort(key=lambda kept: kept.fence, reverse=True)
        job.records = job.records[: max(limit, len(job.runs))]


def find(job: Job, run_id: str) -> Run | None:
    return next((run for run in job.runs if run.run_id == run_id), None)


def live(run: Run, now: int) -> bool:
    return run.until_ms > now and not run.released and not run.found_over


def holder(run: Run, now: int) -> Holder:
    return Holder(run.run_id, run.slot_ms, run.attempt, run.instance_id, run.until_ms - now)
