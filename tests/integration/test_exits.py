"""How a process with a running scheduler ends, on every store: without a word, and with nothing held or left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from anarchon import RunRecord, Scheduler, open_backend

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(600)

STORES = ("memory", "sqlite", "redis")

#: What every script begins with; its arguments are the store and its prefix.
BEGINNING = """
import atexit, os, sys, threading

at_last = []
atexit.register(lambda: [call() for call in at_last])

from anarchon import Scheduler, open_backend, process

# Two seconds may be too few on a busy machine for a run that heeds its stop.
process._EXIT_GRACE_MS = 60_000

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def noted():
    return sorted(os.listdir("/proc/self/fd")), sorted(thread.name for thread in threading.enumerate())

begun = threading.Event()

def heeds(ctx):
    begun.set()
    ctx.signal.wait()
    ctx.raise_if_cancelled()

url, prefix = sys.argv[1:]
scheduler = Scheduler(open_backend(url, prefix=prefix or None), instance_id="me", jitter=0, lease="60s")
"""


class Store:
    """A new, empty store of some kind; one of several of the same test."""

    def __init__(self, kind: str, number: int, request: pytest.FixtureRequest) -> None:
        self.kind = kind
        self.url, self.prefix = "memory://", ""
        if kind == "redis":
            self.url = request.getfixturevalue("redis_url")
            self.prefix = f"{request.getfixturevalue('prefix')}{number}:"
        elif kind == "sqlite":
            self.url = f"sqlite:///{request.getfixturevalue('tmp_path')}/{number}.db"

    def records(self, job: str = "x") -> list[RunRecord]:
        return self._ask(lambda reader: reader.history(job, 1000))

    def held(self, job: str = "x") -> list[str]:
        """Who holds a lease that is live."""
        return self._ask(lambda reader: [run.instance_id for run in reader.active(job) if run.lease_left > 0])

    def _ask(self, ask: Callable[[Scheduler], Any]) -> Any:
        reader = Scheduler(open_backend(self.url, prefix=self.prefix or None))
        try:
            return ask(reader)
        finally:
            reader.stop()


class Ended:
    """How a script has ended."""

    def __init__(self, store: Store, process: subprocess.Popen[str]) -> None:
        self.store = store
        out, self.complaints = process.communicate(timeout=580)
        self.said = out.splitlines()
        self.code = process.returncode


RunAll = Callable[[list[tuple[str, str]]], list[Ended]]
OnEach = Callable[[str], list[Ended]]


@pytest.fixture
def run_all(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunAll]:
    """Runs scripts, each on a new store of some kind, side by side; whatever happens, none is left."""
    with ExitStack() as processes:

        def run(scripts: list[tuple[str, str]]) -> list[Ended]:
            stores = [Store(kind, number, request) for number, (_, kind) in enumerate(scripts)]
            started = [start(script, store) for (script, _), store in zip(scripts, stores, strict=True)]
            for process in started:
                processes.callback(process.wait)
                processes.callback(process.kill)
            return [Ended(store, process) for store, process in zip(stores, started, strict=True)]

        yield run


@pytest.fixture
def on_each(run_all: RunAll) -> OnEach:
    """Runs a script on a store of each kind."""
    return lambda script: run_all([(script, kind) for kind in STORES])


def start(script: str, store: Store) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", BEGINNING + textwrap.dedent(script), store.url, store.prefix],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_given_back(ended: Ended) -> None:
    """The run was told to stop, and its lease is nobody's: another instance takes it over at once."""
    if ended.store.kind != "memory":
        assert [record.status for record in ended.store.records()] == ["interrupted"]
        assert ended.store.held() == []


# -- the end of the main thread


#: How the main thread ends, the exit code, the last line on standard error, and the stores that this is tried on.
ENDS = [
    ("pass", 0, "", STORES),
    ("sys.exit(3)", 3, "", ["sqlite"]),
    ("raise ZeroDivisionError", 1, "ZeroDivisionError", ["redis"]),
    ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt", ["sqlite"]),
]


def test_however_the_main_thread_ends_a_run_is_given_back(run_all: RunAll) -> None:
    wanted = [(end, code, last, kind) for end, code, last, kinds in ENDS for kind in kinds]
    script = """
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
    """
    ended = run_all([(textwrap.dedent(script) + end, kind) for end, _, _, kind in wanted])
    for (_, code, last, _), each in zip(wanted, ended, strict=True):
        # One traceback at the most, the user's own.
        assert (each.code, "\n".join(each.complaints.splitlines()[-1:])) == (code, last), each.complaints
        assert each.complaints.count("Traceback") == (last != "")
        assert_given_back(each)


def test_a_process_that_cuts_itself_off_ends_at_once_and_leaves_its_lease_to_run_out(
    on_each: OnEach,
) -> None:
    script = """
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
        os._exit(3)
    """
    for ended in on_each(script):
        assert (ended.code, ended.complaints) == (3, "")
        if ended.store.kind != "memory":
            assert (ended.store.records(), ended.store.held()) == ([], ["me"])


def test_a_handler_that_exits_ends_its_run_and_not_the_process(on_each: OnEach) -> None:
    script = """
        failed = threading.Event()
        scheduler.on("failure", lambda event: failed.set())
        scheduler.every("x", "100ms", lambda: sys.exit(3))
        with scheduler:
            failed.wait()
        say(scheduler.history("x", 1000)[-1].status)
    """
    for ended in on_each(script):
        assert (ended.code, ended.complaints, ended.said) == (0, "", ["failed"])


def test_exit_handlers_of_others_may_ask_and_stop_whether_they_come_before_ours_or_after(
    on_each: OnEach,
) -> None:
    """Handlers are called last in, first out: those of after the import come before ours, while the scheduler runs."""
    script = """
        def look(when):
            say(when, [record.status for record in scheduler.history("x")], scheduler.stop(), scheduler.stop())
        scheduler.every("x", "100ms", heeds)
        scheduler.start()
        begun.wait()
        # In the list of a handler that was registered before the import.
        at_last.append(lambda: look("after"))
        atexit.register(look, "before")
    """
    for ended in on_each(script):
        assert (ended.code, ended.complaints) == (0, "")
        assert ended.said == ["before [] True True", "after ['interrupted'] True True"]
        assert_given_back(ended)


# -- stopping and starting


def test_a_stop_from_a_handler_or_a_listener_and_stops_and_starts_in_a_row_leave_nothing(
    on_each: OnEach,
) -> None:
    script = """
        stopped = threading.Event()
        who = "handler"
        def stop(me):
            if who == me and not stopped.is_set():
                say(me, scheduler.stop(), scheduler.stop())
                stopped.set()
        scheduler.every("x", "20ms", lambda: stop("handler"))
        scheduler.on("start", lambda event: stop("start"))
        scheduler.on("success", lambda event: stop("success"))
        scheduler.start()
        stopped.wait()
        scheduler.stop()
        before = noted()
        for who in ("handler", "start", "success"):
            stopped.clear()
            assert scheduler.start() is scheduler is scheduler.start()
            stopped.wait()
            say(scheduler.stop(), scheduler.stop())
            after = noted()
            assert after == before, (before, after)
    """
    for ended in on_each(script):
        assert (ended.code, ended.complaints) == (0, ""), ended.said
        told = [line for line in ended.said if " " in line and line.split()[0] in ("handler", "start", "success")]
        assert [line.split()[0] for line in told] == ["handler", "handler", "start", "success"]
        assert ended.said.count("True True") == 3


def test_a_thousand_starts_and_stops_leave_no_thread_and_no_file_descriptor(
    on_each: OnEach,
) -> None:
    """Most stop while the store is being asked about the job, and some in the middle of a run."""
    script = """
        scheduler.every("x", "10ms", heeds)
        def once(with_a_run):
            begun.clear()
            scheduler.start()
            if with_a_run:
                begun.wait()
            assert scheduler.stop() is True
        once(True)
        before = noted()
        for number in range(1000):
            once(number % 50 == 0)
        say("left", [set(now) - set(then) for now, then in zip(noted(), before)])
        say("active", len([run for run in scheduler.active("x") if run.lease_left > 0]))
    """
    for ended in on_each(script):
        assert (ended.code, ended.complaints) == (0, ""), ended.said
        assert ended.said == ["left [set(), set()]", "active 0"]
