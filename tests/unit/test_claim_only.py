"""The claim-only runner: claim, execute, save the result; a slot is run at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import FirstComeBackend, Hang
from world import World

from anarchon import RunRefused
from anarchon.durations import to_ms


class Two:
    """Two schedulers over one claim-only store, and a handler that goes on until it is told to stop or for a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.backend = FirstComeBackend()
        self.script = self.backend.script
        self.a = world.scheduler("a", self.backend)
        self.b = world.scheduler("b", self.backend)
        self.lasts_s = 0.0
        self.ran: list[tuple[str, int]] = []

    def handler(self, ctx: Any) -> None:
        self.ran.append((ctx.instance_id, to_ms(ctx.slot)))
        if ctx.signal.wait(self.lasts_s):
            ctx.raise_if_cancelled()

    def every(self, interval: str = "10s", **options: Any) -> Two:
        for scheduler in (self.a, self.b):
            scheduler.every("x", interval, self.handler, **options)
        return self


@pytest.fixture
def two(world: World) -> Iterator[Two]:
    two = Two(world)
    yield two
    two.script.end()


def test_each_slot_is_run_once_and_the_others_skip_it(world: World, two: Two) -> None:
    two.every()
    two.a.start()
    two.b.start()
    world.pass_time("1m")
    assert len({slot for _, slot in two.ran}) == len(two.ran) == 6
    assert sorted(two.a.heard.words("start") + two.b.heard.words("start")) == ["skip taken"] * 6 + ["success"] * 6
    assert [record.status for record in two.a.history("x")] == ["success"] * 6


def test_a_run_has_no_token_no_fence_and_no_heartbeat(world: World, two: Two) -> None:
    seen: list[Any] = []
    two.a.every("x", "10s", seen.append)
    two.a.start()
    world.pass_time("10s")
    assert (seen[0].token, seen[0].fence, seen[0].attempt) == (None, None, 1)
    assert two.a.active("x") == []
    assert {verb for verb, *_ in two.script.calls} == {"claim", "save_result"}


def test_a_result_is_saved_until_the_store_answers_and_told_after_that(world: World, two: Two) -> None:
    two.every()
    two.script.next("save_result", "fail", "fail")
    two.a.start()
    world.pass_time("11s")
    assert two.a.heard.words() == ["start", "error", "success"]


def test_a_failed_claim_is_repeated_with_the_same_token(world: World, two: Two) -> None:
    two.every()
    two.script.next("claim", "fail", "lose")
    two.a.start()
    world.pass_time("11s")
    assert two.a.heard.words() == ["error", "start", "success"]
    assert len({token for _, _, token in two.script.sent("claim")}) == 1


def test_a_store_that_is_away_makes_slots_late_and_the_schedule_goes_on(world: World, two: Two) -> None:
    two.every("1m", max_late="30s")
    two.script.down = True
    two.a.start()
    world.pass_time("90s")
    two.script.down = False
    world.pass_time("1m")
    assert two.a.heard.words() == ["error", "skip late", "start", "success"]


# -- overlap


def test_overlap_skip_holds_within_the_instance(world: World, two: Two) -> None:
    two.lasts_s = 25
    two.every()
    two.a.start()
    world.pass_time("30s")
    assert two.a.heard.words() == ["start", "skip overlap", "skip overlap"]
    assert two.a.heard[1].holder == "a"
    assert len(two.script.sent("claim")) == 1  # what is skipped here is left to the others


def test_overlap_allow_lets_runs_of_one_instance_overlap(world: World, two: Two) -> None:
    two.lasts_s = 25
    two.every(overlap="allow")
    two.a.start()
    world.pass_time("30s")
    assert two.a.heard.words() == ["start"] * 3


def test_overlap_is_looked_at_again_when_the_claim_is_asked(world: World, two: Two) -> None:
    """
    1. the claim of a slot is on its way, and slow
    2. the next slot comes due: no run goes on yet, it waits for that answer
    3. the first is won and goes on; the second must be skipped now
    """
    two.lasts_s = 25
    two.every()
    hang = Hang(world.clock)
    two.script.next("claim", hang)
    two.a.start()
    world.pass_time("20s")
    hang.let_go()
    world.settle()
    # The run's thread tells the one, the ask's the other.
    assert sorted(two.a.heard.words()) == ["skip overlap", "start"]


def test_a_slot_claimed_as_a_manual_run_began_is_skipped_and_not_run_beside_it(world: World, two: Two) -> None:
    two.every()
    two.lasts_s = 60
    hang = Hang(world.clock)
    two.script.next("claim", hang)
    two.a.start()
    world.pass_time("10s")
    manual = world.spawn(lambda: two.a.run_now("x"))
    hang.let_go()
    world.settle()
    assert two.a.heard.words() == ["start", "skip overlap"]
    assert not manual.done


# -- run_now


def test_a_manual_run_claims_nothing_and_is_recorded(world: World, two: Two) -> None:
    two.every()
    record = world.run(lambda: two.a.run_now("x"))
    assert (record.trigger, record.status, record.fence) == ("manual", "success", 0)
    assert two.a.history("x") == [record]
    assert two.script.sent("claim") == []


def test_a_manual_run_beside_another_one_is_refused(world: World, two: Two) -> None:
    two.every()
    two.lasts_s = 60
    first = world.spawn(lambda: two.a.run_now("x"))
    with pytest.raises(RunRefused, match="already running on 'a'"):
        two.a.run_now("x")
    world.until(lambda: first.done)
    assert first.result().status == "success"


def test_a_manual_run_that_is_waited_for_no_longer_goes_on(world: World, two: Two) -> None:
    two.every()
    two.lasts_s = 60
    assert world.run(lambda: two.a.run_now("x", wait="2s")) is None
    world.pass_time("1m")
    assert [(record.trigger, record.status) for record in two.a.history("x")] == [("manual", "success")]


# -- catch-up, stop


def test_the_newest_slot_is_caught_up_on(world: World, two: Two) -> None:
    two.every(catch_up="1h")
    slot_ms = world.now_ms
    world.pass_time("5s")
    two.a.start()
    world.settle()
    assert two.ran == [("a", slot_ms)]
    assert [record.trigger for record in two.a.history("x")] == ["catch-up"]


def test_a_slot_older_than_catch_up_is_not_run(world: World, two: Two) -> None:
    two.every(catch_up="5s")
    world.pass_time("5s")
    two.a.start()
    world.settle()
    assert two.ran == []


def test_a_run_that_a_stop_interrupts_is_recorded(world: World, two: Two) -> None:
    two.lasts_s = 60
    two.every()
    two.a.start()
    world.pass_time("10s")
    assert world.run(lambda: two.a.stop()) is True
    assert two.a.heard.words() == ["start", "interrupted stop"]
    assert [record.status for record in two.a.history("x")] == ["interrupted"]


def test_a_slot_that_was_claimed_as_a_stop_began_is_recorded_as_interrupted(world: World, two: Two) -> None:
    """Nobody else can run it any more: the history must say so."""
    two.every()
    hang = Hang(world.clock)
    two.script.next("claim", hang)
    two.a.start()
    world.pass_time("10s")
    stopping = world.spawn(lambda: two.a.stop())
    assert not stopping.done
    hang.let_go()
    world.settle()
    assert stopping.result() is True
    assert (two.ran, two.a.heard.words()) == ([], ["interrupted stop"])
    assert [record.status for record in two.b.history("x")] == ["interrupted"]


def test_a_handler_over_its_timeout_blocks_its_job_here(world: World, two: Two) -> None:
    gate = world.clock.event()
    two.a.every("x", "10s", lambda: world.clock.wait(gate, None), timeout="2s")
    two.a.start()
    world.pass_time("20s")
    assert two.a.heard.words() == ["start", "failure", "skip overlap"]
    with pytest.raises(RunRefused):
        two.a.run_now("x")
    gate.set()


def test_a_grant_that_comes_after_a_handler_was_left_behind_begins_nothing(world: World, two: Two) -> None:
    """
    1. the claim of a slot is on its way, and slow
    2. a manual run begins, is over its timeout, and its handler is left behind
    3. the claim is granted: nothing begins here
    """
    gate, begun = world.clock.event(), []

    def handler(ctx: Any) -> None:
        begun.append(ctx.trigger)
        world.clock.wait(gate, None)

    two.a.every("x", "10s", handler, timeout="2s")
    hang = Hang(world.clock)
    two.script.next("claim", hang)
    two.a.start()
    world.pass_time("10s")
    manual = world.spawn(lambda: two.a.run_now("x"))
    world.pass_time("2s")
    assert manual.result().status == "failed"
    hang.let_go()
    world.settle()
    assert begun == ["manual"]
    assert two.a.heard.words() == ["start", "failure", "skip overlap"]
    gate.set()


def test_a_manual_run_while_the_scheduler_stops_is_refused(world: World, two: Two) -> None:
    two.every()
    two.a.start()
    world.settle()
    two.a._engine._runs.stop()
    with pytest.raises(RunRefused, match="this scheduler is stopping"):
        two.a._engine._runner.run_now(two.a._jobs["x"])


def test_a_run_whose_thread_had_not_begun_when_the_stop_came_never_begins(
    world: World, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.every()
    two.a.start()
    world.settle()
    threads = two.a._engine._threads
    start, go_on, held = threads.start, threads.go_on, []

    def hold_runs(name: str, work: Any) -> None:
        held.append(work) if name == "anarchon-run-x" else go_on(name, work)

    monkeypatch.setattr(threads, "go_on", hold_runs)
    world.pass_time("10s")
    stopping = world.spawn(lambda: two.a.stop())
    start("anarchon-run-x", held[0])
    world.settle()
    assert stopping.result() is True
    assert (two.ran, two.a.heard.words()) == ([], ["interrupted stop"])


def test_a_schedule_that_raises_at_the_start_does_not_hold_back_its_timer(world: World, two: Two) -> None:
    class Broken:
        def newest_at(self, instant_ms: int) -> int:
            raise OverflowError("no slot within a hundred years")

    two.every()
    two.a.start()
    asked: list[bool] = []
    job = two.a._jobs["x"]
    two.a._engine._runner.recover(replace(job, schedule=Broken()), 0, asked.append)
    assert asked == [True]
    assert [(event.operation, event.job) for event in two.a.heard] == [("recover", "x")]


# -- how long claims are needed


def ms(text: str) -> int:
    return to_ms(datetime.fromisoformat(text).replace(tzinfo=timezone.utc))


@pytest.mark.parametrize(
    ("cron", "options", "slot", "until"),
    [
        ("* * * * *", {}, "2026-03-01T08:00:00", "2026-03-01T08:01:00"),
        ("* * * * *", {"max_late": "5m"}, "2026-03-01T08:00:00", "2026-03-01T08:05:00"),
        ("* * * * *", {"catch_up": "3d"}, "2026-03-01T08:00:00", "2026-03-04T08:00:00"),
        # Whoever starts before the next slot, with a longer catch_up than ours, asks for this one.
        ("0 8 * * *", {}, "2026-03-01T08:00:00", "2026-03-02T08:00:00"),
        ("0 8 1 * *", {"catch_up": "3d"}, "2026-03-01T08:00:00", "2026-04-01T08:00:00"),
    ],
)
def test_a_store_is_told_how_long_each_claim_is_needed(
    world: World, cron: str, options: dict[str, Any], slot: str, until: str
) -> None:
    told = {}

    class Backend(FirstComeBackend):
        def keep_claims(self, job: str, asked_until_ms: Callable[[int], int]) -> None:
            told[job] = asked_until_ms

    world.scheduler("a", Backend()).cron("x", cron, print, **options)
    assert told["x"](ms(slot)) == ms(until)


def test_the_last_slot_of_a_schedule_is_needed_for_as_long_as_it_may_be_late(world: World) -> None:
    told = {}

    class Backend(FirstComeBackend):
        def keep_claims(self, job: str, asked_until_ms: Callable[[int], int]) -> None:
            told[job] = asked_until_ms

    world.scheduler("a", Backend()).cron("x", "0 8 1 1 *", print)
    assert told["x"](ms("9999-01-01T08:00:00")) == ms("9999-01-01T08:01:00")
