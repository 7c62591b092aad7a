"""Threads are named, used again, and gone when they should be; nothing that work raises is lost or does harm."""

from __future__ import annotations

import contextvars
import logging
import threading

import pytest
from world import REAL_SECONDS, World

from anarchon.clock import SystemClock
from anarchon.testing import ManualClock
from anarchon.threads import Threads, call_guarded, start_from_signal


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def done(event: threading.Event) -> None:
    assert event.wait(REAL_SECONDS)


def run(threads: Threads, name: str) -> threading.Thread:
    """Runs something and gives back its thread, once that waits for more."""
    ran: list[threading.Thread] = []
    threads.start(name, lambda: ran.append(threading.current_thread()))
    wait_until(lambda: ran and any(worker is ran[0] for worker in threads._idle))
    return ran[0]


def wait_until(condition: object) -> None:
    clock, end = SystemClock(), SystemClock().monotonic_ms() + REAL_SECONDS * 1000
    while not condition():  # type: ignore[operator]
        assert clock.monotonic_ms() < end
        clock.wait(threading.Event(), 1)


def close(threads: Threads) -> None:
    threads.close()
    assert threads.join(REAL_SECONDS * 1000)


def test_work_runs_on_a_daemon_thread_of_its_name(clock: ManualClock) -> None:
    threads = Threads(clock)
    seen: list[tuple[str, bool]] = []
    ended = threading.Event()

    def work() -> None:
        seen.append((threading.current_thread().name, threading.current_thread().daemon))
        ended.set()

    threads.start("anarchon-timer-x", work)
    done(ended)
    assert seen == [("anarchon-timer-x", True)]
    close(threads)


def test_an_idle_thread_is_used_again_under_the_new_name(clock: ManualClock) -> None:
    threads = Threads(clock)
    first = run(threads, "one")
    second = run(threads, "two")
    assert second is first
    assert first.name == "two"
    close(threads)


def test_busy_threads_are_never_waited_for(clock: ManualClock) -> None:
    threads = Threads(clock)
    gate, both = threading.Event(), threading.Barrier(3)
    for name in ("one", "two"):
        threads.start(name, lambda: (both.wait(REAL_SECONDS), gate.wait(REAL_SECONDS)))
    both.wait(REAL_SECONDS)  # both are at work at once
    gate.set()
    close(threads)


def test_an_idle_thread_ends_after_a_while(clock: ManualClock) -> None:
    threads = Threads(clock, idle_ms=10_000)
    thread = run(threads, "one")
    clock.wait_until_blocked()
    clock.advance("9s999ms")
    assert thread.is_alive()
    clock.advance("1ms")
    thread.join(REAL_SECONDS)
    assert not thread.is_alive()
    assert threads._idle == [] and not threads._workers


def test_work_that_comes_as_an_idle_thread_ends_is_done(clock: ManualClock) -> None:
    """
    1. a thread has been idle for long enough: its wait is over
    2. before it can leave, work is given to it
    3. it finds that it is not among the idle any more, and does the work
    """
    threads = Threads(clock, idle_ms=10_000)
    thread = run(threads, "one")
    clock.wait_until_blocked()
    ended = threading.Event()
    with threads._lock:  # 1 and 2 at once, from where the thread cannot yet see either
        clock.advance("10s")
        wait_until(lambda: not clock._waits)
        threads._idle.remove(thread)  # type: ignore[arg-type]
        thread.take("two", ended.set)  # type: ignore[attr-defined]
    done(ended)
    close(threads)


def test_what_work_raises_is_told_and_the_thread_lives_on(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    threads = Threads(clock)
    ran: list[threading.Thread] = []

    def broken() -> None:
        ran.append(threading.current_thread())
        raise SystemExit("not even this one")

    threads.start("one", broken)
    wait_until(lambda: threads._idle)
    assert [args.exc_type for args in told] == [SystemExit]
    assert told[0].thread is ran[0]
    assert run(threads, "two") is ran[0]
    close(threads)


def test_a_hook_that_raises_does_not_end_the_thread_either(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(args: threading.ExceptHookArgs) -> None:
        raise KeyError("the hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    with caplog.at_level(logging.ERROR, "anarchon"):
        call_guarded(lambda: 1 / 0)
    assert "threading.excepthook raised" in caplog.text
    assert "ZeroDivisionError" in caplog.text  # in the traceback, as what was being told


def test_work_finds_no_context_variables_of_the_work_before_it(clock: ManualClock) -> None:
    threads = Threads(clock)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen: list[str] = []
    threads.start("one", lambda: variable.set("left behind"))
    wait_until(lambda: threads._idle)
    threads.start("two", lambda: seen.append(variable.get()))
    wait_until(lambda: seen)
    assert seen == ["clean"]
    close(threads)


def test_idle_threads_keep_nothing_of_their_work_alive(clock: ManualClock) -> None:
    class Load:
        pass

    import weakref

    threads = Threads(clock)
    load = Load()
    gone = weakref.ref(load)
    threads.start("one", lambda load=load: None)
    del load
    wait_until(lambda: threads._idle)
    assert gone() is None
    close(threads)


def test_close_ends_idle_threads_at_once_and_busy_ones_after_their_work(clock: ManualClock) -> None:
    threads = Threads(clock)
    gate = threading.Event()
    idle = run(threads, "idle")
    begun = threading.Event()
    # The idle thread takes this one, and a second is started for the next.
    threads.start("busy", lambda: (begun.set(), gate.wait(REAL_SECONDS)))
    done(begun)
    other = run(threads, "other")
    threads.close()
    other.join(REAL_SECONDS)
    assert not other.is_alive() and idle.is_alive()
    assert threads.join(0) is False
    gate.set()
    assert threads.join(REAL_SECONDS * 1000)
    assert not idle.is_alive()


def test_work_started_after_close_is_done_and_its_thread_ends_with_it(clock: ManualClock) -> None:
    threads = Threads(clock)
    threads.close()
    seen: list[threading.Thread] = []
    threads.start("late", lambda: seen.append(threading.current_thread()))
    assert threads.join(REAL_SECONDS * 1000)
    assert len(seen) == 1 and not seen[0].is_alive()


def test_join_does_not_miss_a_thread_that_is_about_to_end(clock: ManualClock) -> None:
    """
    1. a busy thread finds the cache closed, and leaves the books
    2. before it is quite gone, the cache is joined
    3. the join waits for it all the same
    """
    threads = Threads(clock)
    leaving, go = threading.Event(), threading.Event()
    worker: list[threading.Thread] = []
    leave = threads._leave

    def slow_rest(resting: threading.Thread) -> bool:
        with threads._lock:
            leave(resting)  # type: ignore[arg-type]
        leaving.set()
        return go.wait(REAL_SECONDS) and False

    threads._rest = slow_rest  # type: ignore[method-assign]
    threads.close()
    threads.start("one", lambda: worker.append(threading.current_thread()))
    done(leaving)
    assert threads.join(0) is False
    go.set()
    assert threads.join(REAL_SECONDS * 1000)
    assert not worker[0].is_alive()


def test_close_and_join_may_be_called_from_a_thread_of_the_cache(clock: ManualClock) -> None:
    threads = Threads(clock)
    run(threads, "idle")
    joined: list[bool] = []

    def work() -> None:
        threads.close()
        joined.append(threads.owns(threading.current_thread()) and threads.join(REAL_SECONDS * 1000))

    threads.start("closer", work)
    wait_until(lambda: joined)
    assert joined == [True]
    assert threads.join(REAL_SECONDS * 1000)
    assert not threads.owns(threading.current_thread())


def test_a_thread_that_cannot_be_had_is_an_error_and_leaves_no_trace(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(clock)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threads.start("one", lambda: None)
    monkeypatch.undo()
    assert not threads._workers
    run(threads, "two")
    close(threads)


def test_a_signal_handler_can_start_a_bare_thread() -> None:
    ended = threading.Event()
    start_from_signal(ended.set)
    done(ended)


def test_fifty_caches_leave_no_thread(world: World) -> None:
    for _ in range(50):
        threads = Threads(world.clock)
        for name in ("one", "two", "three"):
            threads.start(name, lambda: None)
        close(threads)
    assert not [thread for thread in threading.enumerate() if thread.name in ("one", "two", "three")]


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
