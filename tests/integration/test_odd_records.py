"""Errors of any size and signs, and records that cannot be read, through whole runs on every kind of store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from anarchon import Event, LeaseBackend, RunRecord, Scheduler, open_backend

TRUNCATED, FOREIGN = '{"job": "odd", "slot_ms": ', '{"shape": "of another age"}'


@pytest.fixture(params=["memory", "sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, prefix: str) -> Iterator[LeaseBackend]:
    """A store of each kind, empty again at the end."""
    if request.param == "redis":
        opened = open_backend(redis_url, prefix=prefix)
    else:
        opened = open_backend({"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}[request.param])
    yield opened
    opened.forget("odd")
    opened.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * 10_000_000, id="ten megabytes"),
        pytest.param("\U0001f980" * 5_000, id="four bytes a sign, cut between signs"),
        pytest.param("a" + "\u00e9" * 5_000, id="two bytes a sign"),
        pytest.param("\ud800\udfff\udc80" * 2_000, id="halves of pairs"),
        pytest.param("\x00\x01\x1b[31m\r\n\u2028\u202e" * 1_000, id="control signs"),
        pytest.param('"}]\\' * 2_000, id="what JSON and Lua must not take for theirs"),
        pytest.param('"attempt":7,"fence":8', id="what looks like a record"),
    ],
)
def test_an_error_of_any_size_and_signs_is_kept_to_four_kibibytes(backend: LeaseBackend, text: str) -> None:
    def fail() -> None:
        raise ValueError(text)

    failures: list[Event] = []
    scheduler = Scheduler(backend, log=True)
    scheduler.every("odd", "1h", fail).on("failure", failures.append)
    record = scheduler.run_now("odd")
    assert scheduler.stop() is True
    assert record.status == "failed"
    assert record.error is not None
    assert record.error.startswith("ValueError: ")
    raw = record.error.encode("utf-8")
    assert len(raw) <= 4096
    if len(text) > 4096:
        assert len(raw) > 4096 - 4
        assert record.error.endswith("... (cut)")
    assert scheduler.history("odd") == [record]
    assert [event.record for event in failures] == [record]
    assert (record.attempt, record.lease_lost) == (1, False)
    assert record.fence != 8


@dataclass
class Records:
    """The texts of a job's records, in whatever store they are."""

    backend: LeaseBackend
    put: Callable[[RunRecord, str], object]
    texts: Callable[[], list[str]]


@pytest.fixture
def records_in_sqlite(tmp_path: Path) -> Iterator[Records]:
    backend = open_backend(f"sqlite:///{tmp_path}/jobs.db")
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as file:
        yield Records(
            backend,
            lambda record, text: file.execute(
                "UPDATE history SET record = ? WHERE run_id = ? AND attempt = ?", (text, record.run_id, record.attempt)
            ),
            lambda: [text for (text,) in file.execute("SELECT record FROM history")],
        )
    backend.close()


@pytest.fixture
def records_in_redis(redis_url: str, prefix: str) -> Iterator[Records]:
    backend = open_backend(redis_url, prefix=prefix)
    key = f"{prefix}{{odd}}:records"
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield Records(
            backend,
            lambda record, text: client.hset(key, f"{record.attempt}:{record.run_id}", text),
            lambda: client.hvals(key),
        )
    backend.forget("odd")
    backend.close()


@pytest.fixture(params=["records_in_sqlite", "records_in_redis"])
def records(request: pytest.FixtureRequest) -> Records:
    found: Records = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def scheduler(records: Records) -> Iterator[Scheduler]:
    made = Scheduler(records.backend)
    made.every("odd", "1h", lambda: None)
    yield made
    made.stop()


def test_a_damaged_record_is_passed_over_and_kept_through_further_runs(scheduler: Scheduler, records: Records) -> None:
    first, second, third = [scheduler.run_now("odd") for _ in range(3)]
    records.put(first, TRUNCATED)
    records.put(second, FOREIGN)
    assert scheduler.history("odd") == [third]
    assert scheduler.last_run("odd") == third
    records.put(third, TRUNCATED)
    assert (scheduler.history("odd"), scheduler.last_run("odd")) == ([], None)
    fourth = scheduler.run_now("odd")
    assert scheduler.history("odd", limit=2) == [fourth]
    texts = records.texts()
    assert (len(texts), texts.count(TRUNCATED), texts.count(FOREIGN)) == (4, 2, 1)


def test_a_record_of_a_newer_version_is_read_as_far_as_it_goes(scheduler: Scheduler, records: Records) -> None:
    record = scheduler.run_now("odd")
    [text] = records.texts()
    newer = text.replace("{", '{"colour":"blue","parts":[{"of":"it"}],', 1)
    records.put(record, newer)
    assert scheduler.history("odd") == [record]
    assert records.texts() == [newer]
