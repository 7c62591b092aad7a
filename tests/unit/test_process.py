"""Signals, forks and the end of the interpreter; what needs a process of its own has one."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from world import REAL_SECONDS

from anarchon.process import in_signal_handler, on_stop_signals

#: What every script begins with: a store that says what it does, and a handler that does as its job's name says.
BEGINNING = """
import os, signal, sys, threading, time
from anarchon import MemoryBackend, Scheduler

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Telling(MemoryBackend):
    def release(self, job, run_id, token, record, counts):
        verdict = super().release(job, run_id, token, record, counts)
        say("released", job, verdict.value)
        return verdict

    def finish(self, job, run_id, token, record):
        verdict = super().finish(job, run_id, token, record)
        say("finished", job, record.status)
        return verdict

begun = threading.Event()

def heeds(ctx):
    say("begun", ctx.job)
    begun.set()
    ctx.signal.wait()
    ctx.raise_if_cancelled()

def deaf(ctx):
    say("begun", ctx.job)
    begun.set()
    time.sleep(60)

backend = Telling()
scheduler = Scheduler(backend, instance_id="me", jitter=0)
"""

# Python 3.12 warns of a fork with threads around, which is what some of these are about.
PYTHON = [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c"]


class Script:
    """A process that runs a script, and what it has said so far."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            [*PYTHON, BEGINNING + textwrap.dedent(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def until(self, line: str) -> None:
        assert self.process.stdout is not None
        while line not in self.said:
            said = self.process.stdout.readline()
            assert said, f"it ended without saying {line!r}: {self.said} {self.errors()}"
            self.said.append(said.strip())

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Waits for its end; its exit status."""
        out, self._errors = self.process.communicate(timeout=REAL_SECONDS)
        self.said += out.splitlines()
        return self.process.returncode

    def errors(self) -> str:
        if not hasattr(self, "_errors"):
            self._errors = self.process.communicate(timeout=REAL_SECONDS)[1]
        return self._errors


@pytest.fixture
def run() -> Iterator[Callable[[str], Script]]:
    scripts: list[Script] = []

    def start(script: str) -> Script:
        scripts.append(Script(script))
        return scripts[-1]

    yield start
    for script in scripts:
        if script.process.poll() is None:
            script.process.kill()
            script.process.communicate()


# -- whether this is a signal handler


@contextmanager
def installed(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


class Handlers:
    def __init__(self) -> None:
        self.seen: list[bool] = []

    def look(self) -> None:
        self.seen.append(in_signal_handler())

    def method(self, number: int, frame: FrameType | None) -> None:
        self.look()

    def __call__(self, *arguments: Any) -> None:
        self.look()

    def with_more(self, more: str, number: int, frame: FrameType | None) -> None:
        self.look()

    def all_kinds(self) -> dict[str, Any]:
        def function(number: int, frame: FrameType | None) -> None:
            self.look()

        def deeper(number: int, frame: FrameType | None) -> None:
            for look in (self.look,):
                [look() for _ in range(1)]

        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> None:
            function(*arguments, **named)

        return {
            "function": function,
            "deeper": deeper,
            "wrapped": wrapped,
            "lambda": lambda *_: self.look(),
            "method": self.method,
            "object": self,
            "partial": functools.partial(self.with_more, "more"),
            "partial of partial": functools.partial(functools.partial(self.with_more), "more"),
        }


@pytest.mark.parametrize("kind", sorted(Handlers().all_kinds()))
def test_a_signal_handler_of_any_kind_is_recognised(kind: str) -> None:
    handlers = Handlers()
    with installed(handlers.all_kinds()[kind]):
        signal.raise_signal(signal.SIGUSR1)
    assert handlers.seen == [True]


@pytest.mark.parametrize("kind", sorted(Handlers().all_kinds()))
def test_the_same_function_called_by_hand_is_no_signal_handler(kind: str) -> None:
    handlers = Handlers()
    handler = handlers.all_kinds()[kind]
    with installed(handler):
        handler(signal.SIGUSR1, None)
    handler(signal.SIGUSR1, sys._getframe())
    assert handlers.seen == [False, False]


def test_outside_of_a_handler_and_on_other_threads_it_is_none() -> None:
    seen: list[bool] = []

    def handler(number: int, frame: FrameType | None) -> None:
        thread = threading.Thread(target=lambda: seen.append(in_signal_handler()))
        thread.start()
        thread.join(REAL_SECONDS)

    assert not in_signal_handler()
    with installed(handler):
        signal.raise_signal(signal.SIGUSR1)
    assert seen == [False]


# -- stop signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_stop_signal_calls_and_the_next_does_what_it_did_before(number: int) -> None:
    called, before = threading.Event(), []
    handlers = {
        n: signal.signal(n, lambda number, frame: before.append(number)) for n in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        with on_stop_signals(called.set):
            signal.raise_signal(number)
            assert called.wait(REAL_SECONDS)
            assert before == []
            signal.raise_signal(number)
            assert before == [number]
        signal.raise_signal(number)
        assert before == [number, number]
    finally:
        for n, handler in handlers.items():
            signal.signal(n, handler)


def test_handlers_are_put_back_where_no_signal_came() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(ZeroDivisionError), on_stop_signals(print):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_on_another_thread_no_handler_is_installed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def use() -> None:
        with on_stop_signals(print):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(REAL_SECONDS)
    assert seen == [before]


# -- in a process of its own: signals


def test_a_stop_in_a_signal_handler_is_only_queued_and_cannot_deadlock(run: Callable[[str], Script]) -> None:
    """
    1. the main thread holds a lock that a stop needs
    2. a signal comes: its handler stops the scheduler, on this very thread
    3. stop returns False at once; when the lock is free, a thread of its own stops the scheduler
    """
    script = run("""
        stopped = []
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(scheduler.stop()))
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
        with scheduler._lock, scheduler._engine._runs._lock, scheduler._engine._threads._lock:
            os.kill(os.getpid(), signal.SIGTERM)
            while not stopped:
                pass
            say("returned", stopped[0])
        while scheduler._engine is not None:
            time.sleep(0.01)
        say("stopped")
    """)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "returned False", "released x ok", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_forever_ends_with_a_signal_and_releases_its_runs(run: Callable[[str], Script], number: int) -> None:
    script = run("""
        scheduler.every("x", "100ms", heeds)
        say("ended", scheduler.run_forever())
        while any(thread.name.startswith("anarchon") for thread in threading.enumerate()):
            time.sleep(0.01)
        say("no thread is left")
    """)
    script.until("begun x")
    script.send(number)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "released x ok", "ended True", "no thread is left"]
    assert script.errors() == ""


def test_run_forever_gives_up_after_its_stop_timeout(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "100ms", deaf)
        say("ended", scheduler.run_forever("200ms"))
        os._exit(0)  # the end of the interpreter would wait for that handler, too
    """)
    script.until("begun x")
    script.send(signal.SIGTERM)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "ended False"]


def test_a_second_signal_ends_a_process_whose_runs_do_not_heed_the_first(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "100ms", deaf)
        scheduler.on("start", lambda event: None)
        threading.Thread(target=lambda: (begun.wait(), scheduler._stop_asked.wait(), say("asked")), daemon=True).start()
        scheduler.run_forever()
    """)
    script.until("begun x")
    script.send(signal.SIGTERM)
    script.until("asked")
    script.send(signal.SIGTERM)
    assert script.end() == -signal.SIGTERM


def test_ctrl_c_interrupts_a_manual_run_and_is_raised_as_it_came(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "1h", heeds)
        try:
            scheduler.run_now("x")
        except KeyboardInterrupt:
            say("interrupted", scheduler.last_run("x").status, scheduler.active("x"))
    """)
    script.until("begun x")
    script.send(signal.SIGINT)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "finished x interrupted", "interrupted interrupted []"]


def test_a_second_ctrl_c_does_not_wait_for_a_handler_that_is_deaf(run: Callable[[str], Script]) -> None:
    script = run("""
        import anarchon.runners.manual as manual
        scheduler.every("x", "1h", deaf)
        context = []
        scheduler.on("start", lambda event: context.extend(scheduler._engine._runs._runs.values()))
        threading.Thread(target=lambda: (begun.wait(), context[0].signal.wait(), say("told")), daemon=True).start()
        try:
            scheduler.run_now("x")
        except KeyboardInterrupt:
            say("raised")
        os._exit(0)
    """)
    script.until("begun x")
    script.send(signal.SIGINT)
    script.until("told")
    script.send(signal.SIGINT)
    assert script.end() == 0, script.errors()
    assert script.said[-1] == "raised"


# -- in a process of its own: forks


def test_in_the_child_of_a_fork_the_scheduler_is_not_started_and_can_be(run: Callable[[str], Script]) -> None:
    script = run("""
        import logging
        class Said(logging.Handler):
            def emit(self, record):
                say("logged", os.getpid() == parent, record.getMessage()[:22])
        parent = os.getpid()
        logging.getLogger("anarchon").addHandler(Said())
        begun_here = threading.Event()
        def handler(ctx):
            say("ran", ctx.instance_id == scheduler.instance_id != "me", ctx.instance_id.startswith("me."))
            begun_here.set()
        scheduler.every("x", "100ms", lambda ctx: handler(ctx) if os.getpid() != parent else begun.set(), jitter=0)
        scheduler.start()
        begun.wait()
        while scheduler.active("x"):
            time.sleep(0.001)  # the child's copy of the store would keep that run's lease for half a minute
        child = os.fork()
        if child == 0:
            say("threads", threading.active_count())
            say("engine", scheduler._engine, scheduler.stop())
            scheduler.start()
            begun_here.wait()
            say("stopped", scheduler.stop())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("parent", status, scheduler.instance_id, scheduler._engine.started, scheduler.stop())
    """)
    assert script.end() == 0, script.errors()
    said = [line for line in script.said if not line.startswith("finished")]
    assert said[:3] == ["logged False This process was forke", "threads 1", "engine None True"]
    assert "ran True True" in said and "stopped True" in said
    assert said[-1] == "parent 0 me True True"
    assert sum(line.startswith("logged") for line in said) == 1


def test_what_the_child_is_told_names_what_to_call_where(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "3650d", heeds)
        scheduler.start()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        scheduler.stop()
    """)
    assert script.end() == 0
    assert script.errors().count("Call scheduler.start() in the child") == 1
    assert "post_fork" in script.errors() and "@postfork" in script.errors()


def test_a_fork_of_a_scheduler_that_was_never_started_says_nothing(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "1h", heeds)
        before = Scheduler(backend)
        child = os.fork()
        if child == 0:
            pid = str(os.getpid())
            say("named anew", scheduler.instance_id == "me." + pid, before.instance_id.split("-")[-2] == pid)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    assert script.end() == 0
    assert (script.said, script.errors()) == (["named anew True True"], "")


def test_a_fork_while_the_parent_holds_every_lock_leaves_none_locked(run: Callable[[str], Script]) -> None:
    """
    1. a thread of the parent holds the scheduler's lock, and the process has all its calls in flight
    2. it forks: in the child nobody will ever free them
    3. the child starts and stops all the same
    """
    script = run("""
        import anarchon.store as store
        scheduler.every("x", "3650d", heeds)
        scheduler.start()
        held, done = threading.Event(), threading.Event()
        def hold():
            calls = scheduler._store._asking
            for _ in range(store.ASKS_IN_FLIGHT):
                calls.acquire()
            engine = scheduler._engine
            with scheduler._lock, engine._lock, scheduler._store.clock._lock, engine._threads._lock:
                held.set()
                done.wait()
            for _ in range(store.ASKS_IN_FLIGHT):
                calls.release()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        child = os.fork()
        if child == 0:
            scheduler.start()
            say("child", scheduler.last_run("x"), scheduler.stop())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        done.set()
        say("parent", status, scheduler.stop())
    """)
    assert script.end() == 0, script.errors()
    assert script.said == ["child None True", "parent 0 True"]


def test_a_child_that_ends_does_not_stop_or_wait_for_its_parents_runs(run: Callable[[str], Script]) -> None:
    script = run("""
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            sys.exit(0)  # with its exit handlers
        os.waitpid(child, 0)
        say("still", scheduler._engine._runs.running("x"))
        scheduler.stop()
    """)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "still True", "released x ok"]


# -- in a process of its own: the end


def test_at_the_end_of_the_interpreter_a_run_that_heeds_its_signal_is_released(run: Callable[[str], Script]) -> None:
    script = run("""
        import anarchon.process
        anarchon.process._EXIT_GRACE_MS = 60_000  # a busy machine may take longer than two seconds
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
    """)
    assert script.end() == 0, script.errors()
    assert script.said == ["begun x", "released x ok"]
    assert script.errors() == ""


def test_at_the_end_of_the_interpreter_a_run_that_is_deaf_is_waited_for_within_bounds(
    run: Callable[[str], Script],
) -> None:
    script = run("""
        scheduler.every("x", "100ms", deaf)
        scheduler.start()
        begun.wait()
        say("ends")
    """)
    assert script.end() == 0, script.errors()  # long before that handler does
    assert (script.said, script.errors()) == (["begun x", "ends"], "")


def test_a_scheduler_that_was_stopped_or_never_started_does_not_delay_the_end(run: Callable[[str], Script]) -> None:
    script = run("""
        import anarchon.process
        anarchon.process._EXIT_GRACE_MS = 600_000
        never = Scheduler(backend).every("y", "100ms", heeds)
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
        scheduler.stop()
    """)
    assert script.end() == 0


def test_the_end_does_not_wait_for_a_clock_that_nobody_moves(run: Callable[[str], Script]) -> None:
    """A test of somebody's that left a scheduler running on a manual clock."""
    script = run("""
        from anarchon.sources import Sources
        from anarchon.testing import ManualClock
        clock = ManualClock()
        left = Scheduler(backend, sources=Sources(clock)).every("x", "1h", lambda: clock.wait(clock.event(), None))
        left.start()
        threading.Thread(target=left.run_now, args=("x",), daemon=True).start()
        while not left.active("x"):
            time.sleep(0.001)
    """)
    assert script.end() == 0, script.errors()


def test_importing_the_package_starts_no_thread_and_installs_no_handler(run: Callable[[str], Script]) -> None:
    script = run("""
        say(threading.active_count(), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    """)
    assert script.end() == 0
    assert script.said == ["1 True"]
