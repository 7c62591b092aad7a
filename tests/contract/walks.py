"""Random walks over a store: every call, every repeat, differing options, and a clock that steps both ways.

A walk is a list of ``Step``, plain data, so that it can be taken again on another store, or with steps left out until
only those remain that show a fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from harness import Harness
from model import REMEMBERED_MS, Model

from anarchon.backends import LeaseBackend
from anarchon.durations import from_ms
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, RunRecord

JOB = "walk"
SLOT_EVERY_MS = 10_000


@dataclass(frozen=True)
class Step:
    """One call, or one move of the clock, with everything that it was given."""

    call: str
    values: tuple[Any, ...]

    def take(self, harness: Harness) -> Any:
        """Takes the step on a store; returns the store's answer, None for a move of the clock."""
        if self.call in ("advance", "step"):
            return getattr(harness, self.call)(*self.values)
        return getattr(harness.backend, self.call)(*self.values)

    def __str__(self) -> str:
        return f"{self.call}{self.values}"


@dataclass
class Grant:
    """An attempt that was won, as its winner knows it."""

    request: ClaimRequest
    reply: ClaimReply

    def record(self, status: str, now_ms: int, **facts: Any) -> RunRecord:
        return RunRecord(
            job=self.request.job,
            slot=from_ms(self.request.slot_ms),
            run_id=self.request.run_id,
            attempt=self.reply.attempt or 0,
            trigger=self.request.trigger,
            status=status,
            instance_id=self.request.instance_id,
            fence=self.reply.fence or 0,
            started_at=from_ms(self.reply.store_time_ms),
            finished_at=from_ms(now_ms),
            duration=abs(now_ms - self.reply.store_time_ms) / 1000,
            **facts,
        )


@dataclass
class Walker:
    """Thinks up the next step from what the walk has seen so far.

    Args:
        modest: keeps to what the promises of the protocol are made for. The history is never cut and the job never
            forgotten; a token asks again with the options it asked with first, as instances do; and the walk is over
            before the first finished run may be forgotten.
    """

    rng: random.Random
    modest: bool = False
    grants: list[Grant] = field(default_factory=list)
    asked: list[ClaimRequest] = field(default_factory=list)
    last: Step | None = None
    names: int = 0
    moved_ms: int = 0

    def steps(self, count: int, seen: LeaseBackend) -> Iterator[Step]:
        for _ in range(count):
            if self.last is not None and self.rng.random() < 0.12:
                step = self.last  # the answer was lost
            else:
                step = self._next(seen)
            if step.call in ("advance", "step"):
                self.moved_ms += abs(step.values[0])
                if self.modest and self.moved_ms >= REMEMBERED_MS:
                    return
            else:
                self.last = step
            yield step

    def saw(self, step: Step, answer: Any) -> None:
        """Told what the store answered; None where the step was left out."""
        if step.call == "claim" and answer is not None:
            request = step.values[0]
            self.asked.append(request)
            del self.asked[:-40]
            if answer.outcome is Outcome.WON and all(grant.reply.fence != answer.fence for grant in self.grants):
                self.grants.append(Grant(request, answer))
                del self.grants[:-12]
        elif step.call == "forget":
            self.grants.clear()  # fences may begin again, and two records of one fence have no order

    def _next(self, seen: LeaseBackend) -> Step:
        now_ms = seen.time(JOB)
        kind = self.rng.choices(
            ("claim", "heartbeat", "finish", "release", "save_result", "advance", "step", "forget"),
            (38, 12, 9, 9, 4, 22, 5, 0 if self.modest else 0.3),
        )[0]
        if kind == "claim":
            return Step("claim", (self._request(now_ms, seen),))
        if kind == "advance":
            return Step("advance", (self._forward(now_ms, seen),))
        if kind == "step":
            size = self.rng.choice((1, 500, 1_000, 5_000, 10_000, 60_000, 10_000 if self.modest else 3_600_000))
            return Step("step", (size * self.rng.choice((1, -1)),))
        if kind == "forget":
            return Step("forget", (JOB,))
        if not self.grants:
            return Step("claim", (self._request(now_ms, seen),))
        # Mostly the newest grants, whose token still holds the run; sometimes a stranger's token.
        grant = self.rng.choice(self.grants[-3:] if self.rng.random() < 0.8 else self.grants)
        run_id, token = grant.request.run_id, grant.request.token
        if self.rng.random() < 0.1:
            token = self.rng.choice(self.asked).token
        if kind == "heartbeat":
            return Step("heartbeat", (JOB, run_id, token, self._lease()))
        if kind == "save_result":
            status = self.rng.choice(("success", "failed", "interrupted"))
            return Step("save_result", (JOB, grant.record(status, now_ms, lease_lost=True)))
        # Attempt and fence are the store's to say, so these are wrong on purpose.
        error = self.rng.choice((None, "ValueError: \N{SNOWMAN} \x00 \ud800 " + "x" * self.rng.choice((1, 5_000))))
        status = self.rng.choice(("success", "failed")) if kind == "finish" else "interrupted"
        record = replace(grant.record(status, now_ms, error=error), attempt=99, fence=1)
        if kind == "finish":
            return Step("finish", (JOB, run_id, token, record))
        return Step("release", (JOB, run_id, token, record, self.rng.random() < 0.5))

    def _request(self, now_ms: int, seen: LeaseBackend) -> ClaimRequest:
        rng, newest = self.rng, now_ms - now_ms % SLOT_EVERY_MS
        if self.asked and rng.random() < 0.6:
            # A run that was asked for before: as a backup, as a late repeat, or with the options of a newer deploy.
            unfinished = {run.run_id for run in seen.active(JOB)}
            begun = [ask for ask in self.asked if ask.run_id in unfinished]
            earlier = rng.choice(begun if begun and rng.random() < 0.6 else self.asked[-10:])
            if rng.random() < 0.4:
                if self.modest:
                    return earlier
                token = earlier.token
            else:
                token = self._name("t")
            run_id, slot_ms, manual = earlier.run_id, earlier.slot_ms, earlier.manual
        else:
            manual, token = rng.random() < 0.2, self._name("t")
            slot_ms = now_ms if manual else newest + SLOT_EVERY_MS * rng.choice((-3, -2, -1, 0, 0, 0, 0, 1))
            run_id = self._name("m") if manual else str(slot_ms)
        return ClaimRequest(
            job=JOB,
            slot_ms=slot_ms,
            run_id=run_id,
            token=token,
            instance_id=rng.choice(("a", "b", "c")),
            lease_ms=self._lease(),
            overlap=rng.choice(("skip", "skip", "allow", "allow", "allow")),
            max_attempts=rng.choice((1, 2, 3, 10)),
            window_ms=rng.choice((0, 5_000, 20_000, 60_000, 3_600_000)),
            mode=rng.choice((Mode.START, Mode.START, Mode.TAKEOVER)),
            trigger="manual" if manual else rng.choice(("scheduled", "catch-up", "takeover")),
            history_limit=10_000 if self.modest else rng.choice((1, 2, 5, 100)),
        )

    def _lease(self) -> int:
        return self.rng.choice((1_000, 2_000, 5_000, 10_000, 10_000, 30_000, 30_000 if self.modest else 400_000))

    def _forward(self, now_ms: int, seen: LeaseBackend) -> int:
        ends = [round(run.lease_left * 1000) for run in seen.active(JOB) if run.lease_left]
        if ends and self.rng.random() < 0.5:
            # To the very end of a lease, or a millisecond on either side of it.
            return max(0, self.rng.choice(ends) + self.rng.choice((-1, 0, 0, 1)))
        if not self.modest and self.rng.random() < 0.03:
            return self.rng.choice((301_000, 599_999, 600_000, 900_000))
        to_next_slot = SLOT_EVERY_MS - now_ms % SLOT_EVERY_MS
        return self.rng.choice((1, 500, 1_000, 5_000, 10_000, to_next_slot, to_next_slot))

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"


class ModelHarness(Harness):
    """The model, on a clock of its own that is moved as the other store's is."""

    def __init__(self, start_ms: int) -> None:
        self.now_ms = start_ms
        self.model = Model(lambda: self.now_ms)
        self.backend = self.model  # type: ignore[assignment]

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def step(self, ms: int) -> None:
        self.now_ms += ms

    def dump(self) -> Any:
        raise NotImplementedError


class Pair:
    """A store and the model, taking each step side by side."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.reference = ModelHarness(harness.backend.time(JOB))
        self.model = self.reference.model

    def take(self, step: Step) -> tuple[Any, str | None]:
        """Takes the step on both; returns the model's answer, and the difference in words, if there is one.

        A step whose answer the page leaves open is left out; but the claim of a run that is over, forgotten or not, is
        ``done``, whatever the reason.
        """
        is_open = left_open(step, self.model)
        if is_open and not (step.call == "claim" and self.model.has_passed(step.values[0])):
            return None, None
        expected, answer = step.take(self.reference), step.take(self.harness)
        if is_open:
            answer = replace(answer, done=expected.done)
        seen = (
            ("answer", expected, answer),
            ("active", self.model.active(JOB), self.harness.backend.active(JOB)),
            ("history", self.model.history(JOB, 1_000), self.harness.backend.history(JOB, 1_000)),
        )
        for what, theirs, ours in seen:
            if theirs != ours:
                return expected, f"{what} after {step}:\n  model {theirs}\n  store {ours}"
        return expected, None


def compare(make: Callable[[], Harness], seed: int, count: int) -> None:
    """Walks a store and the model side by side.

    Raises:
        AssertionError: they answered differently. It names the seed, and the fewest steps found to show it.
    """
    steps = first_difference(make, seed, count)
    if steps:
        fewest = shorten(make, steps)
        lines = "\n".join(f"  {step}" for step in fewest)
        raise AssertionError(f"Seed {seed}, {count} steps. {replay(make, fewest)}\nThe steps:\n{lines}")


def first_difference(make: Callable[[], Harness], seed: int, count: int) -> list[Step]:
    """The steps of a walk up to the first that a store and the model answered differently; none if they agreed."""
    taken: list[Step] = []
    with closing(make()) as harness:
        pair, walker = Pair(harness), Walker(random.Random(seed))
        for step in walker.steps(count, pair.reference.backend):
            taken.append(step)
            answer, difference = pair.take(step)
            if difference:
                return taken
            walker.saw(step, answer)
    return []


def replay(make: Callable[[], Harness], steps: list[Step]) -> str | None:
    """Takes the steps again on a new store; returns the first difference."""
    with closing(make()) as harness:
        pair = Pair(harness)
        return next((difference for step in steps if (difference := pair.take(step)[1])), None)


def shorten(make: Callable[[], Harness], steps: list[Step]) -> list[Step]:
    """Leaves out steps, in chunks and then one by one, as long as a difference is still to be seen."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            if replay(make, fewer):
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def left_open(step: Step, model: Model) -> bool:
    """Whether the page leaves the answer open; see ``Model.left_open``."""
    if step.call == "claim":
        ask = step.values[0]
        return model.left_open(ask.job, ask.run_id, ask.token)
    if step.call in ("heartbeat", "finish", "release"):
        return model.left_open(*step.values[:3])
    return False
