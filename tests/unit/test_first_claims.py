"""First claims: one a job on its way, a newer slot before an older one, the same token in every repeat.

Slots come every ten seconds and may start for a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import Hang
from parts import Bench, job_of
from world import World

from anarchon.errors import BackendError
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Outcome
from anarchon.runners.first_claims import Claim, FirstClaims


class Asking:
    """First claims, what the store answers to them, and what becomes of each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bench = Bench(world)
        self.job = job_of()
        self.acts: list[Any] = []
        self.always: Any = Outcome.DONE
        self.asked: list[tuple[int, ClaimRequest]] = []
        self.answered: list[tuple[Claim, ClaimReply]] = []
        self.unsure: list[Claim] = []
        self.blocked = False
        self.first_ms = world.now_ms
        self.first_claims = FirstClaims(
            self.claim,
            lambda job: world.now_ms,
            self.bench.sources,
            self.bench.asks,
            lambda job: self.blocked,
            self.bench.teller,
            lambda claim, reply: self.answered.append((claim, reply)),
            self.unsure.append,
        )

    def claim(self, request: ClaimRequest) -> ClaimReply:
        self.asked.append((self.world.now_ms - self.first_ms, request))
        act = self.acts.pop(0) if self.acts else self.always
        if isinstance(act, Hang):
            act()
            act = act.then
        if act == "fail":
            raise BackendError("away")
        if isinstance(act, ClaimReply):
            return act
        return ClaimReply(act, self.world.now_ms)

    def ask(self, slot: int = 0, job: Job | None = None, trigger: str = "scheduled") -> Claim:
        """Asks for a slot by its number: 0 is due now, 1 in ten seconds."""
        job = job or self.job
        claim = Claim(job, self.bench.request(job, self.first_ms + slot * 10_000, trigger=trigger))
        self.bench.asks.soon(lambda: self.first_claims.ask(claim))
        self.world.settle()
        return claim

    def slots(self) -> list[int]:
        """The slots that were asked for, by their numbers, in order."""
        return [(request.slot_ms - self.first_ms) // 10_000 for _, request in self.asked]

    @property
    def words(self) -> list[str]:
        return self.bench.heard.words()


@pytest.fixture
def asking(world: World) -> Iterator[Asking]:
    asking = Asking(world)
    yield asking
    asking.bench.end()


def answer(wait_ms: int) -> ClaimReply:
    return ClaimReply(Outcome.NONE, 0, wait_ms=wait_ms)


def test_every_answer_goes_to_the_runner_once(asking: Asking) -> None:
    for slot, outcome in enumerate(Outcome):
        asking.acts = [outcome]
        claim = asking.ask(slot - 10)
        assert asking.answered.pop() == (claim, ClaimReply(outcome, asking.world.now_ms))
    assert asking.words == []


def test_a_failed_claim_is_repeated_with_the_same_token_after_growing_pauses(world: World, asking: Asking) -> None:
    asking.acts = ["fail"] * 5 + [Outcome.WON]
    claim = asking.ask()
    world.until(lambda: asking.answered)
    times = [at for at, _ in asking.asked]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert [low <= pause <= 2 * low for low, pause in zip([50, 100, 200, 400, 800], pauses)] == [True] * 5
    assert len({request for _, request in asking.asked}) == 1
    assert asking.answered[0][0] is claim
    assert asking.words == []


def test_the_lease_is_counted_from_before_the_first_ask_of_those_that_failed(world: World, asking: Asking) -> None:
    asking.acts = [Hang(world.clock, 3_000, then="fail"), "fail", Outcome.WON]
    started_ms = world.clock.monotonic_ms()
    asking.ask()
    world.until(lambda: asking.answered)
    assert asking.answered[0][0].asked_from_ms == started_ms


def test_a_claim_is_given_up_as_late_when_it_may_not_start_any_more(world: World, asking: Asking) -> None:
    asking.always = "fail"
    claim = asking.ask()
    world.pass_time("2m")
    assert asking.words == ["skip late"]
    assert 55_000 < asking.asked[-1][0] <= 65_000
    assert asking.unsure == [claim]  # it may have been granted


def test_a_claim_that_was_never_sent_in_vain_is_not_unsure(world: World, asking: Asking) -> None:
    asking.acts = [answer(60_000)]
    asking.ask(1)
    world.pass_time("10s")
    asking.ask(2)
    assert asking.unsure == []


# -- the slot is still to come


def test_a_slot_that_is_still_to_come_is_waited_for_and_asked_again(world: World, asking: Asking) -> None:
    asking.acts = [answer(7_000), answer(20), Outcome.WON]
    claim = asking.ask(1)
    world.until(lambda: asking.answered)
    assert [at for at, _ in asking.asked] == [0, 7_000, 7_020]
    # What is won is counted from the ask that won it: the ones before were answered, and not granted.
    assert claim.asked_from_ms == world.clock.monotonic_ms()


def test_a_long_wait_is_cut_to_a_minute(world: World, asking: Asking) -> None:
    asking.acts = [answer(3_600_000)]
    asking.ask(360)
    world.pass_time("61s")
    assert [at for at, _ in asking.asked] == [0, 60_000]


def test_a_claim_for_a_slot_to_come_gives_way_to_one_that_is_due_in_silence(world: World, asking: Asking) -> None:
    """
    1. the store had not been reached, and this host's clock is an hour ahead: a slot of one o'clock is fired at twelve
    2. the store answers: wait an hour; from now on the time is known
    3. the slot of twelve o'clock comes due: it is asked at once, the other one is dropped
    4. no skip is told of a slot that is still to come: it will be fired again in an hour
    """
    asking.acts = [answer(3_600_000)]
    asking.ask(360)
    asking.ask(0)
    assert asking.slots() == [360, 0]
    assert asking.words == []
    world.pass_time("5m")
    assert asking.slots() == [360, 0]


# -- one at a time


def test_a_newer_slot_takes_the_place_of_one_that_waits_to_be_repeated(world: World, asking: Asking) -> None:
    """Steps 1 to 3 of the race in the module."""
    world.chance.pick = lambda low_ms, high_ms: high_ms
    asking.acts = [Hang(world.clock, 9_950, then="fail"), Outcome.WON]
    older = asking.ask(0)  # 1: it is to be repeated at 10.05 s
    world.pass_time("10s")
    newer = asking.ask(1)  # 2 and 3
    assert asking.words == ["skip late"]
    world.pass_time("1m")
    assert [claim for claim, _ in asking.answered] == [newer]
    assert len(asking.asked) == 2
    assert asking.unsure == [older]


def test_a_newer_slot_waits_for_the_answer_to_one_that_is_on_its_way(world: World, asking: Asking) -> None:
    """Step 4 of the race in the module: a grant must not be thrown away."""
    hang = Hang(world.clock, then=Outcome.WON)
    asking.acts = [hang, Outcome.WON]
    older = asking.ask(0)
    world.pass_time("10s")
    newer = asking.ask(1)
    assert asking.slots() == [0]
    hang.let_go()
    world.settle()
    assert [claim for claim, _ in asking.answered] == [older, newer]
    assert asking.words == []


def test_of_several_that_wait_for_an_answer_only_the_newest_is_asked(world: World, asking: Asking) -> None:
    hang = Hang(world.clock, then=Outcome.DONE)
    asking.acts = [hang]
    asking.ask(0)
    for slot in (1, 2, 3):
        world.pass_time("10s")
        asking.ask(slot)
    hang.let_go()
    world.settle()
    assert asking.slots() == [0, 3]
    assert asking.words == ["skip late"] * 2
    assert [event.slot.second for event in asking.bench.heard] == [10, 20]  # type: ignore[union-attr]
    assert asking.unsure == []


def test_an_answer_that_is_lost_while_a_newer_slot_waits_is_not_asked_for_again(world: World, asking: Asking) -> None:
    """
    1. the older claim is on its way, the newer one waits
    2. the older one fails in transit: it may have been granted
    3. the backups are told of it before the newer one is asked, so that they know the token when that one meets it,
       however long it takes to tell them
    """
    order: list[str] = []
    hang, telling = Hang(world.clock, then="fail"), Hang(world.clock)
    asking.acts = [hang, Outcome.WON]
    asking.first_claims._unsure = lambda claim: (telling(), order.append("unsure"))[1]
    claim = asking.first_claims._claim
    asking.first_claims._claim = lambda request: (order.append("asked"), claim(request))[1]
    asking.ask(0)
    world.pass_time("10s")
    asking.ask(1)
    hang.let_go()
    world.settle()
    assert order == ["asked"]
    telling.let_go()
    world.settle()
    assert order == ["asked", "unsure", "asked"]
    assert asking.slots() == [0, 1]
    assert asking.words == ["skip late"]


def test_each_job_has_a_claim_of_its_own_on_its_way(world: World, asking: Asking) -> None:
    hang = Hang(world.clock)
    asking.acts = [hang]
    asking.ask(0)
    asking.ask(0, job=job_of("y"))
    assert [request.job for _, request in asking.asked] == ["x", "y"]
    assert [claim.job.name for claim, _ in asking.answered] == ["y"]
    hang.then = Outcome.DONE
    hang.let_go()


def test_an_older_slot_does_not_take_the_place_of_a_newer_one(world: World, asking: Asking) -> None:
    """
    1. the newest slot is asked for; the store is away, so it waits to be repeated
    2. a catch-up of the slot before comes late, after its jitter
    3. the catch-up is the one that is late
    """
    asking.acts = ["fail"]
    newest = asking.ask(0)
    asking.ask(-1, trigger="catch-up")
    assert [(event.trigger, event.reason) for event in asking.bench.heard] == [("catch-up", "late")]
    world.until(lambda: asking.answered)
    assert asking.answered[0][0] is newest
    assert asking.slots() == [0, 0]


def test_an_older_slot_does_not_come_between_one_on_its_way_and_the_next(world: World, asking: Asking) -> None:
    hang = Hang(world.clock, then=Outcome.DONE)
    asking.acts = [hang]
    asking.ask(-2)
    asking.ask(0)
    asking.ask(-1, trigger="catch-up")
    hang.let_go()
    world.settle()
    assert asking.slots() == [-2, 0]


def test_the_same_slot_is_not_asked_for_twice_at_once(world: World, asking: Asking) -> None:
    asking.acts = ["fail"]
    asking.ask(0)
    asking.ask(0)
    world.pass_time("1s")
    assert asking.slots() == [0, 0]  # the repeat of the first
    assert len({request.token for _, request in asking.asked}) == 1
    assert asking.words == []


def test_after_an_answer_the_same_slot_may_be_asked_for_again(asking: Asking) -> None:
    asking.ask(0)
    asking.ask(0)
    assert asking.slots() == [0, 0]


# -- blocked, in time, closed


def test_a_job_that_is_blocked_here_is_a_skip_and_the_store_is_not_asked(world: World, asking: Asking) -> None:
    asking.blocked = True
    asking.ask(0)
    assert [(e.reason, e.holder) for e in asking.bench.heard] == [("overlap", "a")]
    assert asking.asked == []
    asking.blocked = False
    world.pass_time("10s")
    asking.ask(1)
    assert asking.slots() == [1]


def test_a_claim_that_is_blocked_before_its_repeat_may_have_been_granted(world: World, asking: Asking) -> None:
    asking.acts = ["fail"]
    claim = asking.ask(0)
    asking.blocked = True
    world.pass_time("1s")
    assert asking.words == ["skip overlap"]
    assert asking.unsure == [claim]


def test_a_claim_knows_whether_it_was_ever_asked_in_time(world: World, asking: Asking) -> None:
    assert asking.ask(-6).in_time
    assert not asking.ask(-7).in_time
    asking.acts = [Hang(world.clock, 61_000, then="fail")]
    claim = asking.ask(1)
    world.pass_time("2m")
    assert claim.in_time


def test_after_the_asks_are_closed_nothing_is_asked(world: World, asking: Asking) -> None:
    asking.acts = ["fail"]
    asking.ask(0)
    asking.bench.asks.close()
    world.pass_time("2m")
    asking.ask(1)
    assert asking.slots() == [0]
