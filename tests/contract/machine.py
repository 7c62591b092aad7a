"""A store beside the memory backend and the model, for hypothesis: it thinks up the calls, and shortens what it finds.

A failure is told as the fewest lines of Python that show it. Where walks.py knows where it is and aims (half of its
steps go on with a run that is open), this is blind but for what was drawn before, and so much the better at the case
that nobody thought of; and it looks past the answers at what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness import SLOT_EVERY_MS, Harness, MemoryHarness
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, precondition, rule
from invariants import Watch
from kept import kept
from model import REMEMBERED_MS
from walks import Grant, ModelHarness, Step, left_open

from anarchon.durations import to_ms
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, RunRecord

JOBS = ("sync", "export")

#: The attempt in a record that is of no attempt that anybody won.
NOBODYS = 50

#: How far the clocks of instances are from the store's. It is never sent, and shows only in the slots they ask for.
CLOCKS = {"right": 0, "behind": -SLOT_EVERY_MS, "ahead": SLOT_EVERY_MS}

LEASES = st.sampled_from((20_000, 5_000, 10_000, 400_000))

#: What an instance asks with; each its own, as during a deploy.
OPTIONS = dict(
    lease_ms=LEASES,
    overlap=st.sampled_from(("skip", "allow")),
    max_attempts=st.sampled_from((3, 2, 1)),
    window_ms=st.sampled_from((60_000, 5_000, 3_600_000)),
    mode=st.sampled_from((Mode.START, Mode.TAKEOVER)),
    history_limit=st.sampled_from((100, 2, 1)),
)

#: Mostly one of them, or little would meet.
JOB = st.sampled_from((JOBS[0], JOBS[0], *JOBS))
BY = st.sampled_from(tuple(CLOCKS))
STATUS = st.sampled_from(("success", "failed", "interrupted"))


class Stores(RuleBasedStateMachine):
    """A store, and those that it must be like: in every answer, in what readers see, and in what is kept.

    Args:
        make: makes the store.
        lines: counts how often each line of the claim table has answered, over all examples.
    """

    asks: Bundle[Step] = Bundle("asks")
    calls: Bundle[Step] = Bundle("calls")

    def __init__(self, make: Callable[[], Harness], lines: Counter[int]) -> None:
        super().__init__()
        self.store = make()
        self.lines = lines
        self.model = ModelHarness(self.now_ms)
        self.memory = MemoryHarness()
        # Memory beside memory would prove nothing.
        self.beside = [self.model] if isinstance(self.store, MemoryHarness) else [self.memory, self.model]
        self.granted: dict[tuple[str, str], Grant] = {}
        self.names = 0
        self.moved_ms = 0

    def teardown(self) -> None:
        self.lines.update(self.model.model.lines)
        self.store.close()

    @initialize(promised=st.booleans())
    def begin(self, promised: bool) -> None:
        """Half of all examples keep to what the promises are made for, and are watched for these, too."""
        self.promised = promised
        self.upsets = 0 if promised else 2  # more of them, and little else would come to be
        self.watches = {name: Watch(self.store, name) for name in JOBS} if promised else {}

    # -- calls

    @rule(targets=(asks, calls), job=JOB, by=BY, **OPTIONS)
    def claim(self, job: str, by: str, **options: Any) -> Step:
        believed_ms = self.now_ms + CLOCKS[by]
        slot_ms = believed_ms - believed_ms % SLOT_EVERY_MS
        trigger = "catch-up" if options["window_ms"] > 60_000 else "scheduled"
        return self.ask(job, str(slot_ms), slot_ms, by, trigger, self.name("t"), options)

    @rule(targets=(asks, calls), job=JOB, by=BY, **OPTIONS)
    def claim_by_hand(self, job: str, by: str, **options: Any) -> Step:
        return self.ask(job, self.name("m"), self.now_ms, by, "manual", self.name("t"), options)

    @rule(targets=(asks, calls), earlier=asks, by=BY, **OPTIONS)
    def claim_as_backup(self, earlier: Step, by: str, **options: Any) -> Step:
        return self.ask_again(earlier, by, self.name("t"), options)

    @rule(targets=(asks, calls), job=JOB, number=st.integers(0, 2), by=BY, **OPTIONS)
    def take_over(self, job: str, number: int, by: str, **options: Any) -> Any:
        """As an instance that starts and finds it among the unfinished runs, and then awaits the end of its lease."""
        unfinished = self.store.backend.active(job)[number : number + 1]
        if not unfinished:
            return multiple()
        (run,) = unfinished
        if run.lease_left:
            self.move("advance", round(run.lease_left * 1_000))
        return self.ask(job, run.run_id, to_ms(run.slot), by, run.trigger, self.name("t"), options)

    @precondition(lambda self: not self.promised)
    @rule(targets=(asks, calls), earlier=asks, by=BY, **OPTIONS)
    def claim_with_an_old_token(self, earlier: Step, by: str, **options: Any) -> Step:
        return self.ask_again(earlier, by, earlier.values[0].token, options)

    @rule(target=calls, ask=asks, lease_ms=LEASES)
    def heartbeat(self, ask: Step, lease_ms: int) -> Step:
        of = ask.values[0]
        return self.take(Step("heartbeat", (of.job, of.run_id, of.token, lease_ms)))

    @rule(target=calls, ask=asks, status=STATUS)
    def finish(self, ask: Step, status: str) -> Step:
        return self.end("finish", ask, ask.values[0].token, status)

    @rule(target=calls, ask=asks, counts=st.booleans())
    def release(self, ask: Step, counts: bool) -> Step:
        return self.end("release", ask, ask.values[0].token, "interrupted", counts)

    @rule(
        target=calls,
        call=st.sampled_from(("heartbeat", "finish", "release")),
        ask=asks,
        token=st.just("stranger") | asks.map(lambda other: other.values[0].token),
    )
    def call_with_a_token_of_another(self, call: str, ask: Step, token: str) -> Step:
        of = ask.values[0]
        if call == "heartbeat":
            return self.take(Step("heartbeat", (of.job, of.run_id, token, 20_000)))
        return self.end(call, ask, token, "failed", *([True] if call == "release" else []))

    @rule(target=calls, ask=asks, status=STATUS)
    def save_result(self, ask: Step, status: str) -> Any:
        of = ask.values[0]
        if self.promised and (of.job, of.token) not in self.granted:
            return multiple()  # it would be the record of nothing
        record = self.grant_of(of).record(status, self.now_ms, lease_lost=True)
        return self.take(Step("save_result", (of.job, record)))

    @rule(call=calls)
    def repeat(self, call: Step) -> None:
        if call.call != "save_result" or self.is_of_now(*call.values):
            self.take(call)

    @rule(job=JOB, limit=st.integers(0, 3))
    def read(self, job: str, limit: int) -> None:
        for step in (Step("history", (job, limit)), Step("active", (job,)), Step("time", (job,))):
            self.take(step)

    @precondition(lambda self: self.upsets)
    @rule(job=JOB)
    def forget(self, job: str) -> None:
        self.upsets -= 1
        self.take(Step("forget", (job,)))
        # Fences may begin again, and two records of one fence have no order: so none of an earlier time comes back.
        self.granted = {key: grant for key, grant in self.granted.items() if key[0] != job}

    # -- the store's clock

    @rule(ms=st.sampled_from((1, 1_000, 5_000, 20_000)))
    def let_time_go_by(self, ms: int) -> None:
        self.move("advance", ms)

    @rule()
    def wait_for_the_next_slot(self) -> None:
        self.move("advance", SLOT_EVERY_MS - self.now_ms % SLOT_EVERY_MS)

    @rule(job=JOB, after_ms=st.sampled_from((0, -1, 1)))
    def wait_for_the_end_of_a_lease(self, job: str, after_ms: int) -> None:
        for run in self.store.backend.active(job)[:1]:
            if run.lease_left:
                self.move("advance", round(run.lease_left * 1_000) + after_ms)

    @rule(ms=st.sampled_from((-1, 1, -1_000, -20_000, 20_000)))
    def step_the_clock(self, ms: int) -> None:
        self.move("step", ms)

    @precondition(lambda self: self.upsets)
    @rule(ms=st.sampled_from((-3_600_000, 3_600_000)))
    def set_the_clock_an_hour_wrong(self, ms: int) -> None:
        self.upsets -= 1
        self.move("step", ms)

    @precondition(lambda self: self.upsets)
    @rule(job=JOB, ms=st.sampled_from((900_000, 700_000)))
    def let_ends_be_forgotten(self, job: str, ms: int) -> None:
        """Long enough for all, or for all but those of long leases; then more ends than are remembered at any age."""
        self.upsets -= 1
        self.move("advance", ms)
        for _ in range(17):
            run_id, token = self.name("m"), self.name("t")
            ask = ClaimRequest(
                job, self.now_ms, run_id, token, "right", 5_000, "allow", 1, 0, Mode.START, "manual", 100
            )
            self.take(Step("claim", (ask,)), look=False)
            record = self.grant_of(ask).record("success", self.now_ms)
            self.take(Step("finish", (job, run_id, token, record)), look=False)
        self.look(job)

    # -- how it is done

    @property
    def now_ms(self) -> int:
        return self.store.backend.time(JOBS[0])

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def ask(
        self, job: str, run_id: str, slot_ms: int, by: str, trigger: str, token: str, options: dict[str, Any]
    ) -> Step:
        if self.promised:
            options = {**options, "history_limit": 10_000}  # every attempt has its record, so none may be cut
        if trigger != "manual" and options["mode"] is Mode.TAKEOVER:
            trigger = "takeover"
        request = ClaimRequest(
            job=job, run_id=run_id, slot_ms=slot_ms, token=token, instance_id=by, trigger=trigger, **options
        )
        return self.take(Step("claim", (request,)))

    def ask_again(self, earlier: Step, by: str, token: str, options: dict[str, Any]) -> Step:
        of = earlier.values[0]
        return self.ask(of.job, of.run_id, of.slot_ms, by, of.trigger, token, options)

    def grant_of(self, ask: ClaimRequest) -> Grant:
        """The attempt that the token won last; or else one that nobody ever won, with a fence of its own."""
        nobodys = Grant(ask, ClaimReply(Outcome.WON, self.now_ms, attempt=NOBODYS, fence=int(ask.token[1:])))
        return self.granted.get((ask.job, ask.token), nobodys)

    def is_of_now(self, job: str, record: RunRecord) -> bool:
        """Whether the record is of no attempt at all, or of one that was won since the job was forgotten last."""
        won = ((g.request.job, g.request.run_id, g.reply.attempt, g.reply.fence) for g in self.granted.values())
        return record.attempt == NOBODYS or (job, record.run_id, record.attempt, record.fence) in won

    def end(self, call: str, ask: Step, token: str, status: str, *counts: bool) -> Step:
        of = ask.values[0]
        # Attempt and fence are the store's to say, so these are wrong on purpose.
        record = replace(self.grant_of(of).record(status, self.now_ms), attempt=99, fence=1)
        return self.take(Step(call, (of.job, of.run_id, token, record, *counts)))

    def take(self, step: Step, look: bool = True) -> Step:
        """Takes the step on all of them; each must answer as the store does."""
        if self.model in self.beside and left_open(step, self.model.model):
            self.beside.remove(self.model)  # it forgets nothing: from here on memory alone can tell
        job = step.values[0].job if step.call == "claim" else step.values[0]
        answer = self.watches[job].take(step) if job in self.watches else step.take(self.store)
        for other in self.beside:
            same(step, other, step.take(other), answer)
        if step.call == "claim" and answer.outcome is Outcome.WON:
            self.granted[job, step.values[0].token] = Grant(step.values[0], answer)
        if look:
            self.look(job)
        return step

    def look(self, job: str) -> None:
        """Compares what readers of the job see, and what is kept of both: a call for one touches no other."""
        if self.model in self.beside:
            for step in (Step("active", (job,)), Step("history", (job, 1_000))):
                same(step, self.model, step.take(self.model), step.take(self.store))
        if self.memory in self.beside:
            for name, theirs, ours in zip(JOBS, kept(self.memory, JOBS), kept(self.store, JOBS)):
                same(f"what is kept of {name}", self.memory, theirs, ours)

    def move(self, how: str, ms: int) -> None:
        for store in (self.store, *self.beside):
            getattr(store, how)(ms)
        self.moved_ms += abs(ms)
        if self.moved_ms >= REMEMBERED_MS:
            self.watches = {}  # finished runs may be forgotten from now on
        for watch in self.watches.values():
            watch.look()


def same(what: object, other: Harness, theirs: object, ours: object) -> None:
    assert ours == theirs, f"{what}:\n  {type(other).__name__} {theirs}\n  the store {ours}"
