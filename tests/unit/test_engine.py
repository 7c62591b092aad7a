"""The engine: from a start to its stop; lateness on the instance's side, and what a stop waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fakes import Hang
from other import Other
from parts import job_of
from world import World

from anarchon import RunRefused
from anarchon.durations import to_ms


def lasting(seconds: float | None, heeds: bool = True) -> Any:
    """A handler that goes on so long, or until it is told to stop, if it heeds that."""

    def handler(ctx: Any) -> None:
        if ctx.signal.wait(seconds) and heeds:
            ctx.raise_if_cancelled()

    return handler


def deaf(world: World, gate: Any) -> Any:
    """A handler that goes on until the gate opens, whatever it is told."""
    return lambda: world.clock.wait(gate, None)


# -- late


def test_a_slot_that_is_late_here_is_a_skip_and_not_claimed(world: World) -> None:
    a = world.scheduler("a").every("x", "1h", lasting(0), max_late="1m", jitter=0)
    a.start()
    world.settle()
    world.clock.advance("1h1m1ms")
    world.settle()
    assert a.heard.words() == ["skip late"]
    assert world.script.sent("claim") == []


def test_a_slot_that_is_just_in_time_is_run(world: World) -> None:
    a = world.scheduler("a").every("x", "1h", lasting(0), max_late="1m", jitter=0)
    a.start()
    world.settle()
    world.clock.advance("1h1m")
    world.settle()
    assert a.heard.words() == ["start", "success"]


@pytest.mark.parametrize(
    ("slots", "one_by_one", "count"), [(5, 4, None), (101, 100, None), (102, 100, 1), (9_000, 100, 8_899)]
)
def test_missed_slots_are_told_a_hundred_one_by_one_and_then_as_a_count(
    world: World, slots: int, one_by_one: int, count: int | None
) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(0))
    a.start()
    world.settle()
    first_ms = world.now_ms + 10_000
    world.clock.advance(timedelta(seconds=10 * slots))  # suspended, so that the newest is just in time
    world.settle()
    skips = a.heard.of("skip")
    assert [to_ms(event.slot) for event in skips[:one_by_one]] == [first_ms + 10_000 * n for n in range(one_by_one)]
    assert {event.reason for event in skips} == {"late"}
    rest = skips[one_by_one:]
    assert [event.count for event in rest] == ([] if count is None else [count])
    assert sum(event.count for event in skips) == slots - 1
    assert a.heard.words()[len(skips) :] == ["start", "success"]


def test_years_of_missed_slots_are_told_without_walking_through_them(world: World) -> None:
    a = world.scheduler("a").every("x", "10ms", lasting(0), jitter=0)
    a.start()
    world.settle()
    world.clock.advance("3000d")
    world.settle()
    assert len(a.heard.of("skip")) == 101
    assert a.heard.of("skip")[-1].count == 3_000 * 86_400 * 100 - 101


def test_missed_cron_slots_are_told_as_uncounted(world: World) -> None:
    a = world.scheduler("a").cron("x", "* * * * *", lasting(0))
    a.start()
    world.settle()
    world.clock.advance("1d")
    world.settle()
    assert len(a.heard.of("skip")) == 101
    assert a.heard.of("skip")[-1].count is None


# -- starting


def test_the_first_slot_is_the_first_one_after_the_start_even_where_the_store_was_slow(world: World) -> None:
    """
    1. the job is started at 9 s; the store takes three seconds to answer
    2. the timer is armed at 12 s: the slot of 10 s is still its first
    """
    world.pass_time("9s")
    world.script.next("active", Hang(world.clock, 3_000))
    a = world.scheduler("a").every("x", "10s", lasting(0))
    slot_ms = world.now_ms + 1_000
    a.start()
    world.pass_time("3s")
    assert [to_ms(event.slot) for event in a.heard.of("start")] == [slot_ms]


def test_a_store_that_is_down_at_the_start_holds_back_no_timer_by_more_than_one_call(world: World) -> None:
    """Eight calls hang for three seconds each; the first that fails lets all 100 timers go."""
    world.script.next("time", *[Hang(world.clock, 3_000, then="fail") for _ in range(200)])
    a = world.scheduler("a")
    for number in range(100):
        a.every(f"job-{number}", "1h", lasting(0))
    a.start()
    world.pass_time("3s")
    assert len(a._engine._timers._armed) == 100


def test_a_timer_that_finds_no_thread_is_told_once_and_started_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(0))
    engine = a._new_engine()
    monkeypatch.setattr(a, "_new_engine", lambda: engine)
    start = engine._threads.start

    def start_others(name: str, work: Any) -> None:
        if name.startswith("anarchon-timer"):
            raise RuntimeError("can't start new thread")
        start(name, work)

    monkeypatch.setattr(engine._threads, "start", start_others)
    a.start()
    world.pass_time("25s")
    assert [(event.operation, event.job) for event in a.heard] == [("timer", "x")]
    monkeypatch.setattr(engine._threads, "start", start)
    world.pass_time("1s")
    # Nothing was passed over in silence: its first slot is still the first one after the start.
    assert a.heard.words() == ["error", "skip late", "start", "success"]


def test_a_start_that_finds_no_thread_raises_and_starts_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(0))
    engine = a._new_engine()
    monkeypatch.setattr(a, "_new_engine", lambda: engine)
    start = engine._threads.start

    def no_thread(name: str, work: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(engine._threads, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        a.start()
    world.pass_time("20s")
    assert (a.heard, world.alive()) == ([], 0)
    monkeypatch.setattr(engine._threads, "start", start)
    a.start()
    world.pass_time("10s")
    assert a.heard.words() == ["start", "success"]


# -- stopping


def test_stop_sets_every_signal_waits_for_the_handlers_and_leaves_no_thread(world: World) -> None:
    a = world.scheduler("a")
    for number in range(5):
        a.every(f"job-{number}", "10s", lasting(60))
    a.start()
    world.pass_time("10s")
    assert world.run(lambda: a.stop()) is True
    assert a.heard.words("start") == ["interrupted stop"] * 5
    assert world.alive() == 0


def test_a_run_that_a_stop_interrupts_is_released_uncounted_and_taken_over_elsewhere(world: World) -> None:
    a, b = (world.scheduler(name).every("x", "1h", lasting(60), max_attempts=1) for name in "ab")
    a.start()
    world.pass_time("59m")
    b.start()
    world.script.next("claim", "work", lambda: world.clock.wait(world.clock.event(), 5))  # a comes first
    world.pass_time("1m10ms")
    first, second = (a, b) if a.heard.words() == ["start"] else (b, a)
    world.run(lambda: first.stop())
    assert first.heard.words()[-1] == "interrupted stop"
    [(_, _, _, _, counts)] = world.script.sent("release")
    assert counts is False
    assert world.until(lambda: second.heard.of("start")) <= 12_000
    assert second.heard.of("start")[0].attempt == 2  # though one attempt is all that counts


def test_a_handler_that_returns_after_the_stop_has_succeeded(world: World) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(None, heeds=False))
    a.start()
    world.pass_time("10s")
    assert world.run(lambda: a.stop()) is True
    assert a.heard.words() == ["start", "success"]


def test_a_run_still_going_when_the_time_is_up_keeps_its_heartbeat(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler("a").every("x", "10s", deaf(world, gate))
    a.start()
    world.pass_time("10s")
    stopping = world.spawn(lambda: a.stop("5s"))
    assert world.until(lambda: stopping.done) == 5_000
    assert stopping.result() is False
    world.pass_time("5m")
    [run] = world.store.active("x")
    assert run.lease_left > 20
    gate.set()
    world.settle()
    assert a.heard.words() == ["start", "success"]
    assert world.run(lambda: a.stop("0s")) is True
    assert world.alive() == 0


def test_the_heartbeat_of_a_run_ends_last(world: World) -> None:
    """
    1. a stop interrupts a run; its release does not get through
    2. the lease is kept up until it is stored, and the stop waits for that
    """
    a = world.scheduler("a").every("x", "10s", lasting(None))
    a.start()
    world.pass_time("10s")
    world.script.next("release", *["fail"] * 12)
    stopping = world.spawn(lambda: a.stop("5m"))
    world.pass_time("25s")
    assert not stopping.done
    assert world.store.active("x")[0].lease_left > 20
    world.until(lambda: stopping.done)
    assert stopping.result() is True
    assert world.store.active("x")[0].lease_left == 0


def test_a_grant_that_arrives_after_the_stop_began_is_released_without_a_start_event(world: World) -> None:
    """
    1. a claim is on its way
    2. a stop begins; it waits for that answer
    3. the claim is granted: it is released at once, and the handler never called
    """
    called: list[Any] = []
    a = world.scheduler("a").every("x", "10s", called.append)
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    a.start()
    world.pass_time("10s")
    stopping = world.spawn(lambda: a.stop())
    assert not stopping.done
    hang.let_go()
    world.settle()
    assert stopping.result() is True
    assert (a.heard, called) == ([], [])
    [(_, _, _, record, counts)] = world.script.sent("release")
    assert (record.status, counts) == ("interrupted", False)
    assert world.store.active("x")[0].lease_left == 0


def test_a_takeover_that_is_granted_after_the_stop_began_is_released_too(world: World) -> None:
    a = world.scheduler("a").every("x", "1h", lasting(0))
    Other(world).hold(job_of("x", interval="1h"))
    a.start()
    world.pass_time("30s")
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    world.until(lambda: hang.hangs.is_set())
    stopping = world.spawn(lambda: a.stop())
    hang.let_go()
    world.settle()
    assert stopping.result() is True
    assert a.heard == []
    assert len(world.script.sent("release")) == 1


def test_missed_slots_that_cannot_be_told_do_not_keep_the_newest_from_being_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: Any, first_ms: int, newest_ms: int) -> None:
        raise ValueError("missed")

    a = world.scheduler("a").every("x", "10s", lambda: None)
    a.start()
    world.settle()
    start_ms = world.now_ms
    monkeypatch.setattr(a._engine, "missed", broken)
    world.clock.advance("35s")
    world.settle()
    assert sorted(a.heard.words()) == ["error", "start", "success"]
    assert [to_ms(event.slot) - start_ms for event in a.heard if event.type == "success"] == [30_000]


def test_a_run_whose_thread_had_not_begun_when_the_stop_came_never_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    a = world.scheduler("a").every("x", "10s", called.append)
    a.start()
    world.settle()
    engine = a._engine
    start = engine._threads.start
    held: list[Any] = []

    go_on = engine._threads.go_on

    def hold_runs(name: str, work: Any) -> None:
        held.append(work) if name == "anarchon-run-x" else go_on(name, work)

    monkeypatch.setattr(engine._threads, "go_on", hold_runs)
    world.pass_time("10s")
    stopping = world.spawn(lambda: a.stop())
    assert not stopping.done  # it is counted already
    start("anarchon-run-x", held[0])
    world.settle()
    assert stopping.result() is True
    assert called == []
    assert a.heard.words() == ["interrupted stop"]


def test_a_stop_waits_for_a_manual_claim_on_its_way_and_it_is_given_back(world: World) -> None:
    called: list[Any] = []
    a = world.scheduler("a").every("x", "10s", called.append)
    hang = Hang(world.clock)
    world.script.next("claim", hang)
    manual = world.spawn(lambda: a.run_now("x"))
    stopping = world.spawn(lambda: a.stop())
    assert not stopping.done
    hang.let_go()
    world.settle()
    assert stopping.result() is True
    with pytest.raises(RunRefused, match="stopping"):
        manual.result()
    assert called == []
    assert world.store.active("x") == []


def test_a_manual_run_is_told_to_stop_like_the_others(world: World) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(None))
    manual = world.spawn(lambda: a.run_now("x"))
    assert world.run(lambda: a.stop()) is True
    assert manual.result().status == "interrupted"


def test_no_backup_check_and_no_claim_is_made_after_a_stop(world: World) -> None:
    Other(world).hold(job_of("x", interval="1h"))
    a = world.scheduler("a").every("x", "1h", lasting(0), catch_up="2h")
    a.start()
    world.settle()
    world.run(lambda: a.stop())
    calls = len(world.script.calls)
    world.pass_time("3h")
    assert len(world.script.calls) == calls


def test_a_straggler_is_waited_for(world: World) -> None:
    gate = world.clock.event()
    a = world.scheduler("a").every("x", "1h", deaf(world, gate), timeout="2s")
    a.start()
    world.pass_time("1h2s")
    assert a.heard.words() == ["start", "failure"]
    stopping = world.spawn(lambda: a.stop("10s"))
    assert world.until(lambda: stopping.done) == 10_000
    assert stopping.result() is False
    gate.set()
    world.settle()
    assert world.run(lambda: a.stop()) is True


def test_stop_in_a_store_outage_is_bounded(world: World) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(None))
    a.start()
    world.pass_time("10s")
    world.script.down = True
    stopping = world.spawn(lambda: a.stop("20s"))
    assert world.until(lambda: stopping.done) == 20_000
    assert stopping.result() is False  # its end is not stored yet
    world.script.down = False
    world.pass_time("10s")
    assert world.run(lambda: a.stop()) is True


def test_a_stop_of_none_waits_without_limit(world: World) -> None:
    a = world.scheduler("a").every("x", "10s", lasting(None))
    gate = world.clock.event()
    a.every("deaf", "10s", deaf(world, gate))
    a.start()
    world.pass_time("10s")
    stopping = world.spawn(lambda: a.stop(timeout=None))
    world.pass_time("10m")
    assert not stopping.done
    gate.set()
    world.settle()
    assert stopping.result() is True


# -- many


def test_many_jobs_take_one_thread_each_and_a_few_more(world: World) -> None:
    a = world.scheduler("a")
    for number in range(200):
        a.every(f"job-{number}", "1h", lasting(0), max_late="2h")
    a.start()
    world.settle()
    assert world.alive() <= 200 + 9  # eight that ask, and the alarms'
    world.run(lambda: a.stop())
    assert world.alive() == 0


def test_what_was_done_leaves_no_thread_behind_but_idle_ones_for_a_while(world: World) -> None:
    a = world.scheduler("a").every("x", "1h", lasting(30))
    a.start()
    world.pass_time("1h40s")
    world.pass_time("30s")
    assert world.alive() == 2  # the timer and the alarms
