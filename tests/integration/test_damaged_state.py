"""A damaged field that decides stops its job with a clear word, whatever the store; nothing is guessed or lost."""

from __future__ import annotations

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from anarchon import BackendError, LeaseBackend, RunRecord, open_backend
from anarchon.durations import from_ms
from anarchon.records import ClaimRequest, Mode, Outcome, Verdict

JOB, OTHER = "sync", "other"

NO_NUMBERS = ["x", -1, 1.5, 10**14]
NUMBERS = ["slot_ms", "attempt", "counted", "fence", "started_at_ms", "lease_until_ms", "lease_ms", "history_limit"]
RUN_FIELDS = [
    *((field, value) for field in (*NUMBERS, "latest_before_ms") for value in NO_NUMBERS),
    *((field, "x") for field in ("trigger", "overlap", "released", "ended", "held_before")),
]


class Store(ABC):
    """A store and, past it, the fields that it keeps."""

    latest: str
    backend: LeaseBackend

    @abstractmethod
    def put(self, field: str, value: object) -> None:
        """Writes a field of the job."""

    @abstractmethod
    def put_in_run(self, run_id: str, field: str, value: object) -> None:
        """Writes a field of an unfinished run."""

    def shows(self, value: object) -> str:
        """A field of the job as an error shows it."""
        return repr(value)

    @abstractmethod
    def everything(self) -> object:
        """All that is kept of the job."""


class InSQLite(Store):
    latest = "latest_ms"

    def __init__(self, backend: LeaseBackend, file: sqlite3.Connection) -> None:
        self.backend, self._file = backend, file

    def put(self, field: str, value: object) -> None:
        self._file.execute(f"UPDATE jobs SET {field} = ? WHERE job = ?", (value, JOB))

    def put_in_run(self, run_id: str, field: str, value: object) -> None:
        self._file.execute(f'UPDATE runs SET "{field}" = ? WHERE job = ? AND run_id = ?', (value, JOB, run_id))

    def everything(self) -> object:
        tables = ("jobs", "runs", "ended", "history")
        return [self._file.execute(f"SELECT * FROM {table} WHERE job = ?", (JOB,)).fetchall() for table in tables]


class InRedis(Store):
    latest = "latest"

    def __init__(self, backend: LeaseBackend, client: redis.Redis, prefix: str) -> None:
        self.backend, self._client, self._keys = backend, client, f"{prefix}{{{JOB}}}:"

    def put(self, field: str, value: object) -> None:
        self._client.hset(f"{self._keys}state", field, str(value))

    def put_in_run(self, run_id: str, field: str, value: object) -> None:
        run = json.loads(self._client.hget(f"{self._keys}state", f"run:{run_id}") or "")
        self._client.hset(f"{self._keys}state", f"run:{run_id}", json.dumps(run | {field: value}))

    def shows(self, value: object) -> str:
        return repr(str(value))  # all that a hash has is text

    def everything(self) -> object:
        return {key: self._client.dump(key) for key in self._client.scan_iter(f"{self._keys}*")}


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        with closing(open_backend(f"sqlite:///{tmp_path}/jobs.db")) as backend:
            backend.claim(claim(backend.time(JOB), "t", job=OTHER))
            with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as file:
                yield InSQLite(backend, file)
        return
    url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    with closing(open_backend(url, prefix=prefix)) as backend, redis.Redis.from_url(url, protocol=2) as client:
        yield InRedis(backend, client, prefix)


def claim(slot_ms: int, token: str, job: str = JOB, **options: Any) -> ClaimRequest:
    values: dict[str, Any] = dict(
        run_id=str(slot_ms),
        instance_id="host-1",
        lease_ms=30_000,
        overlap="allow",
        max_attempts=3,
        window_ms=60_000,
        mode=Mode.START,
        trigger="scheduled",
        history_limit=200,
    )
    return ClaimRequest(job=job, slot_ms=slot_ms, token=token, **{**values, **options})


def record(run_id: str, fence: int = 7) -> RunRecord:
    return RunRecord(JOB, from_ms(1), run_id, 1, "scheduled", "success", "host-1", fence, from_ms(2), from_ms(3), 0.001)


class TwoRuns:
    """A job with a finished run and two that go on, the older one's slot a second before the newer one's."""

    def __init__(self, store: Store) -> None:
        backend = self.backend = store.backend
        self.newer_ms = backend.time(JOB)
        self.older_ms = self.newer_ms - 1_000
        self.older, self.newer, done = str(self.older_ms), str(self.newer_ms), str(self.older_ms - 1_000)
        for slot_ms in (self.older_ms - 1_000, self.older_ms, self.newer_ms):
            assert backend.claim(claim(slot_ms, f"holds-{slot_ms}")).outcome is Outcome.WON
        assert backend.finish(JOB, done, f"holds-{done}", record(done)) is Verdict.OK
        self.history = backend.history(JOB, 10)
        assert len(self.history) == 1

    def deciding_calls(self) -> list[Callable[[], object]]:
        backend, run_id, token = self.backend, self.newer, f"holds-{self.newer}"
        return [
            lambda: backend.claim(claim(self.older_ms, "b")),
            lambda: backend.claim(claim(self.newer_ms, token)),
            lambda: backend.claim(claim(backend.time(JOB), "c")),
            lambda: backend.claim(claim(backend.time(JOB), "d", trigger="manual", run_id="by-hand")),
            lambda: backend.heartbeat(JOB, run_id, token, 30_000),
            lambda: backend.finish(JOB, run_id, token, record(run_id)),
            lambda: backend.release(JOB, run_id, token, record(run_id), True),
            lambda: backend.save_result(JOB, record(self.older)),
        ]


def assert_stopped(store: Store, runs: TwoRuns, named: str) -> None:
    """The job is stopped by what is named, and only the job; nothing of it is changed; forgotten, it goes on."""
    backend, before = store.backend, store.everything()
    words = (
        f"The store's state of job 'sync' is damaged ({named}); nothing runs it until that is mended. "
        "`anarchon forget` removes all that is kept of it."
    )
    for call in runs.deciding_calls():
        with pytest.raises(BackendError, match=f"^{re.escape(words)}$"):
            call()
    assert store.everything() == before
    assert backend.history(JOB, 10) == runs.history
    assert backend.claim(claim(backend.time(OTHER), "a", job=OTHER)).outcome is Outcome.WON
    backend.forget(JOB)
    assert backend.claim(claim(backend.time(JOB), "a")).outcome is Outcome.WON


@pytest.mark.parametrize("field", ["fence", "history_limit", "latest"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_damaged_field_of_a_job_stops_it_until_it_is_forgotten(store: Store, field: str, value: object) -> None:
    runs = TwoRuns(store)
    field = store.latest if field == "latest" else field
    store.put(field, value)
    assert [run.run_id for run in store.backend.active(JOB)] == [runs.newer, runs.older]
    assert_stopped(store, runs, f"{field}: {store.shows(value)}")


@pytest.mark.parametrize(("field", "value"), RUN_FIELDS)
def test_a_damaged_field_of_a_run_stops_its_job_and_readers_pass_over_the_run(
    store: Store, field: str, value: object
) -> None:
    runs = TwoRuns(store)
    store.put_in_run(runs.older, field, value)
    assert [run.run_id for run in store.backend.active(JOB)] == [runs.newer]
    assert_stopped(store, runs, f"{field} of run '{runs.older}': {value!r}")


def test_a_job_that_is_mended_goes_on_where_it_was(store: Store) -> None:
    runs = TwoRuns(store)
    active = store.backend.active(JOB)
    for field, sound in (("lease_until_ms", runs.newer_ms + 30_000), ("overlap", "allow")):
        store.put_in_run(runs.older, field, "x")
        with pytest.raises(BackendError, match="is damaged"):
            store.backend.heartbeat(JOB, runs.newer, f"holds-{runs.newer}", 30_000)
        store.put_in_run(runs.older, field, sound)
    assert [run.fence for run in store.backend.active(JOB)] == [run.fence for run in active]
    for run_id in (runs.newer, runs.older):
        assert store.backend.finish(JOB, run_id, f"holds-{run_id}", record(run_id)) is Verdict.OK


def test_a_lease_that_cannot_be_read_lets_no_second_run_start_beside_it(store: Store) -> None:
    backend = store.backend
    slot_ms = backend.time(JOB) - 1_000
    assert backend.claim(claim(slot_ms, "a", overlap="skip")).outcome is Outcome.WON
    store.put_in_run(str(slot_ms), "lease_until_ms", "soon")
    with pytest.raises(BackendError, match=re.escape(f"lease_until_ms of run '{slot_ms}': 'soon'")):
        backend.claim(claim(slot_ms + 1_000, "b", overlap="skip"))
