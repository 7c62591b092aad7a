"""What the winner of a slot tells of the slots before it."""

from __future__ import annotations

from datetime import timedelta

from world import World

from anarchon import Event


def _run_one_slot(world: World) -> Event:
    a = world.scheduler().every("sync", "10s", lambda: None)
    a.start()
    world.pass_time("10s")
    world.run(a.stop)
    [start] = a.heard.of("start")
    assert isinstance(start, Event)
    return start


def test_start_names_the_slot_granted_before_so_that_a_gap_shows(world: World) -> None:
    first = _run_one_slot(world)
    assert first.previous is None, "nothing was granted before the first slot of all"

    world.pass_time("5m")  # nobody is up
    second = _run_one_slot(world)
    assert second.previous == first.slot
    assert second.slot is not None and first.slot is not None
    assert second.slot - first.slot > timedelta(minutes=5)


def test_start_of_a_manual_run_names_no_slot_before_it(world: World) -> None:
    _run_one_slot(world)
    a = world.scheduler().every("sync", "10s", lambda: None)
    world.run(lambda: a.run_now("sync"))
    assert [event.previous for event in a.heard.of("start")] == [None]
