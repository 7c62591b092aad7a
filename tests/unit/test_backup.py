"""Backups: runs that others hold are watched, and taken over when their lease is over.

Lease 30 s, heartbeat 6 s. The holder is another instance, ``b``, which speaks to the store directly.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from fakes import Hang
from parts import Bench, job_of
from world import World

from anarchon import RunContext
from anarchon.executor import Ended
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Outcome
from anarchon.runners.attempts import new_record
from anarchon.runners.backup import Backups, Watch


class Watching(Bench):
    """Backups, and what they have won."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.job = job_of()
        self.won: list[tuple[int, Watch, ClaimReply]] = []
        self.backups = Backups(
            self.store,
            self.sources,
            self.asks,
            self.runs,
            lambda watch, reply: self.won.append((world.now_ms, watch, reply)),
        )
        self.start_ms = world.now_ms
        #: When the store was asked, in milliseconds since the start.
        self.checks: list[int] = []

    def held(self, job: Job | None = None, ago_ms: int = 0, **fields: object) -> ClaimRequest:
        """A run that the other instance holds since now, of a slot that was due so long ago."""
        request = self.request(
            job or self.job, self.world.now_ms - ago_ms, instance_id="b", token=self.sources.chance.token(), **fields
        )
        assert self.world.store.claim(request).outcome is Outcome.WON
        return request

    def watch(self, run: ClaimRequest, job: Job | None = None, **given: object) -> ClaimRequest:
        job = job or self.job
        takeover = self.takeover(job, run.slot_ms, run_id=run.run_id)
        self.backups.watch(job, takeover, **{"started": True, **given})  # type: ignore[arg-type]
        self.world.settle()
        return takeover

    def context(self, run: ClaimRequest) -> RunContext:
        return RunContext(
            job=run.job, slot_ms=run.slot_ms, run_id=run.run_id, attempt=1, trigger=run.trigger, token=run.token,
            fence=1, instance_id=run.instance_id, deadline_ms=None, signal=self.world.clock.event(),
        )  # fmt: skip

    def finish(self, run: ClaimRequest) -> None:
        record = new_record(self.context(run), Ended("success", 0), self.world.now_ms)
        self.world.store.finish(run.job, run.run_id, run.token, record)

    def release(self, run: ClaimRequest) -> None:
        record = new_record(self.context(run), Ended("interrupted", 0), self.world.now_ms)
        self.world.store.release(run.job, run.run_id, run.token, record, False)

    def renew(self, run: ClaimRequest) -> None:
        self.world.store.heartbeat(run.job, run.run_id, run.token, run.lease_ms)


@pytest.fixture
def watching(world: World) -> Iterator[Watching]:
    watching = Watching(world)
    play = world.script.play

    def noted(verb: str, *rest: object) -> object:
        if verb == "claim":
            watching.checks.append(world.now_ms - watching.start_ms)
        return play(verb, *rest)  # type: ignore[arg-type]

    world.script.play = noted  # type: ignore[method-assign]
    yield watching
    watching.backups.close()
    watching.end()


# -- when it asks


def test_checks_come_at_random_times_between_one_and_two_heartbeats(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run)
    for _ in range(40):
        world.pass_time("5s")
        watching.renew(run)
    gaps = [b - a for a, b in itertools.pairwise([0, *watching.checks])]
    assert len(gaps) >= 15
    assert all(6_000 <= gap <= 12_000 for gap in gaps)
    assert len(set(gaps)) > 10
    assert watching.won == []


def test_where_little_lease_is_left_the_check_comes_shortly_after_its_end(world: World, watching: Watching) -> None:
    run = watching.held()
    world.pass_time("28s")
    watching.watch(run, lease_left_ms=2_000)
    world.pass_time("10s")
    assert len(watching.won) == 1
    assert 30_000 < watching.checks[0] <= 33_000


def test_checks_after_a_leases_end_are_spread_over_half_a_heartbeat(world: World, watching: Watching) -> None:
    """A fleet of backups that all know when the lease is over does not ask all at once."""
    bounds = set()
    for seed in range(30):
        world.chance.pick = random.Random(seed).randint
        bounds.add(watching.backups._until_check_ms(watching.job, 2_000))
    assert min(bounds) > 2_000 and max(bounds) <= 5_000
    assert len(bounds) > 20


def test_a_holder_that_died_is_taken_over_within_half_a_heartbeat_of_its_leases_end(
    world: World, watching: Watching
) -> None:
    run = watching.held()
    watching.watch(run)
    world.until(lambda: watching.won, "1m")
    at_ms, watch, reply = watching.won[0]
    assert 30_000 < at_ms - watching.start_ms <= 33_000
    assert (reply.outcome, reply.attempt) == (Outcome.WON, 2)
    assert watch.asked_from_ms == world.clock.monotonic_ms()
    assert [r.status for r in world.store.history("x", 5)] == ["lost"]


def test_a_run_that_was_released_is_taken_over_at_the_next_check(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run)
    world.pass_time("1s")
    watching.release(run)
    assert world.until(lambda: watching.won) <= 12_000


def test_the_first_check_may_come_at_once(world: World, watching: Watching) -> None:
    watching.watch(watching.held(), now=True)
    assert watching.checks == [0]


# -- once per run, and in silence


def test_a_run_is_watched_once_however_many_slots_were_lost_to_it(world: World, watching: Watching) -> None:
    run = watching.held()
    for _ in range(50):
        watching.watch(run)
    world.pass_time("12s")
    assert len(watching.checks) <= 2


def test_a_watch_ends_in_silence_when_the_run_is_finished(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run)
    watching.finish(run)
    world.pass_time("5m")
    assert len(watching.checks) == 1
    assert (watching.won, watching.heard, watching.backups._watches) == ([], [], {})


def test_a_run_that_was_watched_to_its_end_may_be_watched_again(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run, now=True)
    watching.finish(run)
    world.pass_time("12s")
    watching.watch(run, now=True)
    assert len(watching.checks) == 3


def test_after_close_nothing_is_asked_and_nothing_watched(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run)
    watching.backups.close()
    watching.watch(watching.held(job_of("y")), job_of("y"))
    world.pass_time("5m")
    assert watching.checks == []


# -- overlap, unstarted


def test_an_overlap_keeps_it_watching(world: World, watching: Watching) -> None:
    """
    1. the lease of a run is over; another run of the job is live, and the watch says skip
    2. the checks are answered overlap, again and again
    3. the other run ends: the next check wins
    """
    allow = job_of("x", overlap="allow")
    run, other = watching.held(allow), watching.held(allow, run_id="manual-1", trigger="manual")
    world.pass_time("29s")
    watching.renew(other)
    world.pass_time("2s")
    watching.watch(run, now=True)  # 1
    for _ in range(6):
        world.pass_time("10s")
        watching.renew(other)
    assert watching.won == [] and len(watching.checks) >= 5  # 2
    watching.finish(other)
    assert world.until(lambda: watching.won) <= 12_000  # 3


def test_a_run_that_nobody_started_is_watched_only_while_it_may_start(world: World, watching: Watching) -> None:
    slot_ms = world.now_ms
    watching.backups.watch(watching.job, watching.takeover(watching.job, slot_ms), started=False)
    world.pass_time("5m")
    assert 5 <= len(watching.checks) <= 12
    assert 60_000 < watching.checks[-1] <= 72_000
    assert watching.backups._watches == {}


def test_a_watch_that_is_answered_none_for_ever_ends_with_the_window(
    world: World, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "claim", lambda request: ClaimReply(Outcome.NONE, world.now_ms))
    watching.backups.watch(watching.job, watching.takeover(watching.job), started=False)
    world.pass_time("5m")
    assert 60_000 < watching.checks[-1] <= 72_000
    assert watching.backups._watches == {}


def test_a_run_that_is_started_while_it_is_watched_is_watched_to_its_end(world: World, watching: Watching) -> None:
    watching.backups.watch(watching.job, watching.takeover(watching.job), started=False)
    world.pass_time("20s")
    run = watching.held(ago_ms=20_000)
    for _ in range(20):
        world.pass_time("10s")
        watching.renew(run)
    assert watching.checks[-1] > 200_000
    world.until(lambda: watching.won, "1m")
    assert watching.won[0][2].attempt == 2


def test_only_the_newest_run_that_nobody_started_is_watched(world: World, watching: Watching) -> None:
    for age_ms in (20_000, 10_000, 0, 15_000):  # the last one comes late, and is older
        watching.backups.watch(
            watching.job, watching.takeover(watching.job, world.now_ms - age_ms), started=False
        )  # fmt: skip
    assert list(watching.backups._watches) == [("x", str(world.now_ms))]


def test_a_newer_slot_does_not_end_the_watch_of_a_run_that_was_started(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.backups.watch(watching.job, watching.takeover(watching.job, run.slot_ms), started=False)
    watching.watch(run)  # a claim was answered: it is running
    watching.backups.watch(watching.job, watching.takeover(watching.job, run.slot_ms + 10_000), started=False)
    assert len(watching.backups._watches) == 2


# -- not from oneself, not while blocked


def test_a_run_is_not_taken_from_oneself(world: World, watching: Watching) -> None:
    """The watch goes on while the run is one of its own, and asks nothing: its handler may still wind down here."""
    run = watching.held()
    mine = watching.context(run)
    watching.runs.add(mine)
    watching.watch(run)
    world.pass_time("5m")
    assert watching.checks == []
    watching.runs.remove(mine)
    assert world.until(lambda: watching.won) <= 12_000


def test_nothing_is_taken_over_while_a_handler_of_the_job_is_left_behind(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.runs.left_behind("x", +1)
    watching.watch(run)
    world.pass_time("5m")
    assert watching.checks == []
    watching.runs.left_behind("x", -1)
    assert world.until(lambda: watching.won) <= 12_000


# -- failures


def test_a_check_that_failed_is_repeated_with_the_same_token(world: World, watching: Watching) -> None:
    """
    1. the lease is over; a check is granted, but its answer is lost
    2. the repeats fail in transit
    3. one gets through: it is the same grant, counted from before the first of these asks
    """
    run = watching.held()
    world.pass_time("31s")
    world.script.next("claim", "lose", "fail", "fail")
    asked_ms = world.clock.monotonic_ms()
    token = watching.watch(run, now=True).token
    world.until(lambda: watching.won)
    assert {request.token for (request,) in world.script.sent("claim")} == {token}
    assert len(watching.checks) == 4
    _, watch, reply = watching.won[0]
    assert (reply.attempt, watch.asked_from_ms) == (2, asked_ms)
    assert len(world.store.history("x", 9)) == 1  # attempt 1, lost


def test_an_answered_check_starts_the_count_anew(world: World, watching: Watching) -> None:
    run = watching.held()
    world.script.next("claim", "fail")
    watching.watch(run, now=True)
    world.until(lambda: watching.won, "1m")
    assert watching.won[0][1].asked_from_ms == world.clock.monotonic_ms()


def test_a_store_that_is_away_does_not_end_a_watch(world: World, watching: Watching) -> None:
    run = watching.held()
    watching.watch(run)
    world.script.down = True
    world.pass_time("5m")
    assert watching.heard.words() == ["error"]
    world.script.down = False
    assert world.until(lambda: watching.won) <= 6_000


# -- claims that may have been granted


def test_a_claim_that_may_have_been_granted_is_recovered_with_its_token(world: World, watching: Watching) -> None:
    request = watching.request(watching.job)
    world.store.claim(request)  # granted; the answer was lost
    watching.backups.unsure(watching.job, watching.takeover(watching.job, token=request.token))
    world.settle()
    _, watch, reply = watching.won[0]
    assert (reply.attempt, watch.request.token) == (1, request.token)
    assert world.store.history("x", 9) == []


def test_a_claim_that_was_not_granted_is_never_started_by_its_watch(world: World, watching: Watching) -> None:
    watching.backups.unsure(watching.job, watching.takeover(watching.job))
    world.pass_time("5m")
    assert watching.won == []
    assert world.store.active("x") == []


def test_a_claim_that_was_unsure_is_asked_with_when_its_run_is_found_in_the_way(
    world: World, watching: Watching
) -> None:
    request = watching.request(watching.job)
    watching.backups.unsure(watching.job, watching.takeover(watching.job, token=request.token))
    world.pass_time("2m")  # not granted: the watch is over
    late = watching.request(watching.job, request.slot_ms, token=request.token, window_ms=600_000)
    world.store.claim(late)  # it was only slow: it is granted now
    watching.watch(request, lease_left_ms=30_000)
    assert watching.won[0][2].attempt == 1


def test_a_token_that_has_held_the_run_unseen_gives_way_to_another(world: World, watching: Watching) -> None:
    """Otherwise nobody takes the run over where this instance is the only one left.

    1. a first claim is granted, but its answer is lost, and it is given up
    2. its lease runs out, and ``b`` takes the run over
    3. asked with the token of 1, the store says ``running``
    4. ``b`` dies
    5. asked with the token of 1, the store says ``none``, and always will: a late repeat never becomes a new attempt
    6. asked with another, it grants the next attempt
    """
    request = watching.request(watching.job)
    world.store.claim(request)
    world.script.down = True
    watching.backups.unsure(watching.job, watching.takeover(watching.job, token=request.token))
    world.pass_time("31s")
    taken_over = watching.takeover(watching.job, request.slot_ms, instance_id="b", token="b's")
    assert world.store.claim(taken_over).attempt == 2
    world.script.down = False
    world.pass_time("20s")
    assert watching.won == []
    assert world.until(lambda: watching.won) <= 30_000
    _, watch, reply = watching.won[0]
    assert (reply.attempt, watch.first_trigger) == (3, None)
    assert watch.request.token != request.token


def test_another_token_is_tried_beside_the_unsure_one_and_not_in_its_place(world: World, watching: Watching) -> None:
    """
    1. a first claim is given up; it is still on its way to the store
    2. asked with its token, and with another, the store says ``none``: nobody has begun the run
    3. the first claim comes through
    4. asked with its token the store says ``won``
    """
    request = watching.request(watching.job)
    watching.backups.unsure(watching.job, request)
    world.pass_time("5s")
    world.store.claim(request)
    assert world.until(lambda: watching.won) <= 12_000
    _, watch, reply = watching.won[0]
    assert (reply.attempt, watch.request.token, watch.first_trigger) == (1, request.token, request.trigger)


# -- many


def test_a_thousand_watches_cost_no_thread_each_not_even_while_the_store_hangs(
    world: World, watching: Watching
) -> None:
    jobs = [job_of(f"job-{number}") for number in range(1_000)]
    runs = [watching.held(job) for job in jobs]
    for job, run in zip(jobs, runs):
        watching.backups.watch(job, watching.takeover(job, run.slot_ms), started=True)
    most = []
    hangs = [Hang(world.clock, 3_000) for _ in range(200)]
    world.script.next("claim", *hangs)
    for _ in range(8):
        world.pass_time("2s")
        most.append(world.alive())
    assert max(most) <= 9  # eight that ask, and the alarms'
    assert len(watching.checks) > 8


def test_of_claims_without_an_answer_only_as_many_are_kept_as_may_still_count(world: World, watching: Watching) -> None:
    """A job of every second, on a store that hangs for an hour."""
    for number in range(3_600):
        watching.backups.unsure(watching.job, watching.takeover(watching.job, world.now_ms + 1_000 * number))
    assert len(watching.backups._unsure["x"]) <= 64
    assert len(watching.backups._watches) <= 64
