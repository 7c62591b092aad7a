"""The store's clock: what an instance makes of the answers that carry the store's time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import pytest
from world import Task, World

from anarchon.store_clock import StoreClock
from anarchon.testing import ManualClock


class Host:
    """A host whose clock differs from its store's, and the way between the two."""

    def __init__(self, world: World, skew: str = "0s", clock_of: Callable[[str], Hashable] = lambda job: None) -> None:
        self.world = world
        self.clock: ManualClock = world.skewed_clock(skew)
        self.there_ms = self.back_ms = 0
        self.asked = 0
        self.fails = False
        self.ahead_ms = 0
        self.store_clock = StoreClock(self.clock, self.ask, clock_of)

    def ask(self, job: str) -> None:
        """One round trip: so long there, the store reads its clock, so long back."""
        self.asked += 1
        sent_ms = self.clock.monotonic_ms()
        if self.fails:
            raise OSError("away")
        self.world.clock.advance(self.there_ms / 1000)
        self.clock.advance(self.there_ms / 1000)
        store_ms = self.world.now_ms + self.ahead_ms
        self.world.clock.advance(self.back_ms / 1000)
        self.clock.advance(self.back_ms / 1000)
        self.store_clock.observe(job, sent_ms, store_ms)

    def error_ms(self, job: str = "x") -> int:
        return self.store_clock.now_ms(job) - self.world.now_ms - self.ahead_ms


def test_until_the_store_has_been_reached_the_hosts_clock_serves(world: World) -> None:
    host = Host(world, "1h")
    assert host.store_clock.unknown("x")
    assert host.error_ms() == 3_600_000


@pytest.mark.parametrize("skew", ["1h", "-1h", "250ms", "-1d"])
def test_one_answer_sets_a_wrong_clock_right(world: World, skew: str) -> None:
    host = Host(world, skew)
    host.store_clock.refresh("x")
    assert not host.store_clock.unknown("x")
    assert host.error_ms() == 0


@pytest.mark.parametrize(("there_ms", "back_ms"), [(100, 100), (200, 0), (0, 200), (37, 150)])
def test_the_estimate_is_wrong_by_half_the_round_trip_at_most(world: World, there_ms: int, back_ms: int) -> None:
    host = Host(world, "1h")
    host.there_ms, host.back_ms = there_ms, back_ms
    host.store_clock.refresh("x")
    assert abs(host.error_ms()) <= (there_ms + back_ms) / 2


def test_of_the_last_samples_the_one_with_the_shortest_round_trip_counts(world: World) -> None:
    host = Host(world)
    errors = []
    for there_ms, back_ms in [(400, 0), (10, 10), (0, 600), (300, 0)]:
        host.there_ms, host.back_ms = there_ms, back_ms
        host.store_clock.refresh("x")
        errors.append(host.error_ms())
    assert errors == [200, 0, 0, 0]


def test_of_samples_that_are_as_short_the_mean_counts(world: World) -> None:
    """Two clocks that agree, read a moment apart: now and then a millisecond begins in between."""
    host = Host(world)
    errors = []
    for there_ms in [1, 0, 0, 1, 0, 0, 0, 0, 0]:
        # What the round trip took is cut off.
        host.ahead_ms = -there_ms
        host.store_clock.refresh("x")
        host.ahead_ms = 0
        errors.append(host.error_ms())
    assert errors == [-1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_a_sample_is_forgotten_after_eight_more(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    host.there_ms = 200
    for expected in [0] * 7 + [100]:
        host.store_clock.refresh("x")
        assert host.error_ms() == expected


def test_a_sample_that_contradicts_the_others_replaces_them_all(world: World) -> None:
    """The store's clock was stepped by five seconds: more than half of both round trips together."""
    host = Host(world)
    for _ in range(3):
        host.store_clock.refresh("x")
    host.ahead_ms = 5_000
    host.there_ms = host.back_ms = 100
    host.store_clock.refresh("x")
    assert host.error_ms() == 0
    host.there_ms = 400  # a worse sample does not bring the old ones back
    host.store_clock.refresh("x")
    assert host.error_ms() == 0


def test_a_sample_within_its_round_trip_contradicts_nobody(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    host.there_ms = 900
    host.store_clock.refresh("x")
    assert host.error_ms() == 0


def test_a_step_of_the_hosts_own_clock_is_taken_out_and_the_store_asked_anew(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    host.clock.step_wall("1h")
    host.store_clock.look("x")
    assert (host.asked, host.error_ms()) == (2, 0)


def test_a_step_is_taken_out_also_while_the_store_is_away(world: World) -> None:
    host = Host(world, "10s")
    host.store_clock.refresh("x")
    host.fails = True
    host.clock.step_wall("-2h")
    host.store_clock.look("x")
    assert host.error_ms() == 0
    assert host.store_clock.unknown("x")
    host.store_clock.look("x")
    assert host.asked == 3  # asked again at each look until there is an answer
    host.fails = False
    host.store_clock.look("x")
    assert (host.error_ms(), host.store_clock.unknown("x")) == (0, False)


def test_a_step_that_an_answer_has_in_it_already_is_not_taken_out_again(world: World) -> None:
    """
    1. the host's clock is stepped by an hour
    2. before anybody looks, a claim is answered: the new sample has the step in it
    3. somebody looks, and the store is away
    4. the step must not be taken out of the new sample
    """
    host = Host(world)
    host.store_clock.refresh("x")
    host.clock.step_wall("1h")  # 1
    host.store_clock.observe("x", host.clock.monotonic_ms(), world.now_ms)  # 2
    host.fails = True
    host.store_clock.look("x")  # 3
    assert host.error_ms() == 0  # 4
    assert host.asked == 1


@pytest.mark.parametrize("step", ["-1h", "365d"])
@pytest.mark.parametrize("noticed", [True, False], ids=["another has looked since", "nobody has looked since"])
def test_an_answer_that_was_on_its_way_when_the_clock_was_set_is_not_believed(
    world: World, noticed: bool, step: str
) -> None:
    """
    1. a claim is asked for; the store, which keeps this host's time, reads its clock
    2. that clock is set; perhaps somebody looks, and the store is asked anew
    3. the answer comes in, with a time that is over: whoever looks next must not take it for the store's
    """
    host = Host(world)
    host.store_clock.refresh("x")
    sent_ms, store_ms = host.clock.monotonic_ms(), world.now_ms  # 1
    for clock in (world.clock, host.clock):  # 2
        clock.step_wall(step)
        clock.advance("5ms")
    if noticed:
        host.store_clock.look("x")
        assert host.error_ms() == 0
    host.store_clock.observe("x", sent_ms, store_ms)  # 3
    host.store_clock.look("x")
    assert (host.error_ms(), host.store_clock.unknown("x")) == (0, False)


def test_what_is_less_than_a_second_is_no_step(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    host.clock.step_wall("1s")
    host.store_clock.look("x")
    assert host.asked == 1
    host.clock.step_wall("1ms")
    host.store_clock.look("x")
    assert host.asked == 2


def test_a_sample_older_than_ten_minutes_is_refreshed_by_a_look(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    world.pass_time("10m")
    host.store_clock.look("x")
    assert host.asked == 1
    world.pass_time("1ms")
    host.store_clock.look("x")
    assert host.asked == 2


def test_any_answer_keeps_the_estimate_fresh(world: World) -> None:
    host = Host(world)
    host.store_clock.refresh("x")
    for _ in range(3):
        world.pass_time("9m")
        host.store_clock.observe("x", host.clock.monotonic_ms(), world.now_ms)
        host.store_clock.look("x")
    assert host.asked == 1


def test_a_store_that_fails_leaves_the_estimate_as_it_is(world: World) -> None:
    host = Host(world, "1h")
    host.store_clock.refresh("x")
    host.fails = True
    world.pass_time("11m")
    host.store_clock.look("x")
    assert (host.asked, host.error_ms()) == (2, 0)


def test_one_thread_asks_and_the_others_wait_for_its_answer(world: World) -> None:
    """
    1. three threads look at once; the store has not been reached yet
    2. one of them asks; the store hangs; the others wait
    3. the store answers: all three go on, and none of them asks again
    """
    clock = world.skewed_clock("1h")
    gate = clock.event()
    asked: list[str] = []

    def ask(job: str) -> None:
        asked.append(job)
        clock.wait(gate, None)
        store_clock.observe(job, clock.monotonic_ms(), world.now_ms)

    store_clock = StoreClock(clock, ask)
    tasks = [world.spawn(lambda: store_clock.look("x")) for _ in range(3)]
    assert [task.done for task in tasks] == [False] * 3
    gate.set()
    world.settle()
    assert [task.done for task in tasks] == [True] * 3
    assert len(asked) == 1
    assert store_clock.now_ms("x") == world.now_ms


def test_an_ask_that_was_interrupted_before_it_began_is_not_waited_for_for_ever(world: World) -> None:
    """
    1. the main thread is to ask; Ctrl-C ends it before it does, and nobody is told
    2. another thread looks: it waits for that answer, and after a minute goes on without
    3. whoever looks next asks
    """
    host = Host(world)
    with host.store_clock._lock:
        host.store_clock._join(host.store_clock._estimate(None))
    look = world.spawn(lambda: host.store_clock.look("x"))
    world.pass_time("59s")
    assert not look.done
    world.pass_time("1s")
    assert (look.done, host.asked) == (True, 0)
    host.store_clock.look("x")
    assert (host.asked, host.error_ms()) == (1, 0)


def test_one_that_looked_before_an_answer_does_not_ask_again_after_it(world: World) -> None:
    """
    1. the host's clock is stepped; a thread looks, finds that the store must be asked, and is held up
    2. another looks: it asks and is answered, or waits for the first one's answer
    3. the first goes on: between the two of them the store is asked once
    """
    others: list[Task] = []
    held_up = False

    def another_looks() -> None:
        nonlocal held_up
        if not held_up:
            held_up = True
            others.append(world.spawn(lambda: host.store_clock.look("x")))

    def clock_of(job: str) -> None:
        named.append(job)
        if len(named) == 2:  # once for the look; whoever needs the name again has not begun to ask
            another_looks()

    def ask(job: str) -> None:
        another_looks()
        host.ask(job)

    host, named = Host(world, clock_of=clock_of), ["for the start"] * 2
    host.store_clock.refresh("x")
    host.clock.step_wall("1h")
    host.store_clock._ask = ask
    named.clear()
    host.store_clock.look("x")
    world.settle()
    assert [other.done for other in others] == [True]
    assert (host.asked, host.store_clock.unknown("x")) == (2, False)


def test_those_who_wait_go_on_when_the_answer_is_bad_and_do_not_ask_one_after_another(world: World) -> None:
    clock = world.skewed_clock()
    gate = clock.event()
    asked: list[str] = []

    def ask(job: str) -> None:
        asked.append(job)
        clock.wait(gate, None)
        raise SystemError("no answer")

    store_clock = StoreClock(clock, ask)
    tasks = [world.spawn(lambda: store_clock.refresh("x")) for _ in range(3)]
    gate.set()
    world.settle()
    assert [task.done for task in tasks] == [True] * 3
    assert len(asked) == 1


def test_nobody_waits_for_the_time_while_the_store_is_asked(world: World) -> None:
    clock = world.skewed_clock()
    gate = clock.event()
    store_clock = StoreClock(clock, lambda job: clock.wait(gate, None))
    world.spawn(lambda: store_clock.refresh("x"))
    assert store_clock.now_ms("x") == world.now_ms
    store_clock.observe("x", clock.monotonic_ms(), world.now_ms + 5_000)
    assert store_clock.now_ms("x") == world.now_ms + 5_000
    gate.set()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_difference_is_told_once_and_again_when_it_changes_much(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(world, "1h")
    with caplog.at_level(logging.WARNING, "anarchon"):
        for _ in range(3):
            host.store_clock.refresh("x")
        assert told(caplog) == ["This host's clock is 1h ahead of the store's. Slots keep the store's time."]
        host.ahead_ms = 900  # less than a second of change is not worth it
        host.store_clock.refresh("x")
        assert len(told(caplog)) == 1
        host.ahead_ms = 7_200_000
        host.store_clock.refresh("x")
    assert told(caplog)[1:] == ["This host's clock is 1h behind the store's. Slots keep the store's time."]


def test_a_difference_that_went_away_and_came_back_is_told_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(world)
    with caplog.at_level(logging.WARNING, "anarchon"):
        for ahead_ms in (60_000, 0, 60_000):
            host.ahead_ms = ahead_ms
            host.store_clock.refresh("x")
    assert len(told(caplog)) == 2


def test_a_difference_about_a_second_is_not_told_over_and_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(world)
    with caplog.at_level(logging.WARNING, "anarchon"):
        for ahead_ms in (1_004, 990, 1_004, 990, 1_004):
            host.ahead_ms = ahead_ms
            host.store_clock.refresh("x")
    assert len(told(caplog)) == 1


def test_an_answer_that_was_slow_to_come_is_not_taken_for_a_difference(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(world)
    host.there_ms = 4_000
    with caplog.at_level(logging.WARNING, "anarchon"):
        host.store_clock.refresh("x")
        assert told(caplog) == []
        host.ahead_ms = 60_000
        host.store_clock.refresh("x")
    assert len(told(caplog)) == 1


def test_a_cluster_has_a_clock_a_node(world: World) -> None:
    nodes = {"a": "node-1", "b": "node-2", "c": "node-1"}
    host = Host(world, clock_of=nodes.__getitem__)
    host.store_clock.refresh("a")
    host.ahead_ms = 30_000
    host.store_clock.refresh("b")
    now_ms = world.now_ms
    assert [host.store_clock.now_ms(job) - now_ms for job in "abc"] == [0, 30_000, 0]
    host.clock.step_wall("1h")  # the host's own step is taken out of each
    host.fails = True
    host.store_clock.look("a")
    assert [host.store_clock.now_ms(job) - now_ms for job in "abc"] == [0, 30_000, 0]


def test_without_a_clock_to_ask_the_hosts_serves_whatever_happens_to_it(world: World) -> None:
    clock = world.skewed_clock("1h")
    store_clock = StoreClock(clock)
    clock.step_wall("5m")
    store_clock.look("x")
    store_clock.refresh("x")
    assert store_clock.now_ms("x") == clock.now_ms()
