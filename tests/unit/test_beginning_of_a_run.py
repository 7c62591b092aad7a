"""The start of a run as listeners see it: part of what the timeout ends, and the last moment to begin nothing."""

from __future__ import annotations

from typing import Any

import pytest
from world import World

from anarchon import ConfigurationError, MemoryBackend, RunContext, Scheduler


def test_a_timeout_ends_a_run_whose_start_listener_hangs(world: World) -> None:
    """
    1. a run is granted; its start listener waits for something that never comes
    2. the timeout is over: the run has failed, and its lease is free for others
    3. the listener ends at last: the handler is not called any more
    """
    never = world.clock.event()
    called: list[RunContext] = []
    a = world.scheduler().every("x", "10s", lambda ctx: called.append(ctx), timeout="1s")
    a.on("start", lambda event: never.wait())
    a.start()
    world.pass_time("12s")
    assert a.heard.words("error") == ["start", "failure"]
    assert a.active("x") == []
    never.set()
    world.pass_time("1s")
    assert called == []


def test_a_run_that_is_told_to_stop_while_its_start_is_told_never_begins(world: World) -> None:
    called: list[RunContext] = []
    a = world.scheduler().every("x", "10s", lambda ctx: called.append(ctx))
    a.on("start", lambda event: a.stop("1m"))
    a.start()
    world.pass_time("10s")
    assert called == []
    assert [record.status for record in a.history("x")] == ["interrupted"]


async def coroutine(context: Any) -> None: ...


def generator(context: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("around_run", "said"),
    [
        (3, "around_run must be callable, not 3"),
        (lambda: None, "around_run must take the context"),
        (coroutine, "around_run is a coroutine function"),
        (generator, "around_run is a generator function"),
    ],
)
def test_an_around_run_that_could_never_work_is_refused(around_run: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Scheduler(MemoryBackend(), around_run=around_run)


@pytest.mark.parametrize("name", [["a"], None, 3, b"a", {}])
def test_what_is_no_name_is_refused_by_every_question(name: Any) -> None:
    scheduler = Scheduler(MemoryBackend()).every("a", "10s", lambda: None)
    for question in (
        scheduler.next_run,
        scheduler.run_now,
        scheduler.history,
        scheduler.last_run,
        scheduler.active,
        scheduler.forget,
    ):
        with pytest.raises(ConfigurationError, match="A job's name must be text"):
            question(name)
