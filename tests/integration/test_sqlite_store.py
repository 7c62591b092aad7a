"""The SQLite store among processes, threads and forks, and on disks that are locked, read-only, full or broken."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from anarchon.backends import sqlite_door
from anarchon.backends.sqlite import SQLiteBackend
from anarchon.backends.sqlite_file import APPLICATION_ID
from anarchon.clock import SystemClock
from anarchon.durations import from_ms
from anarchon.errors import BackendError
from anarchon.records import ClaimRequest, Mode, Outcome, RunRecord, Verdict
from anarchon.testing import ManualClock

# Python 3.12 warns of a fork beside other threads, which is the very thing that is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

SECOND_MS = 1_000

# A fork as a server in C makes it: none of Python's hooks runs. The interpreter lock is kept meanwhile.
fork_in_c = ctypes.PyDLL(None).fork


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def backend(path: Path) -> Iterator[SQLiteBackend]:
    with closing(SQLiteBackend(path)) as backend:
        yield backend


def request(slot_ms: int, token: str = "a", job: str = "sync", **options: Any) -> ClaimRequest:
    values = {
        "run_id": str(slot_ms),
        "instance_id": f"instance-{token}",
        "lease_ms": 30 * SECOND_MS,
        "overlap": "allow",
        "max_attempts": 3,
        "window_ms": 10**15,
        "mode": Mode.START,
        "trigger": "scheduled",
        "history_limit": 50,
    }
    return ClaimRequest(job=job, slot_ms=slot_ms, token=token, **{**values, **options})


def record(slot_ms: int, **facts: Any) -> RunRecord:
    values: dict[str, Any] = {
        "run_id": str(slot_ms),
        "attempt": 1,
        "trigger": "scheduled",
        "status": "success",
        "instance_id": "instance-a",
        "fence": slot_ms,
        "started_at": from_ms(slot_ms),
        "finished_at": from_ms(slot_ms),
        "duration": 0.0,
    }
    return RunRecord(job="sync", slot=from_ms(slot_ms), **{**values, **facts})


class Child:
    """A forked process that does one thing and tells its value, which must be fit for JSON."""

    running: ClassVar[list[Child]] = []

    def __init__(self, work: Callable[[], object], fork: Callable[[], int] = os.fork) -> None:
        self._read, write = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            try:
                told = {"value": work()}
            except BaseException:
                told = {"error": traceback.format_exc()}
            os.write(write, json.dumps(told).encode())
            os._exit(0)
        os.close(write)
        self.running.append(self)

    def value(self) -> Any:
        with open(self._read, encoding="utf-8") as pipe:
            told = json.loads(pipe.read())
        self.wait()
        assert "error" not in told, told["error"]
        return told["value"]

    def wait(self) -> None:
        os.waitpid(self.pid, 0)
        self.running.remove(self)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        os.close(self._read)


@pytest.fixture(autouse=True)
def no_child_outlives_its_test() -> Iterator[None]:
    yield
    for child in list(Child.running):
        child.kill()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks waits for a minute: where many ask at once and the disk is slow, three seconds may be too short."""
    monkeypatch.setattr(sqlite_door, "LIMIT_MS", 60_000)


class Signal:
    """An event between processes: it is set by one and waited for by another."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def set(self) -> None:
        os.write(self._write, b".")

    def wait(self) -> None:
        assert os.read(self._read, 1) == b"."

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def signals() -> Iterator[Callable[[], Signal]]:
    made: list[Signal] = []

    def make() -> Signal:
        made.append(Signal())
        return made[-1]

    yield make
    for each in made:
        each.close()


class HoldingClock(SystemClock):
    """Holds one thread where it reads the time, which is in the middle of its transaction."""

    def __init__(self, held: Callable[[], bool]) -> None:
        self.held = held
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def now_ms(self) -> int:
        if self.held():
            self.inside.set()
            assert self.go_on.wait(60)
        return super().now_ms()


@contextmanager
def held_in_transaction(path: Path) -> Iterator[tuple[SQLiteBackend, HoldingClock, threading.Thread]]:
    """A backend, one thread of which claims run 1000 for the token ``held`` and stands in the middle of it."""
    thread = threading.Thread(target=lambda: backend.claim(request(1_000, "held")))
    clock = HoldingClock(lambda: threading.current_thread() is thread)
    with closing(SQLiteBackend(path, clock=clock)) as backend:
        backend.save_result("sync", record(1))
        thread.start()
        assert clock.inside.wait(30)
        yield backend, clock, thread
        clock.go_on.set()
        thread.join(30)
        assert not thread.is_alive()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(BackendError) as caught:
        call()
    return str(caught.value)


class TestProcesses:
    @pytest.mark.usefixtures("patient")
    def test_of_four_processes_that_claim_fifty_slots_exactly_one_wins_each(self, path: Path, signals: Any) -> None:
        started, go = signals(), signals()
        slots = [time.time_ns() // 10**9 * SECOND_MS - (100 - number) * SECOND_MS for number in range(50)]

        def work() -> list[tuple[int, int]]:
            won = []
            with closing(SQLiteBackend(path)) as backend:
                started.set()
                go.wait()
                for slot_ms in slots:
                    reply = backend.claim(request(slot_ms, f"{os.getpid()}-{slot_ms}"))
                    if reply.outcome is Outcome.WON:
                        assert reply.fence is not None
                        won.append((slot_ms, reply.fence))
                    else:
                        assert reply.outcome in (Outcome.RUNNING, Outcome.DONE)
            return won

        children = [Child(work) for _ in range(4)]
        for _ in children:
            started.wait()
        for _ in children:
            go.set()
        won = sorted(grant for child in children for grant in child.value())
        assert [slot_ms for slot_ms, _ in won] == slots
        fences = [fence for _, fence in won]
        assert fences == sorted(set(fences))

    @pytest.mark.usefixtures("patient")
    def test_processes_that_make_the_file_at_the_same_moment_do_not_clash(self, tmp_path: Path, signals: Any) -> None:
        for number in range(8):
            go = signals()

            def work(path: Path = tmp_path / f"{number}.db", go: Signal = go) -> str:
                go.wait()
                with closing(SQLiteBackend(path)) as backend:
                    return backend.claim(request(1_000, job=f"job-{os.getpid()}")).outcome.value

            children = [Child(work) for _ in range(4)]
            for _ in children:
                go.set()
            assert [child.value() for child in children] == ["won"] * 4

    def test_a_process_that_is_killed_in_a_transaction_leaves_nothing_of_it_and_no_lock(
        self, backend: SQLiteBackend, path: Path, signals: Any
    ) -> None:
        inside = signals()

        class DyingClock(SystemClock):
            def now_ms(self) -> int:
                inside.set()
                signal.pause()
                return 0

        backend.save_result("sync", record(1))
        child = Child(lambda: SQLiteBackend(path, clock=DyingClock()).claim(request(1_000)))
        inside.wait()
        child.kill()
        reply = backend.claim(request(1_000, "b"))
        assert (reply.outcome, reply.attempt) == (Outcome.WON, 1)

    def test_a_reader_sees_what_a_worker_has_kept_while_the_worker_goes_on(self, path: Path, signals: Any) -> None:
        kept, seen = signals(), signals()

        def work() -> None:
            with closing(SQLiteBackend(path)) as backend:
                for slot_ms in (1_000, 2_000):
                    backend.claim(request(slot_ms))
                    backend.finish("sync", str(slot_ms), "a", record(slot_ms))
                    kept.set()
                    seen.wait()

        child = Child(work)
        with closing(SQLiteBackend(path)) as reader:
            for newest in ("1000", "2000"):
                kept.wait()
                assert reader.history("sync", 1)[0].run_id == newest
                seen.set()
        child.value()


@pytest.mark.usefixtures("patient")
class TestForks:
    def test_a_child_uses_no_connection_of_its_parents(self, backend: SQLiteBackend) -> None:
        assert backend.claim(request(1_000)).outcome is Outcome.WON
        assert backend.history("sync", 10) == []

        def work() -> tuple[str, str]:
            assert files_of_the_store() == []
            return backend.claim(request(1_000, "b")).outcome.value, backend.claim(request(2_000, "c")).outcome.value

        assert Child(work).value() == ["running", "won"]
        assert backend.heartbeat("sync", "1000", "a", 30_000) is Verdict.OK
        assert {run.run_id for run in backend.active("sync")} == {"1000", "2000"}

    @pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["fork", "fork_in_c"])
    def test_what_a_child_writes_after_its_parent_has_closed_is_kept(
        self, backend: SQLiteBackend, signals: Any, fork: Callable[[], int]
    ) -> None:
        # A child that trusts in inherited locks goes on writing in a log that its parent has removed.
        backend.claim(request(1_000))
        backend.history("sync", 10)
        wrote, closed = signals(), signals()

        def work() -> None:
            backend.claim(request(2_000))
            backend.history("sync", 10)
            wrote.set()
            closed.wait()
            backend.claim(request(3_000))

        child = Child(work, fork)
        wrote.wait()
        backend.close()
        closed.set()
        child.value()
        assert [run.run_id for run in backend.active("sync")] == ["3000", "2000", "1000"]

    def test_a_fork_waits_for_a_transaction_to_end(self, path: Path) -> None:
        with held_in_transaction(path) as (backend, clock, thread):
            at_fork.append(clock.go_on.set)
            try:
                child = Child(lambda: backend.claim(request(1_000, "child")).outcome.value)
            finally:
                at_fork.clear()
            thread.join(30)
            assert child.value() == "running"
            assert backend.active("sync")[0].instance_id == "instance-held"

    def test_a_fork_waits_until_no_thread_is_inside_sqlite(self, path: Path, backend: SQLiteBackend) -> None:
        backend.save_result("sync", record(1))
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            thread = threading.Thread(target=lambda: backend.claim(request(1_000, "thread")))
            thread.start()
            until(lambda: backend._writer._connection is not None and backend._writer._connection._inside)
            at_fork.append(lambda: other.execute("ROLLBACK"))
            try:
                child = Child(lambda: backend.claim(request(1_000, "child")).outcome.value)
            finally:
                at_fork.clear()
        thread.join(30)
        assert child.value() == "running"

    @pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["fork", "fork_in_c"])
    def test_a_child_that_was_forked_in_the_middle_of_a_transaction_has_no_part_in_it(
        self, path: Path, signals: Any, fork: Callable[[], int]
    ) -> None:
        with held_in_transaction(path) as (backend, clock, thread):
            backend.bound_calls(200)
            locked, committed = signals(), signals()

            def work() -> tuple[str, str, str]:
                text = refusal(lambda: backend.claim(request(1_000, "child")))
                locked.set()
                committed.wait()
                reply = backend.claim(request(1_000, "child"))
                assert reply.holder is not None
                return text, reply.outcome.value, reply.holder.instance_id

            child = Child(work, fork)
            locked.wait()
            clock.go_on.set()
            thread.join(30)
            committed.set()
            text, outcome, holder = child.value()
            assert "other processes kept it locked" in text
            assert (outcome, holder) == ("running", "instance-held")
            assert backend.heartbeat("sync", "1000", "held", 30_000) is Verdict.OK

    def test_a_child_that_was_forked_while_a_thread_was_inside_sqlite_is_refused_and_ends(self, path: Path) -> None:
        script = f"""
            import ctypes, os, sqlite3, sys, threading, time
            sys.path[:0] = {sys.path!r}
            from anarchon import errors
            from anarchon.backends import sqlite_connection
            from anarchon.backends.sqlite import SQLiteBackend
            backend, other = SQLiteBackend({str(path)!r}), SQLiteBackend({str(path)!r})
            backend.forget("sync")
            holder = sqlite3.connect({str(path)!r}, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            thread = threading.Thread(target=backend.forget, args=("sync",), daemon=True)
            thread.start()
            while not any(connection._inside for connection in list(sqlite_connection._open)):
                time.sleep(0.001)
            if ctypes.PyDLL(None).fork() == 0:
                for call in (lambda: backend.forget("sync"), lambda: other.history("sync", 1)):
                    try:
                        call()
                    except errors.BackendError as error:
                        print(error, flush=True)
                sys.exit(3)  # By way of an ordinary exit, which takes down every object.
            _, status = os.wait()
            print("child:", os.waitstatus_to_exitcode(status), flush=True)
            holder.execute("ROLLBACK")
            thread.join()
            backend.forget("sync")
            print("parent: ok")
        """
        done = run_script(script)
        assert done.stdout.splitlines()[2:] == ["child: 3", "parent: ok"], done.stdout + done.stderr
        assert done.stdout.count("forked while another thread of its parent was inside SQLite") == 2

    def test_a_child_can_fork_again(self, backend: SQLiteBackend) -> None:
        backend.claim(request(1_000))

        def work() -> Any:
            backend.claim(request(2_000))
            return Child(lambda: backend.claim(request(3_000)).outcome.value).value()

        assert Child(work).value() == "won"
        assert len(backend.active("sync")) == 3


@pytest.mark.usefixtures("patient")
class TestThreads:
    def test_thousands_of_short_threads_leave_no_connection_behind(self, backend: SQLiteBackend) -> None:
        backend.claim(request(1_000))
        backend.history("sync", 1)
        before = files_of_the_store()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                backend.history("sync", 1)
                assert backend.heartbeat("sync", "1000", "b", 30_000) is Verdict.LOST
            except BaseException as error:
                failures.append(error)

        for _ in range(200):
            threads = [threading.Thread(target=work) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert failures == []
        assert files_of_the_store() == before

    def test_of_many_threads_that_claim_at_once_one_wins_and_none_fails(self, backend: SQLiteBackend) -> None:
        barrier = threading.Barrier(24)
        outcomes: list[Outcome] = []

        def work(number: int) -> None:
            barrier.wait(30)
            for slot_ms in (1_000, 2_000, 3_000):
                outcomes.append(backend.claim(request(slot_ms, f"token-{number}")).outcome)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(outcomes) == 72
        assert outcomes.count(Outcome.WON) == 3

    def test_a_thread_that_stays_inside_holds_up_the_others_no_longer_than_the_limit(self, path: Path) -> None:
        with held_in_transaction(path) as (backend, clock, thread):
            backend.bound_calls(100)
            begun = time.monotonic()
            assert "other threads kept it busy for longer than 100ms" in refusal(lambda: backend.claim(request(2_000)))
            assert time.monotonic() - begun < 50
            # Readers have a connection of their own; and close gives up too, and harms nobody.
            assert backend.history("sync", 1) == [record(1)]
            backend.close()
            clock.go_on.set()
            thread.join(30)
            assert backend.claim(request(2_000)).outcome is Outcome.WON
            assert {run.run_id for run in backend.active("sync")} == {"1000", "2000"}


class TestLocks:
    @pytest.fixture
    def locked(self, backend: SQLiteBackend, path: Path) -> Iterator[sqlite3.Connection]:
        """Another connection that is in the middle of writing, and stays there."""
        backend.save_result("sync", record(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield other

    def test_a_file_that_is_locked_too_long_is_an_error_and_works_again_when_it_is_free(
        self, backend: SQLiteBackend, locked: sqlite3.Connection
    ) -> None:
        backend.bound_calls(200)
        begun = time.monotonic()
        with pytest.raises(
            BackendError, match=r"jobs\.db: other processes kept it locked for longer than 200ms"
        ) as caught:
            backend.claim(request(1_000))
        assert 0.15 < time.monotonic() - begun < 50
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert backend.history("sync", 1) == [record(1)]
        assert backend.active("sync") == []
        locked.execute("ROLLBACK")
        assert backend.claim(request(1_000)).outcome is Outcome.WON

    @pytest.mark.usefixtures("patient")
    def test_a_lock_that_is_given_back_in_time_is_only_waited_for(
        self, backend: SQLiteBackend, locked: sqlite3.Connection
    ) -> None:
        answers: list[Outcome] = []
        thread = threading.Thread(target=lambda: answers.append(backend.claim(request(1_000)).outcome))
        thread.start()
        locked.execute("COMMIT")
        thread.join(30)
        assert answers == [Outcome.WON]

    def test_the_limit_is_only_ever_lowered(self, backend: SQLiteBackend, locked: sqlite3.Connection) -> None:
        for limit_ms in (60_000, 100, 5_000):
            backend.bound_calls(limit_ms)
        assert "longer than 100ms" in refusal(lambda: backend.claim(request(1_000)))

    def test_without_a_shorter_lease_a_call_waits_for_three_seconds(
        self, backend: SQLiteBackend, locked: sqlite3.Connection
    ) -> None:
        begun = time.monotonic()
        assert "longer than 3s" in refusal(lambda: backend.claim(request(1_000)))
        assert 2.5 < time.monotonic() - begun < 50

    def test_a_new_file_that_is_locked_is_an_error_for_a_while(self, backend: SQLiteBackend, path: Path) -> None:
        backend.bound_calls(100)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for call in (lambda: backend.claim(request(1_000)), lambda: backend.history("sync", 1)):
                assert "other processes kept it locked" in refusal(call)
        assert backend.claim(request(1_000)).outcome is Outcome.WON

    def test_a_change_to_the_log_waits_for_readers_and_is_an_error_if_they_stay(
        self, backend: SQLiteBackend, path: Path
    ) -> None:
        backend.save_result("sync", record(1))
        backend.close()
        backend.bound_calls(100)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA journal_mode = delete")
            other.execute("BEGIN")
            other.execute("SELECT * FROM history").fetchall()
            assert "other processes kept it locked" in refusal(lambda: backend.claim(request(1_000)))
            other.execute("COMMIT")
            assert backend.claim(request(1_000)).outcome is Outcome.WON
            other.execute("SELECT * FROM history").fetchall()  # Only now does it look at the file again.
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


class TestDisks:
    def test_a_full_database_is_an_error_that_leaves_all_as_it_was(self, backend: SQLiteBackend) -> None:
        backend.claim(request(1_000, history_limit=10_000))
        with backend._writer.lent() as connection:
            assert connection is not None
            connection.run("PRAGMA max_page_count = 1")  # No page more than there are.
        slots = iter(range(2_000, 10_000))
        kept = []
        with pytest.raises(BackendError, match=r"jobs\.db: database or disk is full") as caught:
            for slot_ms in slots:
                backend.save_result("sync", record(slot_ms, error="E: " + "x" * 4_000))
                kept.append(slot_ms)
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert [run.run_id for run in backend.active("sync")] == ["1000"]
        assert [int(each.run_id) for each in backend.history("sync", 10_000)] == kept[::-1]
        backend.save_result("sync", record(next(slots), error="E: " + "x" * 4_000))
        assert len(backend.history("sync", 10_000)) == len(kept) + 1

    def test_a_full_disk_is_an_error_until_there_is_room_again(self, tmp_path: Path) -> None:
        if not can_mount():
            pytest.skip("needs the right to mount a small file system of its own")
        script = f"""
            import os, sys
            sys.path[:0] = {sys.path!r} + [{str(Path(__file__).parent)!r}]
            from test_sqlite_store import SQLiteBackend, Outcome, Verdict, ballast, record, refusal, request
            backend = SQLiteBackend("jobs.db")
            assert backend.claim(request(1_000)).outcome is Outcome.WON
            ballast("ballast")
            for _ in range(2):
                for call in (
                    lambda: backend.finish("sync", "1000", "a", record(1_000, error="E: " + "x" * 4_000)),
                    lambda: backend.claim(request(2_000, "b" * 5_000)),
                ):
                    print(refusal(call))
            assert [run.run_id for run in backend.active("sync")] == ["1000"]
            assert backend.history("sync", 10) == []
            os.remove("ballast")
            assert backend.finish("sync", "1000", "a", record(1_000)) is Verdict.OK
            assert backend.claim(request(2_000)).outcome is Outcome.WON
            backend.close()
            os.remove("jobs.db")
            ballast("ballast")
            print(refusal(lambda: backend.claim(request(1_000))))
            os.remove("ballast")
            assert backend.claim(request(1_000)).outcome is Outcome.WON
            backend.close()
            print("done")
        """
        mount = f'mount -t tmpfs -o size=1m none {tmp_path} && cd {tmp_path} && exec {sys.executable} -c "$0"'
        done = run_script(script, "unshare", "--mount", "sh", "-c", mount)
        lines = done.stdout.splitlines()
        assert lines[5:] == ["done"], done.stdout + done.stderr
        assert all("jobs.db" in line and ("full" in line or "I/O" in line) for line in lines[:5]), lines

    def test_a_disk_that_refuses_to_write_is_an_error_until_it_writes_again(self, path: Path) -> None:
        def work() -> str:
            with closing(SQLiteBackend(path)) as backend:
                backend.claim(request(1_000))
                before = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("jobs.db-wal").stat().st_size, before[1]))
                text = refusal(lambda: backend.finish("sync", "1000", "a", record(1_000, error="E: " + "x" * 4_000)))
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                assert [run.run_id for run in backend.active("sync")] == ["1000"]
                assert backend.finish("sync", "1000", "a", record(1_000)) is Verdict.OK
                return text

        assert "jobs.db: disk I/O error" in Child(work).value()

    def test_a_file_that_was_left_half_made_is_made_again(self, backend: SQLiteBackend, path: Path) -> None:
        leave_half_done(path, APPLICATION_ID)
        assert "readonly" in refusal(lambda: backend.history("sync", 1))
        assert backend.claim(request(1_000)).outcome is Outcome.WON
        assert [run.run_id for run in backend.active("sync")] == ["1000"]

    @pytest.mark.parametrize("application_id", [0, 77])
    def test_what_another_application_left_half_done_is_not_touched(
        self, backend: SQLiteBackend, path: Path, application_id: int
    ) -> None:
        leave_half_done(path, application_id)
        journal = path.with_name("jobs.db-journal")
        before = path.read_bytes(), journal.read_bytes()
        for call in (lambda: backend.claim(request(1_000)), lambda: backend.history("sync", 1)):
            assert "jobs.db" in refusal(call)
        assert (path.read_bytes(), journal.read_bytes()) == before


class TestReadOnly:
    @pytest.fixture
    def place(self) -> Iterator[Path]:
        # Not below pytest's own directory, which root keeps to itself.
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
            os.chmod(name, 0o700)

    def test_a_store_that_may_only_be_read_is_read(self, place: Path) -> None:
        with closing(SQLiteBackend(place / "jobs.db")) as backend:
            backend.claim(request(1_000))
            backend.finish("sync", "1000", "a", record(1_000))
            backend.claim(request(2_000))
        before = {file.name: file.read_bytes() for file in place.iterdir()}
        permit(place, 0o555, 0o444)
        with as_plain_user(), closing(SQLiteBackend(place / "jobs.db")) as reader:
            for _ in range(2):
                assert [each.run_id for each in reader.history("sync", 10)] == ["1000"]
                assert [run.run_id for run in reader.active("sync")] == ["2000"]
                assert reader.time("sync") > 0
        assert {file.name: file.read_bytes() for file in place.iterdir()} == before

    def test_a_reader_without_the_right_to_write_sees_what_a_worker_writes(self, place: Path) -> None:
        with closing(SQLiteBackend(place / "jobs.db")) as worker, closing(SQLiteBackend(place / "jobs.db")) as reader:
            worker.claim(request(500))
            worker.save_result("sync", record(1_000))
            permit(place, 0o755, 0o644)
            with as_plain_user():
                assert [each.run_id for each in reader.history("sync", 10)] == ["1000"]
            worker.save_result("sync", record(2_000))
            with as_plain_user():
                assert [each.run_id for each in reader.history("sync", 10)] == ["2000", "1000"]

    def test_a_log_that_cannot_be_read_is_an_error_and_not_an_old_answer(self, place: Path) -> None:
        with closing(SQLiteBackend(place / "jobs.db")) as backend:
            backend.save_result("sync", record(1_000))
            # As after a crash, and a copy that took the log along but not its index.
            (place / "copy").mkdir()
            for name in ("jobs.db", "jobs.db-wal"):
                shutil.copy(place / name, place / "copy" / name)
        permit(place / "copy", 0o555, 0o444)
        place.chmod(0o755)
        with as_plain_user(), closing(SQLiteBackend(place / "copy" / "jobs.db")) as reader:
            assert "unable to open" in refusal(lambda: reader.history("sync", 10))

    @pytest.mark.parametrize(("directory", "file"), [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666)])
    def test_a_claim_on_what_may_not_be_written_is_an_error_until_it_may(
        self, place: Path, directory: int, file: int
    ) -> None:
        with closing(SQLiteBackend(place / "jobs.db")) as backend:
            backend.save_result("sync", record(1))
            backend.close()
            permit(place, directory, file)
            with as_plain_user():
                assert "jobs.db: " in refusal(lambda: backend.claim(request(1_000)))
            permit(place, 0o777, 0o666)
            with as_plain_user():
                assert backend.claim(request(1_000)).outcome is Outcome.WON
                backend.close()

    def test_a_claim_where_no_file_may_be_made_is_an_error(self, place: Path) -> None:
        place.chmod(0o555)
        with as_plain_user(), closing(SQLiteBackend(place / "jobs.db")) as backend:
            assert "jobs.db: unable to open" in refusal(lambda: backend.claim(request(1_000)))
            assert backend.history("sync", 1) == []

    def test_a_file_that_may_not_be_read_is_an_error_and_not_an_empty_history(self, place: Path) -> None:
        with closing(SQLiteBackend(place / "jobs.db")) as backend:
            backend.save_result("sync", record(1_000))
        permit(place, 0o755, 0o000)
        with as_plain_user(), closing(SQLiteBackend(place / "jobs.db")) as reader:
            assert "jobs.db: unable to open" in refusal(lambda: reader.history("sync", 1))
        place.chmod(0o000)
        with as_plain_user(), closing(SQLiteBackend(place / "jobs.db")) as reader:
            assert "cannot be reached" in refusal(lambda: reader.history("sync", 1))


def test_the_footprint_of_a_job_does_not_grow_with_its_age(path: Path) -> None:
    clock = ManualClock()
    with closing(SQLiteBackend(path, clock=clock)) as backend:

        def finish(count: int) -> None:
            for _ in range(count):
                clock.advance("1s")
                slot_ms = clock.now_ms()
                backend.claim(request(slot_ms))
                backend.finish("sync", str(slot_ms), "a", record(slot_ms))

        with unsafely_fast(backend):
            finish(1_000)  # The runs of ten minutes are remembered: 600 of them.
            before = footprint(path)
            finish(3_000)
        assert footprint(path) == before
        assert before["rows"] == {"jobs": 1, "runs": 0, "ended": 600, "history": 50}
        # SQLite folds the log into the file at a thousand pages, and writes it from the start again.
        assert path.with_name("jobs.db-wal").stat().st_size < 6_000_000


@contextmanager
def unsafely_fast(backend: SQLiteBackend) -> Iterator[None]:
    """Does not wait for the disk. No power cut is to be survived here."""
    backend.forget("nothing")
    with backend._writer.lent() as connection:
        assert connection is not None
        connection.run("PRAGMA synchronous = OFF")
    yield


def footprint(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as connection:
        [(pages,)] = connection.execute("PRAGMA page_count")
        [(free,)] = connection.execute("PRAGMA freelist_count")
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("jobs", "runs", "ended", "history")
        }
    # To a page or two: how rows fall into pages differs a little from one moment to the next.
    return {"pages": round((pages - free) / 10), "rows": counts}


at_fork: list[Callable[[], object]] = []
os.register_at_fork(before=lambda: [call() for call in at_fork])


def files_of_the_store() -> list[str]:
    """Those that this process has open."""
    files = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The one by which the directory itself was read.
            files.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(file for file in files if "jobs.db" in file)


def until(condition: Callable[[], bool]) -> None:
    """For what no event tells: the moment at which a thread is inside SQLite."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def run_script(script: str, *before: str) -> subprocess.CompletedProcess[str]:
    lines = script.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] for line in lines)
    command = [*before, text] if before else [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def ballast(name: str) -> None:
    """Fills the disk to the last byte."""
    with open(name, "wb", buffering=0) as file:
        for size in (65_536, 512, 1):
            try:
                while True:
                    file.write(b"\x00" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC


def leave_half_done(path: Path, application_id: int) -> None:
    """As after a power cut at the end of a commit: all is written, and beside it lies the journal to undo it."""
    journal, kept = path.with_name(f"{path.name}-journal"), path.with_name("kept")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # A cache of one page writes at once, and before that the journal.
        connection.executescript("PRAGMA cache_size = 1; CREATE TABLE first (x); DROP TABLE first; BEGIN IMMEDIATE;")
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute("CREATE TABLE half (x)")
        for _ in range(200):
            connection.execute("INSERT INTO half VALUES (zeroblob(3000))")
        shutil.copy(journal, kept)
        connection.execute("COMMIT")
    kept.rename(journal)


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Root may write everything; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def permit(directory: Path, directory_mode: int, file_mode: int) -> None:
    for file in directory.iterdir():
        if file.is_file():
            file.chmod(file_mode)
    directory.chmod(directory_mode)
