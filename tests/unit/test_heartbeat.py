"""The heartbeat: a lease is renewed, counted on the holder's own clock, and given up a margin before it is over.

The lease is 30 s here and the heartbeat 6 s, so the margin is a second: a holder that cannot renew is told at 29 s,
counted from just before the last renewal that succeeded was sent.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fakes import Hang
from world import World

from anarchon.alarms import Alarms
from anarchon.errors import BackendError
from anarchon.heartbeat import Heartbeat, margin_ms
from anarchon.records import Verdict


class Beating:
    """A heartbeat, what the store answers it, and what it tells, in milliseconds since the claim."""

    def __init__(self, world: World, lease_ms: int = 30_000, interval_ms: int = 6_000, asked_ago_ms: int = 0) -> None:
        self.world = world
        self.alarms = Alarms(world.clock, world.make_threads(world.clock))
        self.threads = world.make_threads(world.clock)
        self.start_ms = world.clock.monotonic_ms()
        self.acts: list[Any] = []
        self.always: Any = Verdict.OK
        self.renewals: list[int] = []
        self.lost: list[int] = []
        self.heartbeat = Heartbeat(
            job="x",
            lease_ms=lease_ms,
            interval_ms=interval_ms,
            counted_from_ms=self.start_ms - asked_ago_ms,
            renew=self.renew,
            lost=lambda: self.lost.append(self.now_ms),
            sources=world.sources(),
            alarms=self.alarms,
            threads=self.threads,
        )

    @property
    def now_ms(self) -> int:
        return self.world.clock.monotonic_ms() - self.start_ms

    def renew(self) -> Verdict:
        self.renewals.append(self.now_ms)
        act = self.acts.pop(0) if self.acts else self.always
        if isinstance(act, Hang):
            act()
            act = act.then
        if act == "fail":
            raise BackendError("away")
        return act  # type: ignore[no-any-return]

    def start(self) -> Beating:
        self.world.run(self.heartbeat.start)
        return self

    def end(self) -> None:
        self.heartbeat.stop()
        self.alarms.close()
        self.world.settle()


@pytest.fixture
def beating(world: World) -> Any:
    made: list[Beating] = []

    def make(**given: Any) -> Beating:
        made.append(Beating(world, **given))
        return made[-1]

    yield make
    for one in made:
        one.end()


# -- renewing


def test_the_lease_is_renewed_every_heartbeat_and_nothing_is_lost(world: World, beating: Any) -> None:
    beat = beating().start()
    world.pass_time("5m")
    assert beat.renewals == [6_000 * n for n in range(1, 51)]
    assert beat.lost == []
    assert beat.heartbeat.trusted()


def test_a_run_that_is_over_before_the_first_heartbeat_takes_no_thread(world: World, beating: Any) -> None:
    beat = beating().start()
    world.pass_time("5s")
    beat.heartbeat.stop()
    world.pass_time("1m")
    assert beat.renewals == []
    assert not beat.threads._workers


def test_after_stop_there_are_no_renewals_and_no_alarm(world: World, beating: Any) -> None:
    beat = beating().start()
    world.pass_time("10s")
    beat.heartbeat.stop()
    beat.always = "fail"
    world.pass_time("5m")
    assert beat.renewals == [6_000]
    assert beat.lost == []


def test_stop_does_not_wait_for_a_renewal_on_its_way_and_its_answer_alarms_nobody(world: World, beating: Any) -> None:
    """
    1. a renewal is on its way, and hangs
    2. the run's end is stored; the heartbeat is stopped, and does not wait
    3. the renewal comes back: lost, since the run is over
    4. nobody is told
    """
    beat = beating()
    hang = Hang(world.clock, then=Verdict.LOST)
    beat.acts = [hang]
    beat.start()
    world.pass_time("6s")  # 1
    beat.heartbeat.stop()  # 2
    hang.let_go()  # 3
    world.pass_time("5m")
    assert beat.lost == []  # 4
    assert beat.renewals == [6_000]


def test_a_stop_before_the_start_is_kept_to(world: World, beating: Any) -> None:
    beat = beating()
    beat.heartbeat.stop()
    beat.start()
    world.pass_time("5m")
    assert (beat.renewals, beat.lost) == ([], [])


# -- failures


def test_after_a_failure_it_is_tried_again_sooner_than_a_heartbeat(world: World, beating: Any) -> None:
    beat = beating()
    beat.acts = ["fail"] * 4
    beat.start()
    world.pass_time("13s")
    gaps = [later - sooner for sooner, later in zip(beat.renewals, beat.renewals[1:])]
    assert beat.renewals[0] == 6_000
    assert all(low <= gap <= 2 * low for gap, low in zip(gaps[:4], [50, 100, 200, 400]))
    assert gaps[4:] == [6_000] or len(gaps) == 4
    assert beat.lost == []


def test_a_retry_never_waits_longer_than_a_heartbeat(world: World, beating: Any) -> None:
    beat = beating(lease_ms=1_000, interval_ms=200)
    beat.always = "fail"
    beat.start()
    world.pass_time("10s")
    assert max(later - sooner for sooner, later in zip(beat.renewals, beat.renewals[1:])) <= 200


def test_the_holder_is_told_a_margin_before_its_lease_is_over(world: World, beating: Any) -> None:
    beat = beating()
    beat.always = "fail"
    beat.start()
    world.pass_time("29s")
    world.pass_time("1ms")
    assert beat.lost == [29_000]
    assert not beat.heartbeat.trusted()


@pytest.mark.parametrize(("lease_ms", "margin"), [(1_000, 100), (5_000, 500), (10_000, 1_000), (3_600_000, 1_000)])
def test_the_margin_is_a_tenth_of_the_lease_and_at_most_a_second(
    world: World, beating: Any, lease_ms: int, margin: int
) -> None:
    assert margin_ms(lease_ms) == margin
    beat = beating(lease_ms=lease_ms, interval_ms=lease_ms // 5)
    beat.always = "fail"
    beat.start()
    world.until(lambda: beat.lost, "2h")
    assert beat.lost == [lease_ms - margin]


def test_the_lease_is_counted_from_before_the_first_ask(world: World, beating: Any) -> None:
    """
    1. a claim is sent; its answer takes four seconds
    2. the store granted the lease as soon as the claim came: it is over 30 s after the claim was sent, at the soonest
    3. the holder is told 29 s after it was sent, 25 s after the answer
    """
    beat = beating(asked_ago_ms=4_000)
    beat.always = "fail"
    beat.start()
    world.pass_time("1m")
    assert beat.lost == [25_000]


def test_a_slow_renewal_adds_nothing(world: World, beating: Any) -> None:
    """
    1. at 6 s a renewal is sent
    2. its answer comes five seconds later
    3. nothing gets through any more
    4. the holder is told at 6 + 29 s, not at 11 + 29 s
    """
    beat = beating()
    beat.acts = [Hang(world.clock, 5_000, then=Verdict.OK)]
    beat.always = "fail"
    beat.start()
    world.pass_time("1m")
    assert beat.lost == [35_000]


def test_a_renewal_that_hangs_does_not_keep_the_deadline_from_ringing(world: World, beating: Any) -> None:
    """
    1. at 6 s a renewal is sent, and hangs
    2. at 29 s the holder is told, though that call has not come back
    """
    beat = beating()
    hang = Hang(world.clock, then="fail")
    beat.acts = [hang]
    beat.start()
    world.pass_time("29s")
    assert beat.lost == [29_000]
    assert beat.renewals == [6_000]
    hang.let_go()


def test_an_answer_from_long_ago_does_not_make_the_lease_good_again(world: World, beating: Any) -> None:
    """
    1. at 6 s a renewal is sent; its answer, ok, comes at 46 s
    2. counted from when it was sent, that lease was over at 36 s
    3. told once at 29 s; still not to be trusted at 46 s; the next renewal makes it good
    """
    beat = beating()
    beat.acts = [Hang(world.clock, 40_000, then=Verdict.OK)]
    beat.start()
    world.pass_time("46s")
    assert beat.lost == [29_000]
    assert not beat.heartbeat.trusted()
    world.pass_time("6s")
    assert beat.lost == [29_000]


def test_renewals_go_on_after_the_deadline(world: World, beating: Any) -> None:
    """A lease that is over but free is renewed by its own holder: no backup starts while the handler winds down."""
    beat = beating()
    beat.acts = ["fail"] * 13
    beat.start()
    world.pass_time("1m")
    assert beat.lost == [29_000]
    assert beat.renewals[-1] > 50_000


def test_a_renewal_in_the_last_moment_keeps_the_holder_from_being_told(world: World, beating: Any) -> None:
    beat = beating()
    beat.acts = ["fail"] * 9
    beat.start()
    world.pass_time("2m")
    last = next(b for a, b in zip(beat.renewals, beat.renewals[1:]) if b - a == 6_000) - 6_000
    assert 20_000 < last < 29_000
    assert beat.lost == []


# -- what the store says


def test_a_lease_that_the_store_says_is_lost_is_told_at_once_and_once(world: World, beating: Any) -> None:
    beat = beating()
    beat.always = Verdict.LOST
    beat.start()
    world.pass_time("5m")
    assert beat.lost == [6_000]
    assert beat.renewals == [6_000]
    assert not beat.heartbeat.trusted()


def test_a_renewal_that_raced_with_the_end_alarms_nobody(world: World, beating: Any) -> None:
    """
    1. finish is on its way, and so is a renewal
    2. finish comes first; its answer is lost, and it is sent again and again
    3. the renewal is answered: finished, by this very token
    4. nobody is told, not even when the deadline passes; the run's end may take a while to be known
    """
    beat = beating()
    beat.always = Verdict.FINISHED
    beat.start()
    world.pass_time("5m")
    assert beat.lost == []
    assert beat.renewals == [6_000]


# -- at the start


def test_a_grant_that_was_long_on_its_way_is_renewed_before_anything_begins(world: World, beating: Any) -> None:
    beat = beating(asked_ago_ms=23_000)
    beat.start()
    assert beat.renewals == [0]
    assert beat.heartbeat.trusted()
    world.pass_time("12s")
    assert beat.renewals == [0, 6_000, 12_000]
    assert beat.lost == []


def test_a_grant_that_comes_in_good_time_is_not_renewed_at_once(world: World, beating: Any) -> None:
    assert beating(asked_ago_ms=22_999).start().renewals == []


def test_a_grant_that_is_over_when_it_comes_back_is_not_trusted(world: World, beating: Any) -> None:
    beat = beating(asked_ago_ms=29_000)
    beat.acts = ["fail"]
    beat.start()
    assert not beat.heartbeat.trusted()
    assert beat.lost == [0]


def test_a_grant_that_somebody_else_has_taken_over_meanwhile_is_told_and_not_watched(
    world: World, beating: Any
) -> None:
    beat = beating(asked_ago_ms=40_000)
    beat.acts = [Verdict.LOST]
    beat.start()
    world.pass_time("1m")
    assert beat.lost == [0]
    assert beat.renewals == [0]


# -- threads


def test_a_heartbeat_that_finds_no_thread_tries_again_and_the_deadline_stands(
    world: World, beating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = beating()
    start = beat.threads.start
    monkeypatch.setattr(beat.threads, "start", no_thread)
    beat.start()
    world.pass_time("27s500ms")
    assert (beat.renewals, beat.lost) == ([], [])
    monkeypatch.setattr(beat.threads, "start", start)
    world.pass_time("500ms")
    assert len(beat.renewals) == 1
    world.pass_time("1m")
    assert beat.lost == []


def test_a_heartbeat_that_never_finds_a_thread_tells_in_time(
    world: World, beating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = beating()
    monkeypatch.setattr(beat.threads, "start", no_thread)
    beat.start()
    world.pass_time("1m")
    assert beat.lost == [29_000]


def test_a_deadline_that_nobody_could_watch_is_an_error(beating: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beat = beating()
    monkeypatch.setattr(beat.alarms._threads, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        beat.heartbeat.start()


def test_a_thread_that_dies_all_the_same_is_told_of_and_the_deadline_stands(
    world: World, beating: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    beat = beating()

    def broken() -> Verdict:
        raise ZeroDivisionError

    beat.heartbeat._renew = broken
    beat.start()
    world.pass_time("1m")
    assert [args.exc_type for args in told] == [ZeroDivisionError]
    assert beat.lost == [29_000]


def no_thread(name: str, work: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_deadline_that_rings_as_a_renewal_moves_it_tells_nobody(world: World, beating: Any) -> None:
    """
    1. the deadline is due: its call has been taken off the heap
    2. before it is made, a renewal is answered, and moves the deadline
    3. the call finds that the time has not come
    """
    beat = beating().start()
    world.pass_time("28s")
    beat.heartbeat._expired()
    assert beat.lost == []


def test_a_renewal_that_comes_back_after_the_stop_moves_no_deadline(world: World, beating: Any) -> None:
    beat = beating()
    hang = Hang(world.clock, then=Verdict.OK)
    beat.acts = [hang]
    beat.start()
    world.pass_time("6s")
    beat.heartbeat.stop()
    hang.let_go()
    world.settle()
    assert beat.alarms._heap == [] or all(alarm.call is None for _, _, alarm in beat.alarms._heap)
