"""The executor: a job and a context in, how it ended out; whatever a handler does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from world import World

from anarchon import RunContext, RunInterrupted
from anarchon.context import current_run
from anarchon.executor import Ended, Executor
from anarchon.job import Job, make_call
from anarchon.options import parse_options, resolve_options
from anarchon.schedules import every
from anarchon.threads import Threads


class Stage:
    """An executor, a context for it, and the count of what was left behind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.threads: Threads = world.make_threads(world.clock)
        self.left: list[int] = []
        self.around: Any = None
        self.context = RunContext(
            job="x", slot_ms=world.now_ms, run_id="1", attempt=1, trigger="scheduled", token="t", fence=1,
            instance_id="a", deadline_ms=None, signal=world.clock.event(),
        )  # fmt: skip

    def execute(self, handler: Callable[..., Any], timeout: str | None = None) -> Ended:
        options = resolve_options({}, parse_options({"timeout": timeout}))
        job = Job("x", every("10s"), handler, make_call(handler, "x"), options)
        executor = Executor(self.world.clock, self.threads, self.around, lambda job, change: self.left.append(change))
        return self.world.run(lambda: executor.execute(job, self.context, lambda: None))


@pytest.fixture
def stage(world: World) -> Stage:
    return Stage(world)


class Textless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Worse(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


RAISED: list[BaseException] = [
    ValueError("bad"),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
    BaseException("base"),
    StopIteration(),
    RunInterrupted("stop"),
]


# -- classify


@pytest.mark.parametrize("timeout", [None, "10s"])
def test_a_handler_that_returns_has_succeeded(stage: Stage, timeout: str | None) -> None:
    ended = stage.execute(lambda ctx: ctx.signal.wait(2), timeout)
    assert (ended.status, ended.duration_ms, ended.error, ended.reason) == ("success", 2_000, None, None)


@pytest.mark.parametrize("timeout", [None, "10s"])
@pytest.mark.parametrize("error", RAISED)
def test_a_handler_that_raises_has_failed_whatever_it_raised(
    stage: Stage, error: BaseException, timeout: str | None
) -> None:
    def handler() -> None:
        raise error

    ended = stage.execute(handler, timeout)
    assert (ended.status, ended.exception, ended.reason) == ("failed", error, None)


@pytest.mark.parametrize("timeout", [None, "10s"])
@pytest.mark.parametrize("reason", ["stop", "lease-lost"])
@pytest.mark.parametrize("error", RAISED)
def test_what_is_raised_after_the_signal_was_set_is_an_interruption(
    stage: Stage, error: BaseException, reason: str, timeout: str | None
) -> None:
    def handler() -> None:
        stage.context._cancel(reason)
        raise error

    ended = stage.execute(handler, timeout)
    assert (ended.status, ended.exception, ended.reason) == ("interrupted", error, reason)


@pytest.mark.parametrize("reason", ["stop", "lease-lost"])
def test_a_handler_that_returns_after_it_was_told_to_stop_has_succeeded(stage: Stage, reason: str) -> None:
    ended = stage.execute(lambda ctx: ctx._cancel(reason))
    assert (ended.status, ended.reason) == ("success", None)


def test_a_signal_that_the_handler_set_itself_is_no_interruption(stage: Stage) -> None:
    def handler(ctx: RunContext) -> None:
        ctx.signal.set()
        ctx.raise_if_cancelled()
        raise ValueError("its own doing")

    assert stage.execute(handler).status == "failed"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("x"), "KeyError: 'x'"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Textless(), "Textless: (its text could not be had: ValueError)"),
        (Worse(), "Worse: (its text could not be had: SystemExit)"),
    ],
)
def test_the_error_is_the_exceptions_type_and_text(stage: Stage, error: BaseException, text: str) -> None:
    def handler() -> None:
        raise error

    assert stage.execute(handler).error == text


@pytest.mark.parametrize("timeout", [None, "10s"])
def test_a_coroutine_that_comes_back_is_a_failure_and_is_closed(stage: Stage, timeout: str | None) -> None:
    async def work() -> None:
        raise AssertionError("never awaited")

    ended = stage.execute(lambda: work(), timeout)  # a coroutine that nobody closes would warn
    assert ended.status == "failed"
    assert (
        ended.error == "TypeError: The handler returned a coroutine, which nobody awaits: its work has not been done."
    )


# -- the timeout


def test_a_timeout_that_wins_sets_the_signal_and_the_run_has_failed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """
    1. the handler waits for its signal, and heeds it
    2. after a second the timeout wins: the signal is set, reason timeout; the run has failed
    3. the handler raises: nobody asks it any more, and it is gone
    """
    with caplog.at_level(logging.WARNING, "anarchon"):
        ended = stage.execute(lambda ctx: ctx.signal.wait() and ctx.raise_if_cancelled(), "1s")
    assert (ended.status, ended.duration_ms, ended.reason) == ("failed", 1_000, None)
    assert ended.error == "TimeoutError: The run took longer than its timeout of 1s."
    assert stage.context.reason == "timeout" and stage.context.signal.is_set()
    stage.world.settle()
    assert stage.left == [+1, -1]
    assert caplog.messages == ["Job 'x' is over its timeout of 1s; its handler is told to stop."]


def test_a_handler_that_wins_leaves_nothing_behind(stage: Stage) -> None:
    """
    1. the handler ends a millisecond before its timeout
    2. the timeout is over as the result is looked at: it has lost, and the signal stays clear
    """
    ended = stage.execute(lambda ctx: ctx.signal.wait(0.999), "1s")
    assert ended.status == "success"
    stage.world.pass_time("5s")
    assert stage.context.reason is None
    assert sum(stage.left) == 0


def test_a_handler_that_goes_on_is_counted_until_it_is_gone(stage: Stage) -> None:
    gate = stage.world.clock.event()
    ended = stage.execute(lambda: stage.world.clock.wait(gate, None), "1s")
    assert ended.status == "failed"
    stage.world.pass_time("1h")
    assert stage.left == [+1]
    gate.set()
    stage.world.settle()
    assert stage.left == [+1, -1]


def test_the_count_is_up_before_the_race_is_called_lost(stage: Stage) -> None:
    """
    1. the timeout wins, and the run is about to be stored as failed
    2. its signal is set: by then the handler counts as left behind, so no new run slips in between
    """
    seen: list[int] = []
    context = stage.context
    cancel = context._cancel
    context._cancel = lambda reason: (seen.append(sum(stage.left)), cancel(reason))  # type: ignore[assignment]
    stage.execute(lambda ctx: ctx.signal.wait(), "1s")
    assert seen == [1]


def test_what_is_raised_after_the_timeout_changes_nothing(stage: Stage) -> None:
    def handler(ctx: RunContext) -> None:
        ctx.signal.wait()
        raise ValueError("too late")

    ended = stage.execute(handler, "1s")
    assert isinstance(ended.exception, TimeoutError)


def test_a_timeout_after_a_stop_is_still_a_failure_and_the_first_reason_stays(stage: Stage) -> None:
    gate = stage.world.clock.event()

    def handler(ctx: RunContext) -> None:
        ctx._cancel("stop")
        stage.world.clock.wait(gate, None)

    ended = stage.execute(handler, "1s")
    assert (ended.status, stage.context.reason) == ("failed", "stop")
    gate.set()


def test_a_handler_with_a_timeout_that_finds_no_thread_has_failed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []
    start = stage.threads.start
    monkeypatch.setattr(stage.threads, "start", no_thread)
    ended = stage.execute(lambda: called.append(True), "1s")
    monkeypatch.setattr(stage.threads, "start", start)
    assert (ended.status, ended.error, called) == ("failed", "RuntimeError: can't start new thread", [])
    assert sum(stage.left) == 0


# -- around_run, and where things happen


@pytest.mark.parametrize("timeout", [None, "10s"])
def test_around_run_is_entered_around_the_handler_on_its_thread(stage: Stage, timeout: str | None) -> None:
    seen: list[tuple[str, int]] = []

    @contextmanager
    def around(context: RunContext) -> Iterator[None]:
        assert context is stage.context
        seen.append(("enter", threading.get_ident()))
        yield
        seen.append(("exit", threading.get_ident()))

    stage.around = around
    stage.execute(lambda: seen.append(("call", threading.get_ident())), timeout)
    assert [what for what, _ in seen] == ["enter", "call", "exit"]
    assert len({thread for _, thread in seen}) == 1


def test_around_run_sees_what_the_handler_raised_and_may_swallow_it(stage: Stage) -> None:
    seen: list[str] = []

    @contextmanager
    def around(context: RunContext) -> Iterator[None]:
        try:
            yield
        except ZeroDivisionError as error:
            seen.append(str(error))

    stage.around = around
    assert stage.execute(lambda: 1 / 0).status == "success"
    assert seen == ["division by zero"]


@pytest.mark.parametrize("where", ["call", "enter", "exit"])
def test_what_around_run_raises_is_the_runs_failure(stage: Stage, where: str) -> None:
    called: list[bool] = []

    class Around:
        def __init__(self, context: RunContext) -> None:
            self.fail("call")

        def fail(self, here: str) -> None:
            if here == where:
                raise SystemExit(where)

        def __enter__(self) -> None:
            self.fail("enter")

        def __exit__(self, *exc_info: object) -> None:
            self.fail("exit")

    stage.around = Around
    ended = stage.execute(lambda: called.append(True))
    assert (ended.status, ended.error) == ("failed", f"SystemExit: {where}")
    assert called == ([True] if where == "exit" else [])


@pytest.mark.parametrize("timeout", [None, "10s"])
def test_the_handlers_thread_knows_its_run_and_forgets_it(stage: Stage, timeout: str | None) -> None:
    seen: list[RunContext | None] = []
    stage.execute(lambda: seen.append(current_run.get()), timeout)
    assert seen == [stage.context]
    assert current_run.get() is None


def test_a_handler_with_a_timeout_has_a_thread_of_its_name(stage: Stage) -> None:
    seen: list[str] = []
    stage.execute(lambda: seen.append(threading.current_thread().name), "1s")
    assert seen == ["anarchon-handler-x"]


def no_thread(name: str, work: object) -> None:
    raise RuntimeError("can't start new thread")
