"""The SQLite backend in one process: its options, its file, and answers that are the memory backend's to the letter."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from anarchon.backends import LeaseBackend, open_backend
from anarchon.backends.memory import MemoryBackend
from anarchon.backends.sqlite import SQLiteBackend
from anarchon.backends.sqlite_connection import Connection
from anarchon.backends.sqlite_file import APPLICATION_ID, STATEMENTS
from anarchon.durations import from_ms
from anarchon.errors import BackendError, ConfigurationError
from anarchon.records import ClaimRequest, DoneReason, Mode, Outcome, RunRecord, Verdict
from anarchon.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def backend(path: Path, clock: ManualClock) -> Iterator[SQLiteBackend]:
    with closing(SQLiteBackend(path, clock=clock)) as backend:
        yield backend


def request(slot_ms: int, token: str = "a", job: str = "sync", **options: Any) -> ClaimRequest:
    values = {
        "run_id": str(slot_ms),
        "instance_id": f"instance-{token}",
        "lease_ms": 30_000,
        "overlap": "skip",
        "max_attempts": 3,
        "window_ms": 60_000,
        "mode": Mode.START,
        "trigger": "scheduled",
        "history_limit": 200,
    }
    return ClaimRequest(job=job, slot_ms=slot_ms, token=token, **{**values, **options})


def record(slot_ms: int, job: str = "sync", **facts: Any) -> RunRecord:
    values: dict[str, Any] = {
        "run_id": str(slot_ms),
        "attempt": 1,
        "trigger": "scheduled",
        "status": "success",
        "instance_id": "instance-a",
        "fence": 1,
        "started_at": from_ms(slot_ms),
        "finished_at": from_ms(slot_ms + 500),
        "duration": 0.5,
    }
    return RunRecord(job=job, slot=from_ms(slot_ms), **{**values, **facts})


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def write(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(sql)


class TestHowItIsNamed:
    @pytest.mark.parametrize("path", ["", ":memory:", b"jobs.db", None, 7, "jobs\x00.db"])
    def test_a_path_that_names_no_shared_file_is_refused(self, path: Any) -> None:
        with pytest.raises(ConfigurationError):
            SQLiteBackend(path)

    def test_text_and_path_objects_name_the_same_file(self, path: Path) -> None:
        assert repr(SQLiteBackend(path)) == repr(SQLiteBackend(str(path))) == f"<SQLiteBackend {path}>"
        assert repr(SQLiteBackend(PurePosixPath("/srv/jobs.db"))) == "<SQLiteBackend /srv/jobs.db>"

    def test_an_absolute_url_names_an_absolute_file(self) -> None:
        assert repr(open_backend("sqlite:////srv/app/jobs.db")) == "<SQLiteBackend /srv/app/jobs.db>"

    def test_a_relative_url_is_taken_from_the_directory_of_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        backend = SQLiteBackend.from_url("sqlite:///jobs.db")
        monkeypatch.chdir(tmp_path / "elsewhere")
        with closing(backend):
            backend.save_result("sync", record(1_000))
        assert (tmp_path / "jobs.db").exists() and not os.listdir(tmp_path / "elsewhere")

    def test_percent_encoded_signs_of_a_url_are_read(self) -> None:
        assert repr(SQLiteBackend.from_url("sqlite:////srv/a%20b%3F%23%25.db")) == "<SQLiteBackend /srv/a b?#%.db>"
        assert repr(SQLiteBackend.from_url("sqlite:////srv/%CE%B1%FF.db")) == "<SQLiteBackend /srv/α\udcff.db>"

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:",
            "sqlite://",
            "sqlite:///",
            "sqlite://jobs.db",
            "sqlite://host/jobs.db",
            "sqlite:///:memory:",
            "sqlite:///%00",
            "sqlite:///jobs.db?mode=memory",
            "sqlite:///jobs.db#part",
            "file:///jobs.db",
        ],
    )
    def test_any_other_url_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigurationError):
            SQLiteBackend.from_url(url)

    @pytest.mark.parametrize("name", ["a b.db", "what?.db", "100%.db", "#1.db", "file:x.db", "α.db", "x?mode=memory"])
    def test_a_file_may_have_any_name(self, tmp_path: Path, name: str) -> None:
        with closing(SQLiteBackend(tmp_path / name)) as backend:
            backend.save_result("sync", record(1_000))
        assert os.listdir(tmp_path) == [name]

    def test_nothing_is_opened_at_construction(self, path: Path) -> None:
        SQLiteBackend(path)
        SQLiteBackend(path / "no" / "such" / "place")
        assert not path.exists()


class TestItsFile:
    def test_a_new_file_is_marked_as_ours_and_keeps_a_log(self, backend: SQLiteBackend, path: Path) -> None:
        backend.save_result("sync", record(1_000))
        assert rows(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
        assert rows(path, "PRAGMA user_version") == [(1,)]
        assert rows(path, "PRAGMA journal_mode") == [("wal",)]

    def test_every_commit_is_on_the_disk_before_it_is_answered(self, backend: SQLiteBackend) -> None:
        backend.save_result("sync", record(1_000))
        with backend._writer.lent() as connection:
            assert connection is not None
            assert connection.run("PRAGMA synchronous") == [(2,)]

    def test_a_file_system_that_can_have_no_log_is_refused(
        self, backend: SQLiteBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # SQLite does not fail there: it answers with the mode that it stays in.
        run = Connection.run
        monkeypatch.setattr(
            Connection,
            "run",
            lambda self, sql, *values: [("delete",)] if "journal_mode" in sql else run(self, sql, *values),
        )
        with pytest.raises(BackendError, match=r"jobs\.db is on a file system without shared memory"):
            backend.save_result("sync", record(1_000))

    def test_an_empty_file_is_made_ours(self, backend: SQLiteBackend, path: Path) -> None:
        path.touch()
        assert backend.history("sync", 10) == []
        backend.save_result("sync", record(1_000))
        assert backend.history("sync", 10) == [record(1_000)]

    def test_what_one_object_keeps_another_reads(self, backend: SQLiteBackend, path: Path, clock: ManualClock) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        with closing(SQLiteBackend(path, clock=clock)) as other:
            assert other.claim(request(slot_ms, "b")).outcome is Outcome.RUNNING
            assert other.active("sync") == backend.active("sync") != []

    def test_reading_makes_no_file(self, backend: SQLiteBackend, path: Path, clock: ManualClock) -> None:
        assert backend.history("sync", 10) == []
        assert backend.active("sync") == []
        assert backend.time("sync") == clock.now_ms()
        assert not path.exists()

    def test_reading_where_there_is_no_directory_is_an_error(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path / "none" / "jobs.db")
        for read in (lambda: backend.history("sync", 10), lambda: backend.active("sync"), lambda: backend.time("sync")):
            with pytest.raises(BackendError, match=r"none/jobs\.db.*its directory does not exist"):
                read()

    def test_a_claim_where_there_is_no_directory_is_an_error_until_there_is_one(self, tmp_path: Path) -> None:
        with closing(SQLiteBackend(tmp_path / "none" / "jobs.db")) as backend:
            with pytest.raises(BackendError, match=r"none/jobs\.db.*its directory does not exist") as caught:
                backend.save_result("sync", record(1_000))
            assert isinstance(caught.value.__cause__, sqlite3.Error)
            (tmp_path / "none").mkdir()
            backend.save_result("sync", record(1_000))
            assert backend.history("sync", 10) == [record(1_000)]

    def test_a_directory_in_place_of_the_file_is_an_error(self, tmp_path: Path) -> None:
        backend = SQLiteBackend(tmp_path)
        for call in (lambda: backend.history("sync", 10), lambda: backend.save_result("sync", record(1_000))):
            with pytest.raises(BackendError, match="is not a file"):
                call()

    def test_a_file_below_a_file_is_an_error(self, path: Path) -> None:
        path.touch()
        backend = SQLiteBackend(path / "jobs.db")
        for call in (lambda: backend.history("sync", 10), lambda: backend.save_result("sync", record(1_000))):
            with pytest.raises(BackendError, match="cannot be reached"):
                call()

    def test_a_file_that_is_removed_is_noticed_at_the_next_call(self, backend: SQLiteBackend, path: Path) -> None:
        backend.save_result("sync", record(1_000))
        assert backend.history("sync", 10) == [record(1_000)]
        for file in path.parent.iterdir():
            file.unlink()
        assert backend.history("sync", 10) == []
        backend.save_result("sync", record(2_000))
        assert backend.history("sync", 10) == [record(2_000)]
        assert rows(path, "SELECT run_id FROM history") == [("2000",)]

    def test_closing_twice_is_safe_and_the_next_call_opens_again(self, backend: SQLiteBackend) -> None:
        backend.close()
        backend.save_result("sync", record(1_000))
        backend.close()
        backend.close()
        assert backend.history("sync", 10) == [record(1_000)]

    def test_a_backend_that_is_dropped_closes_its_connections(self, path: Path) -> None:
        backend = SQLiteBackend(path)
        backend.save_result("sync", record(1_000))
        assert backend.history("sync", 10) == [record(1_000)]
        del backend
        # The last to close folds the log into the file and removes it; an unclosed connection would be a warning too.
        assert not path.with_name("jobs.db-wal").exists()


class TestFilesOfOthers:
    @pytest.fixture(params=["delete", "wal"])
    def foreign(self, path: Path, request: pytest.FixtureRequest) -> Path:
        write(path, f"PRAGMA journal_mode = {request.param}; CREATE TABLE users (name); INSERT INTO users VALUES (1);")
        return path

    def test_another_applications_database_is_refused_and_left_as_it_was(
        self, foreign: Path, backend: SQLiteBackend, clock: ManualClock
    ) -> None:
        before = foreign.read_bytes()
        for call in every_call(backend, clock.now_ms()):
            with pytest.raises(BackendError, match=r"jobs\.db belongs to another application"):
                call()
        backend.close()
        assert foreign.read_bytes() == before
        assert rows(foreign, "SELECT name FROM users") == [(1,)]

    @pytest.mark.parametrize("pragma", ["application_id = 5", "user_version = 5"])
    def test_a_database_with_the_mark_of_another_application_is_refused(
        self, path: Path, backend: SQLiteBackend, clock: ManualClock, pragma: str
    ) -> None:
        write(path, f"PRAGMA {pragma}")
        before = path.read_bytes()
        for call in every_call(backend, clock.now_ms()):
            with pytest.raises(BackendError, match="belongs to another application"):
                call()
        assert path.read_bytes() == before

    def test_a_log_that_another_application_has_not_folded_in_is_left_alone(
        self, path: Path, backend: SQLiteBackend, clock: ManualClock
    ) -> None:
        theirs, log = path.with_name("theirs.db"), path.with_name("jobs.db-wal")
        with closing(sqlite3.connect(theirs, isolation_level=None)) as connection:
            connection.executescript("PRAGMA journal_mode = wal; CREATE TABLE users (name);")
            # As after a crash: whoever opens the file to write in it would fold in the log.
            shutil.copy(theirs, path)
            shutil.copy(f"{theirs}-wal", log)
        before = path.read_bytes(), log.read_bytes()
        for call in every_call(backend, clock.now_ms()):
            with pytest.raises(BackendError, match="belongs to another application"):
                call()
        backend.close()
        assert (path.read_bytes(), log.read_bytes()) == before

    @pytest.mark.parametrize(
        "content", [b"hi", b"This is no database. " * 1000, b"SQLite format 3\x00" + b"\xff" * 4080]
    )
    def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(
        self, path: Path, backend: SQLiteBackend, clock: ManualClock, content: bytes
    ) -> None:
        path.write_bytes(content)
        for call in every_call(backend, clock.now_ms()):
            with pytest.raises(BackendError, match=r"jobs\.db: .*(not a database|malformed)") as caught:
                call()
            assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert path.read_bytes() == content

    def test_a_file_of_a_newer_version_is_refused_and_left_as_it_was(
        self, path: Path, backend: SQLiteBackend, clock: ManualClock
    ) -> None:
        backend.save_result("sync", record(1_000))
        backend.close()
        write(path, "PRAGMA user_version = 99")
        before = path.read_bytes()
        for call in every_call(backend, clock.now_ms()):
            with pytest.raises(BackendError, match="written by a newer anarchon .*99"):
                call()
        backend.close()
        assert path.read_bytes() == before

    def test_a_strangers_file_that_is_taken_away_makes_room_for_ours(
        self, foreign: Path, backend: SQLiteBackend
    ) -> None:
        with pytest.raises(BackendError):
            backend.save_result("sync", record(1_000))
        for file in foreign.parent.iterdir():
            file.unlink()
        backend.save_result("sync", record(1_000))
        assert backend.history("sync", 10) == [record(1_000)]


class TestWhatItKeeps:
    def test_answers_are_those_of_memory_for_any_calls(self, path: Path) -> None:
        for seed in range(4):
            clock = ManualClock()
            memory = MemoryBackend(clock=clock)
            with closing(SQLiteBackend(path.with_name(f"{seed}.db"), clock=clock)) as backend:
                for number, (name, call) in enumerate(random_calls(random.Random(seed), clock, memory, 500)):
                    assert call(backend) == call(memory), f"seed {seed}, call {number}: {name}"
                    for job in ("sync", "export"):
                        assert backend.active(job) == memory.active(job), f"seed {seed}, call {number}: {name}"
                        assert backend.history(job, 50) == memory.history(job, 50), (
                            f"seed {seed}, call {number}: {name}"
                        )

    def test_a_claim_that_loses_writes_nothing(self, backend: SQLiteBackend, path: Path, clock: ManualClock) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        log = path.with_name("jobs.db-wal")
        before = log.read_bytes()
        for _ in range(3):
            assert backend.claim(request(slot_ms, "b")).outcome is Outcome.RUNNING
        assert backend.claim(request(slot_ms + 5_000, "b")).outcome is Outcome.NONE
        assert backend.heartbeat("sync", str(slot_ms), "b", 30_000) is Verdict.LOST
        assert log.read_bytes() == before

    def test_a_clock_that_fails_in_a_transaction_leaves_nothing_behind(
        self, backend: SQLiteBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> int:
            raise RuntimeError("no time")

        slot_ms = clock.now_ms()
        monkeypatch.setattr(backend, "_now", fail)
        with pytest.raises(RuntimeError, match="no time"):
            backend.claim(request(slot_ms))
        monkeypatch.undo()
        assert backend.active("sync") == []
        assert backend.claim(request(slot_ms, "b")).outcome is Outcome.WON

    def test_a_call_that_fails_half_way_has_changed_nothing(
        self, backend: SQLiteBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        before = backend.active("sync")
        monkeypatch.setitem(STATEMENTS, "cut_history", "SELECT no_such_function()")
        with pytest.raises(BackendError, match="no_such_function"):
            backend.finish("sync", str(slot_ms), "a", record(slot_ms))
        monkeypatch.undo()
        assert backend.active("sync") == before
        assert backend.history("sync", 10) == []
        assert backend.finish("sync", str(slot_ms), "a", record(slot_ms)) is Verdict.OK

    def test_a_record_that_cannot_be_read_is_passed_over_and_kept(self, backend: SQLiteBackend, path: Path) -> None:
        good = [record(slot_ms, fence=slot_ms) for slot_ms in range(9_000, 0, -1_000)]
        backend.claim(request(0, window_ms=10**15))
        for each in good:
            backend.save_result("sync", each)
        damage = ["'no json'", "CAST(x'ff00fe' AS TEXT)", "x'80'", "7", "'{}'"]
        for number, value in enumerate(damage):
            write(path, f"UPDATE history SET record = {value} WHERE run_id = '{9_000 - 1_000 * number}'")
        assert backend.history("sync", 3) == good[5:8]
        assert backend.history("sync", 100) == good[5:]
        assert backend.history("sync", 0) == []
        assert rows(path, "SELECT count(*) FROM history") == [(9,)]

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ("runs SET token = CAST(x'ff' AS TEXT)", r"token of run '1767225600000': b'\xff'"),
            ("runs SET instance_id = x'00'", r"instance_id of run '1767225600000': b'\x00'"),
            ("runs SET run_id = CAST(x'ff' AS TEXT)", r"run_id of run b'\xff': b'\xff'"),
            ("runs SET manual = 1", "manual of run '1767225600000': True"),
            ("runs SET ended = 2", "ended of run '1767225600000': 2"),
        ],
    )
    def test_what_only_a_file_can_damage_is_named_and_passed_over_by_readers(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock, change: str, named: str
    ) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        write(path, f"UPDATE {change}")
        with pytest.raises(BackendError, match=re.escape(f"job 'sync' is damaged ({named}); nothing runs it")):
            backend.claim(request(slot_ms, "b"))
        assert backend.active("sync") == []

    def test_a_damaged_end_is_neither_finished_nor_forgotten(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock
    ) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        backend.finish("sync", str(slot_ms), "a", record(slot_ms))
        write(path, "UPDATE ended SET finished = 'x'")
        named = re.escape(f"damaged (finished of run '{slot_ms}': 'x')")
        with pytest.raises(BackendError, match=named):
            backend.claim(request(slot_ms, "b"))
        with pytest.raises(BackendError, match=named):
            backend.finish("sync", str(slot_ms), "a", record(slot_ms))
        clock.advance(60)
        assert backend.claim(request(clock.now_ms(), "b")).outcome is Outcome.WON

    def test_runs_without_their_job_are_damage_and_no_new_job(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock
    ) -> None:
        backend.claim(request(clock.now_ms()))
        write(path, "DELETE FROM jobs")
        with pytest.raises(BackendError, match=re.escape("damaged (fence: missing)")):
            backend.claim(request(clock.now_ms(), "b", overlap="allow"))

    @pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
    def test_text_that_sqlite_cannot_hold_is_an_error_and_no_crash(
        self, backend: SQLiteBackend, clock: ManualClock, text: str
    ) -> None:
        with pytest.raises(BackendError, match="cannot hold a value"):
            backend.claim(request(clock.now_ms(), instance_id=text))
        assert backend.claim(request(clock.now_ms())).outcome is Outcome.WON

    def test_any_text_of_an_error_is_kept_to_four_kibibytes(self, backend: SQLiteBackend) -> None:
        backend.save_result("sync", record(1_000, error="E: \x00\ud800" + "é" * 10_000))
        [kept] = backend.history("sync", 1)
        assert kept.error is not None and 4_000 < len(kept.error.encode()) <= 4_096

    def test_names_with_quotes_and_zero_bytes_are_kept_apart(self, backend: SQLiteBackend, clock: ManualClock) -> None:
        slot_ms = clock.now_ms()
        for job in ("a", "a'; DROP TABLE jobs; --", "a\x00b", "a\x00c", 'a"'):
            assert backend.claim(request(slot_ms, job=job)).outcome is Outcome.WON
            assert backend.active(job)[0].job == job

    def test_what_has_ended_is_remembered_ten_minutes_and_the_newest_sixteen_for_longer(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock
    ) -> None:
        first_ms = clock.now_ms()
        for number in range(20):
            slot_ms = first_ms + number * 1_000
            backend.claim(request(slot_ms))
            backend.finish("sync", str(slot_ms), "a", record(slot_ms))
            clock.advance("1s")
        clock.advance("11m")
        assert backend.claim(request(first_ms)).done is DoneReason.FINISHED
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        backend.finish("sync", str(slot_ms), "a", record(slot_ms))
        assert rows(path, "SELECT count(*) FROM ended") == [(16,)]
        assert backend.claim(request(first_ms)).done is DoneReason.PASSED

    def test_forgetting_a_job_leaves_no_row_of_it_and_all_of_the_others(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock
    ) -> None:
        for job in ("sync", "export"):
            for number in range(3):
                slot_ms = clock.now_ms() + number
                clock.advance("1s")
                backend.claim(request(slot_ms, job=job))
                if number < 2:
                    backend.finish(job, str(slot_ms), "a", record(slot_ms, job=job))
        backend.forget("sync")
        for table, kept in (("jobs", 1), ("runs", 1), ("ended", 2), ("history", 2)):
            assert rows(path, f"SELECT count(*), min(job) FROM {table}") == [(kept, "export")], table

    def test_the_clock_is_read_when_the_transaction_has_been_granted(
        self, backend: SQLiteBackend, path: Path, clock: ManualClock
    ) -> None:
        slot_ms = clock.now_ms()
        backend.claim(request(slot_ms))
        backend._writer.limit_ms = 60_000  # not to give up on a machine that stands still meanwhile
        answers = []
        asked = threading.Event()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            thread = threading.Thread(
                target=lambda: (asked.set(), answers.append(backend.claim(request(slot_ms, "b", max_attempts=5))))
            )
            thread.start()
            assert asked.wait(30)
            clock.advance("31s")
            other.execute("ROLLBACK")
        thread.join(30)
        assert [answer.outcome for answer in answers] == [Outcome.WON]
        assert answers[0].store_time_ms == slot_ms + 31_000


def every_call(backend: LeaseBackend, slot_ms: int) -> list[Callable[[], object]]:
    run_id = str(slot_ms)
    return [
        lambda: backend.claim(request(slot_ms)),
        lambda: backend.heartbeat("sync", run_id, "a", 30_000),
        lambda: backend.finish("sync", run_id, "a", record(slot_ms)),
        lambda: backend.release("sync", run_id, "a", record(slot_ms), True),
        lambda: backend.save_result("sync", record(slot_ms)),
        lambda: backend.time("sync"),
        lambda: backend.active("sync"),
        lambda: backend.history("sync", 10),
        lambda: backend.forget("sync"),
    ]


def random_calls(
    chance: random.Random, clock: ManualClock, memory: MemoryBackend, count: int
) -> Iterator[tuple[str, Callable[[LeaseBackend], object]]]:
    """Calls with every option mixed, many of them on runs that are going, on a clock that steps both ways."""
    for _ in range(count):
        if chance.random() < 0.3:
            clock.step_wall(timedelta(milliseconds=chance.choice([1, 900, 5_000, 60_000, 700_000, -3_000, -60_000])))
        now_ms = clock.now_ms()
        job = chance.choice(["sync", "export"])
        if chance.random() < 0.7:
            slot_ms = now_ms // 10_000 * 10_000 + chance.choice([-20_000, -10_000, 0, 0, 0, 10_000])
            run_id, trigger = str(slot_ms), chance.choice(["scheduled", "catch-up", "takeover"])
        else:
            slot_ms = now_ms - chance.choice([0, 1_000, 400_000])
            run_id, trigger = f"manual-{chance.randrange(4)}", "manual"
        going = memory.active(job)
        if going and chance.random() < 0.4:
            run = chance.choice(going)
            run_id, slot_ms, trigger = run.run_id, int(run.slot.timestamp() * 1000), run.trigger
        token = chance.choice("abcdef")
        result = record(
            slot_ms,
            job=job,
            run_id=run_id,
            attempt=chance.randrange(1, 4),
            trigger=trigger,
            status=chance.choice(["success", "failed", "interrupted"]),
            fence=now_ms + chance.randrange(5),
            lease_lost=chance.random() < 0.2,
        )
        claim = request(
            slot_ms,
            token,
            job,
            run_id=run_id,
            lease_ms=chance.choice([1_000, 3_000, 30_000, 900_000]),
            overlap=chance.choice(["skip", "allow"]),
            max_attempts=chance.randrange(1, 4),
            window_ms=chance.choice([1_000, 15_000, 60_000]),
            mode=chance.choice([Mode.START, Mode.START, Mode.TAKEOVER]),
            trigger=trigger,
            history_limit=chance.randrange(1, 6),
        )
        yield chance.choices(calls(claim, result, counts=chance.random() < 0.5), weights=[45, 15, 15, 12, 6, 1, 6])[0]


def calls(claim: ClaimRequest, result: RunRecord, counts: bool) -> list[tuple[str, Callable[[LeaseBackend], object]]]:
    key = (claim.job, claim.run_id, claim.token)
    return [
        (f"claim {claim}", lambda store: store.claim(claim)),
        (f"heartbeat {key}", lambda store: store.heartbeat(*key, claim.lease_ms)),
        (f"finish {key}", lambda store: store.finish(*key, result)),
        (f"release {key} {counts}", lambda store: store.release(*key, result, counts)),
        (f"save_result {result}", lambda store: store.save_result(claim.job, result)),
        (f"forget {claim.job}", lambda store: store.forget(claim.job)),
        ("time", lambda store: store.time(claim.job)),
    ]
