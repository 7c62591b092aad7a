"""Local runs: what goes on in this instance, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from parts import job_of
from world import World

from anarchon import RunContext
from anarchon.context import current_run
from anarchon.runners.local_runs import LEFT_BEHIND, LocalRuns


@pytest.fixture
def runs(world: World) -> LocalRuns:
    return LocalRuns(world.clock)


def context(world: World, job: str = "x", run_id: str = "1") -> RunContext:
    return RunContext(
        job=job, slot_ms=world.now_ms, run_id=run_id, attempt=1, trigger="scheduled", token="t", fence=1,
        instance_id="a", deadline_ms=None, signal=world.clock.event(),
    )  # fmt: skip


def inside(run: RunContext, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as it is made from inside of a handler of that run."""

    def as_handler() -> Any:
        current_run.set(run)
        return call()

    return as_handler


def waiting(runs: LocalRuns, timeout_ms: int | None = None) -> Callable[[], bool]:
    def wait() -> bool:
        with runs.excused() as mine:
            return runs.wait_until_over(timeout_ms, but_for_excused=mine)

    return wait


def test_a_run_is_known_from_its_beginning_to_its_end(world: World, runs: LocalRuns) -> None:
    run = context(world)
    assert (runs.over(), runs.holds("x", "1"), runs.running("x")) == (True, False, False)
    assert runs.add(run)
    assert (runs.over(), runs.holds("x", "1"), runs.running("x")) == (False, True, True)
    assert (runs.holds("x", "2"), runs.holds("y", "1"), runs.running("y")) == (False, False, False)
    runs.remove(run)
    assert runs.over()


def test_a_stop_tells_every_run_and_lets_none_begin(world: World, runs: LocalRuns) -> None:
    going_on = [context(world, run_id=str(number)) for number in range(3)]
    for run in going_on:
        runs.add(run)
    assert not runs.stopping
    runs.stop()
    assert [run.reason for run in going_on] == ["stop"] * 3
    assert runs.stopping
    assert runs.add(context(world, "y")) is False
    assert not runs.running("y")


def test_a_run_that_must_be_alone_does_not_begin_beside_another_of_its_job(world: World, runs: LocalRuns) -> None:
    assert runs.add(context(world, run_id="1"), alone=True)
    assert not runs.add(context(world, run_id="2"), alone=True)
    assert runs.add(context(world, run_id="3"))
    assert runs.add(context(world, "y"), alone=True)


def test_handlers_left_behind_block_their_job_by_its_overlap_rule(runs: LocalRuns) -> None:
    skip, allow = job_of("x"), job_of("x", overlap="allow")
    assert (runs.blocked(skip), runs.blocked(allow)) == (False, False)
    runs.left_behind("x", +1)
    assert (runs.blocked(skip), runs.blocked(allow)) == (True, False)
    for _ in range(LEFT_BEHIND - 1):
        runs.left_behind("x", +1)
    assert runs.blocked(allow)
    assert not runs.blocked(job_of("y"))
    for _ in range(LEFT_BEHIND):
        runs.left_behind("x", -1)
    assert (runs.blocked(skip), runs.over()) == (False, True)


def test_whoever_waits_is_woken_by_the_last_that_ends(world: World, runs: LocalRuns) -> None:
    run = context(world)
    runs.add(run)
    runs.left_behind("y", +1)
    tasks = [world.spawn(waiting(runs)) for _ in range(3)]
    runs.remove(run)
    world.settle()
    assert not any(task.done for task in tasks)
    runs.left_behind("y", -1)
    world.settle()
    assert [task.result() for task in tasks] == [True] * 3


def test_a_wait_that_is_too_short_says_so(world: World, runs: LocalRuns) -> None:
    runs.add(context(world))
    task = world.spawn(waiting(runs, 2_500))
    assert world.until(lambda: task.done) == 2_500
    assert task.result() is False


def test_a_handler_does_not_wait_for_its_own_run(world: World, runs: LocalRuns) -> None:
    mine, other = context(world), context(world, run_id="2")
    runs.add(mine)
    runs.add(other)
    task = world.spawn(inside(mine, waiting(runs)))
    assert not task.done
    runs.remove(other)
    world.settle()
    assert task.result() is True
    assert not runs.over()


def test_two_handlers_that_wait_do_not_wait_for_each_other(world: World, runs: LocalRuns) -> None:
    """
    1. the handlers of two runs both stop the scheduler, without a limit of time
    2. each waits for all but itself, and so for the other
    3. neither could ever end
    """
    one, two = context(world), context(world, run_id="2")
    runs.add(one)
    runs.add(two)
    first = world.spawn(inside(one, waiting(runs)))
    assert not first.done
    second = world.spawn(inside(two, waiting(runs)))
    assert second.result() is True
    runs.remove(two)  # the second goes on and ends; the first has waited for that, or for less
    world.settle()
    assert first.result() is True


def test_whoever_waits_from_outside_waits_for_those_that_wait_inside(world: World, runs: LocalRuns) -> None:
    mine, other = context(world), context(world, run_id="2")
    runs.add(mine)
    runs.add(other)
    from_inside = world.spawn(inside(mine, waiting(runs)))
    outside = world.spawn(waiting(runs))
    runs.remove(other)
    world.settle()
    assert (from_inside.done, outside.done) == (True, False)
    runs.remove(mine)
    world.settle()
    assert outside.result() is True


def test_a_handler_that_was_left_behind_does_not_wait_for_itself(world: World, runs: LocalRuns) -> None:
    run = context(world)
    runs.add(run)
    runs.left_behind("x", +1)
    runs.remove(run)
    assert world.run(inside(run, waiting(runs, 5_000))) is True
    assert world.run(waiting(runs, 5_000)) is False
    runs.left_behind("x", +1)  # another one of the same job
    assert world.run(inside(run, waiting(runs, 5_000))) is False
