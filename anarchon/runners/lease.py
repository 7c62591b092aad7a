"""Runs on a store with leases: claim, hold, watch, take over.

Whoever wins a claim runs it and renews its lease; whoever loses becomes a backup. One branch per outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anarchon.durations import to_ms
from anarchon.errors import BackendError, RunInterrupted, RunRefused
from anarchon.executor import Ended
from anarchon.job import Job
from anarchon.records import (
    MANUAL_WINDOW_MS,
    ActiveRun,
    ClaimReply,
    ClaimRequest,
    DoneReason,
    Mode,
    Outcome,
    RunRecord,
)
from anarchon.runners import Parts
from anarchon.runners.attempts import manual_run_id, new_context, new_record, new_request
from anarchon.runners.backup import Backups, Watch
from anarchon.runners.first_claims import Claim, FirstClaims
from anarchon.runners.leased_run import LeasedRun
from anarchon.runners.local_runs import stopping
from anarchon.runners.manual import run_on_thread
from anarchon.store import Store, pause_ms

__all__ = ["LeaseRunner"]

#: How often a manual claim is sent before its caller is told that the store is away.
_MANUAL_TRIES = 3


class LeaseRunner:
    """The runner of a lease backend; see ``Runner`` for what each method promises."""

    def __init__(self, store: Store, parts: Parts) -> None:
        self._store = store
        self._parts = parts
        self._backups = Backups(store, parts.sources, parts.asks, parts.runs, self._taken_over)
        self._first_claims = FirstClaims(
            store.claim,
            store.clock.now_ms,
            parts.sources,
            parts.asks,
            parts.runs.blocked,
            parts.teller,
            self._answered,
            self._unsure,
        )

    def run(self, job: Job, slot_ms: int, trigger: str, window_ms: int) -> None:
        self._first_claims.ask(Claim(job, self._request(job, slot_ms, trigger, window_ms)))

    def run_now(self, job: Job, wait_ms: int | None = None, once: str | None = None) -> RunRecord | None:
        with self._parts.asks.apart() as may:
            if not may:
                raise stopping(job.name)
            run = self._claim_now(job, once)
            if self._blocked_since(job):
                refusal = self._parts.runs.refusal(job, self._parts.instance_id)
                # Elsewhere, and until it is answered: the caller has waited for the store once.
                self._parts.asks.soon(run.give_back)
                raise refusal
            if not self._parts.runs.add(run.context):
                run.give_back()
                raise stopping(job.name)
        return run_on_thread(self._parts, run.context, run.run, run.give_back, wait_ms)

    def recover(self, job: Job, since_ms: int, asked: Callable[[bool], None]) -> None:
        self._parts.asks.soon(lambda: self._recover(job, since_ms, asked, tries=0))

    def close(self) -> None:
        self._backups.close()

    def _answered(self, claim: Claim, reply: ClaimReply) -> None:
        """The answer to a first claim: one branch per outcome."""
        job, request, outcome = claim.job, claim.request, reply.outcome
        assert claim.asked_from_ms is not None
        if outcome in (Outcome.WON, Outcome.RUNNING):
            self._backups.sure(job.name)
        if outcome is Outcome.WON:
            self._start(job, self._leased(job, request, reply, claim.asked_from_ms))
        elif outcome is Outcome.RUNNING:
            assert reply.holder is not None
            self._skip(request, "taken", reply.holder.instance_id)
            self._watch(job, request, lease_left_ms=reply.holder.lease_left_ms)
        elif outcome is Outcome.OVERLAP:
            assert reply.holder is not None
            older = reply.holder
            self._skip(request, "overlap", older.instance_id)
            self._watch(job, self._request(job, older.slot_ms, "takeover", 0, older.run_id), older.lease_left_ms)
            self._watch(job, request, started=False)
        elif outcome is Outcome.LATE:
            self._skip(request, "late")
        elif outcome is Outcome.DONE:
            passed_in_time = reply.done is DoneReason.PASSED and claim.in_time
            self._skip(request, "late" if passed_in_time else "taken")
        else:
            self._watch(job, request, started=False)

    def _unsure(self, claim: Claim) -> None:
        """A claim was given up, but may have been granted."""
        self._backups.unsure(claim.job, claim.request)

    def _taken_over(self, watch: Watch, reply: ClaimReply) -> None:
        assert watch.asked_from_ms is not None
        request = watch.request
        if watch.first_trigger is not None:
            # Its own first claim, which may have been granted after all.
            request = replace(request, trigger=watch.first_trigger)
        self._start(watch.job, self._leased(watch.job, request, reply, watch.asked_from_ms))

    def _start(self, job: Job, run: LeasedRun) -> None:
        """Begins a run that was won, unless it must not begin here any more."""
        if self._blocked_since(job):
            run.give_back()
            if run.context.trigger != "takeover":
                self._skip(run.request, "overlap", self._parts.instance_id)
            return
        if not self._parts.runs.add(run.context):
            run.give_back()
            return
        self._parts.asks.then(f"anarchon-run-{run.context.job}", run.run)

    def _blocked_since(self, job: Job) -> bool:
        """Whether the job is blocked here, and was not when it was asked for. The race with an older run's timeout:

        1. an older run of the job goes on here; a newer one is asked for, and the ask is on its way
        2. the older one is over its timeout: its end is stored, and its handler is left behind
        3. the ask is granted, for nothing is in its way in the store: it is to be given back
        """
        return self._parts.runs.blocked(job) and not self._parts.runs.stopping

    def _watch(
        self, job: Job, request: ClaimRequest, lease_left_ms: int | None = None, started: bool = True, now: bool = False
    ) -> None:
        # A watch is a claim of its own, and so is its token; only a manual run is not for others to take over.
        if not request.run_id.isdigit():
            return
        takeover = replace(request, mode=Mode.TAKEOVER, trigger="takeover", token=self._parts.sources.chance.token())
        self._backups.watch(job, takeover, started=started, lease_left_ms=lease_left_ms, now=now)

    def _recover(self, job: Job, since_ms: int, asked: Callable[[bool], None], tries: int) -> None:
        """Line by line what a start adds; on an ask's thread."""
        try:
            if self._store.clock.unknown(job.name):
                self._store.read_time(job.name)
            unfinished = self._store.active(job.name)
        except BackendError:
            asked(False)
            again = pause_ms(self._parts.sources, tries + 1)
            self._parts.asks.after(again, lambda: self._recover(job, since_ms, asked, tries + 1))
            return
        try:
            now_ms = self._store.clock.now_ms(job.name)
            started_ms = now_ms - (self._parts.sources.clock.monotonic_ms() - since_ms)
            for run in unfinished:
                self._look_after(job, run, job.schedule.newest_at(now_ms))
            self._catch_up(job, job.schedule.newest_at(started_ms), now_ms)
        except Exception as error:
            # A schedule that fails here may work for the timer.
            self._parts.teller.error("recover", job.name, error)
        asked(True)

    def _look_after(self, job: Job, run: ActiveRun, newest_ms: int) -> None:
        slot_ms = to_ms(run.slot)
        request = self._request(job, slot_ms, "takeover", 0, run.run_id)
        if run.lease_left > 0:
            self._watch(job, request, lease_left_ms=round(run.lease_left * 1000))
        elif slot_ms >= newest_ms:
            self._watch(job, request, now=True)
        # Else a newer slot is due: its grant replaces this run and closes it.

    def _catch_up(self, job: Job, newest_ms: int, now_ms: int) -> None:
        window_ms = job.options.catch_up_ms
        if window_ms is None or now_ms - newest_ms >= window_ms:
            return
        jitter_ms = self._parts.sources.chance.between(0, job.options.jitter_ms)
        self._parts.asks.after(jitter_ms, lambda: self.run(job, newest_ms, "catch-up", window_ms))

    def _claim_now(self, job: Job, once: str | None) -> LeasedRun:
        """A manual run, won."""
        if self._parts.runs.blocked(job):
            raise self._parts.runs.refusal(job, self._parts.instance_id)
        clock = self._store.clock
        # A manual claim that is minutes old is late, and a host's clock may be an hour wrong.
        clock.look(job.name)
        run_id = None if once is None else manual_run_id(once)
        request = self._request(job, clock.now_ms(job.name), "manual", MANUAL_WINDOW_MS, run_id)
        asked_from_ms = self._parts.sources.clock.monotonic_ms()
        try:
            reply = self._ask_manual(request)
        except BackendError:
            self._withdraw(job, request)
            raise
        if reply.outcome is Outcome.WON:
            return self._leased(job, request, reply, asked_from_ms)
        if reply.outcome is Outcome.OVERLAP:
            assert reply.holder is not None
            raise RunRefused(job.name, reply.holder.instance_id)
        if once is not None and reply.outcome in (Outcome.RUNNING, Outcome.DONE):
            holder = None if reply.holder is None else reply.holder.instance_id
            raise RunRefused(job.name, holder, f"Job {job.name!r} was not run again: this run was asked for before.")
        raise RunRefused(job.name, why=f"The store answered {reply.outcome.value!r} to a manual run of {job.name!r}.")

    def _ask_manual(self, request: ClaimRequest) -> ClaimReply:
        tries = 0
        while True:
            try:
                return self._store.claim(request)
            except BackendError:
                tries += 1
                if tries == _MANUAL_TRIES:
                    raise
                # The same token: a grant whose answer was lost is found again.
                clock = self._parts.sources.clock
                clock.wait(clock.event(), pause_ms(self._parts.sources, tries))

    def _withdraw(self, job: Job, request: ClaimRequest) -> None:
        """Ends a manual run that may have been granted, though nobody heard of it: its lease would be in the way of the
        job until it is over. A claim could be granted once more; ``finish`` creates nothing where nothing was."""
        started_ms = self._store.clock.now_ms(job.name)
        context = new_context(job, request, ClaimReply(Outcome.WON, started_ms), started_ms, self._parts.sources, None)
        record = new_record(context, Ended("interrupted", 0, RunInterrupted("stop")), started_ms)
        until_ms = self._parts.sources.clock.monotonic_ms() + request.lease_ms

        def withdraw(tries: int) -> None:
            try:
                self._store.withdraw(job.name, request.run_id, request.token, record)
            except BackendError:
                if self._parts.sources.clock.monotonic_ms() < until_ms:
                    self._parts.asks.after(pause_ms(self._parts.sources, tries), lambda: withdraw(tries + 1))

        self._parts.asks.soon(lambda: withdraw(1))

    def _leased(self, job: Job, request: ClaimRequest, reply: ClaimReply, counted_from_ms: int) -> LeasedRun:
        if reply.attempt is not None and reply.attempt > 1:
            # A first claim that was long on its way may come after another has begun the run, and died.
            request = replace(request, trigger="takeover")
        return LeasedRun(
            job,
            request,
            reply,
            counted_from_ms,
            self._store,
            self._parts,
            # Given back: unless it stops, this instance is as good a backup as any.
            released=lambda: self._watch(job, request),
        )

    def _skip(self, request: ClaimRequest, reason: str, holder: str | None = None) -> None:
        self._parts.teller.skip(request.job, request.slot_ms, request.trigger, reason, holder)

    def _request(self, job: Job, slot_ms: int, trigger: str, window_ms: int, run_id: str | None = None) -> ClaimRequest:
        return new_request(job, slot_ms, trigger, window_ms, self._parts.instance_id, self._parts.sources, run_id)
