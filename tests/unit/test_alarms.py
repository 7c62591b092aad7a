"""Alarms ring once, in order, on one thread, and never when they were cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from world import World

from anarchon.alarms import Alarms


@pytest.fixture
def alarms(world: World) -> Iterator[Alarms]:
    alarms = Alarms(world.clock, world.make_threads(world.clock))
    yield alarms
    alarms.close()


def at(world: World) -> int:
    return world.clock.monotonic_ms()


def test_alarms_ring_in_the_order_of_their_instants_and_of_their_setting(world: World, alarms: Alarms) -> None:
    rung: list[tuple[str, int]] = []
    start = at(world)
    for name, delay_ms in [("c", 3_000), ("a", 1_000), ("b1", 2_000), ("b2", 2_000)]:
        alarms.after(delay_ms, lambda name=name: rung.append((name, at(world) - start)))
    world.pass_time("5s")
    assert rung == [("a", 1_000), ("b1", 2_000), ("b2", 2_000), ("c", 3_000)]


def test_an_alarm_whose_instant_is_past_rings_at_once(world: World, alarms: Alarms) -> None:
    rung: list[int] = []
    alarms.at(at(world) - 5_000, lambda: rung.append(at(world)))
    start = at(world)
    world.settle()
    assert rung == [start]


def test_a_sooner_alarm_does_not_wait_for_a_later_one(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarms.after(60_000, lambda: rung.append("late"))
    world.settle()
    alarms.after(10, lambda: rung.append("soon"))
    world.pass_time("10ms")
    assert rung == ["soon"]


def test_a_cancelled_alarm_never_rings(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarm = alarms.after(1_000, lambda: rung.append("cancelled"))
    alarms.after(1_000, lambda: rung.append("rings"))
    alarm.cancel()
    world.pass_time("2s")
    assert rung == ["rings"]


def test_one_alarm_can_cancel_another_that_is_due_with_it(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarms.after(1_000, lambda: (rung.append("first"), second.cancel()))
    second = alarms.after(1_000, lambda: rung.append("second"))
    world.pass_time("2s")
    assert rung == ["first"]


def test_an_alarm_that_raises_does_not_silence_the_others(
    world: World, alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    rung: list[str] = []
    alarms.after(1_000, lambda: 1 / 0)
    alarms.after(1_000, lambda: rung.append("same instant"))
    alarms.after(2_000, lambda: rung.append("later"))
    world.pass_time("2s")
    assert rung == ["same instant", "later"]
    assert [args.exc_type for args in told] == [ZeroDivisionError]


def test_close_drops_what_was_set_and_what_is_set_after_it(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarms.after(1_000, lambda: rung.append("before"))
    alarms.close()
    alarms.after(1_000, lambda: rung.append("after"))
    alarms.keep()
    world.pass_time("20s")
    assert rung == []
    assert world.alive() == 0


def test_an_alarm_may_set_another_and_may_close(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarms.after(1_000, lambda: alarms.after(1_000, lambda: (rung.append("second"), alarms.close())))
    alarms.after(3_000, lambda: rung.append("dropped"))
    world.pass_time("5s")
    assert rung == ["second"]


def test_the_thread_is_there_only_while_something_is_set(world: World, alarms: Alarms) -> None:
    assert world.alive() == 0
    alarms.after(1_000, lambda: None)
    world.settle()
    assert world.alive() == 1
    world.pass_time("1s")
    world.pass_time("10s")  # its idle time in the cache
    assert world.alive() == 0


def test_a_kept_thread_stays_without_alarms_and_goes_when_it_is_kept_no_longer(world: World, alarms: Alarms) -> None:
    rung: list[str] = []
    alarms.keep()
    world.pass_time("1m")
    assert world.alive() == 1
    alarms.after(1_000, lambda: rung.append("rings"))
    world.pass_time("1s")
    assert rung == ["rings"]
    alarms.keep_no_longer()
    world.pass_time("10s")
    assert world.alive() == 0


def test_long_waits_are_cut_to_a_second(world: World, alarms: Alarms) -> None:
    """
    A wait on an event stands still while the machine is suspended, the monotonic clock does not:
      1. an alarm is set for an hour from now
      2. the machine is suspended for an hour: the clock moves, the wait does not
      3. within one second of waking up the alarm rings
    """
    alarms.after(3_600_000, lambda: None)
    world.settle()
    with world.clock._moved:
        waits = [ends - at(world) for _, ends in world.clock._waits.values() if ends is not None]
    assert waits == [1_000]


def test_an_alarm_that_finds_no_thread_is_refused_and_not_set(
    world: World, alarms: Alarms, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError):
        alarms.after(1_000, lambda: rung.append("refused"))
    with pytest.raises(RuntimeError):
        alarms.keep()
    monkeypatch.undo()
    alarms.after(2_000, lambda: rung.append("set"))
    world.pass_time("3s")
    assert rung == ["set"]


def test_a_kept_thread_needs_no_other(world: World, alarms: Alarms, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[str] = []
    alarms.keep()
    world.settle()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    alarms.after(1_000, lambda: rung.append("rings"))
    world.pass_time("1s")
    assert rung == ["rings"]


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
