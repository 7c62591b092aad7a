"""One harness a store: the backend, its clock in the test's hand, and everything that the store keeps, laid open.

A backend joins the contract suite by one more ``Harness`` here and one more line in conftest.py.
"""

from __future__ import annotations

import copy
import sqlite3
import uuid
from abc import ABC, abstractmethod
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from servers import ClockedRedisBackend

from anarchon.backends import LeaseBackend
from anarchon.backends.memory import MemoryBackend
from anarchon.backends.sqlite import SQLiteBackend
from anarchon.durations import from_ms, to_ms
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, RunRecord, Verdict
from anarchon.testing import ManualClock

#: Where the clock of every harness starts; a slot of every ``SLOT_EVERY_MS``.
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SLOT_EVERY_MS = 10_000
JOB = "job"

_OPTIONS = dict(
    job=JOB,
    instance_id="host-1",
    lease_ms=30_000,
    overlap="skip",
    max_attempts=3,
    window_ms=60_000,
    mode=Mode.START,
    trigger="scheduled",
    history_limit=200,
)


class Harness(ABC):
    """A store under test, on a clock that stands still but for ``advance`` and ``step``.

    Below what a store has to bring are the words that the tests speak in. A run is named by its slot, an integer; or,
    a manual run, by its id, a text: its slot is the moment it was first asked for.
    """

    backend: LeaseBackend

    @abstractmethod
    def advance(self, ms: int) -> None:
        """Lets time go by in the store."""

    @abstractmethod
    def step(self, ms: int) -> None:
        """Steps the store's clock, as when its host's clock is set; a negative step goes back."""

    @abstractmethod
    def dump(self) -> Any:
        """Everything that the store keeps, in a form that can be compared with another dump."""

    def another(self) -> LeaseBackend:
        """A backend object on the same store, as a second process would have one."""
        return self.backend

    def close(self) -> None:
        self.backend.close()

    # -- the words of the tests

    @property
    def now(self) -> int:
        return self.backend.time(JOB)

    def slot(self, number: int = 0) -> int:
        """A slot: number 0 is due at the start, 1 is the next, -1 the one before."""
        return to_ms(START) + number * SLOT_EVERY_MS

    def request(self, run: int | str, token: str, **options: Any) -> ClaimRequest:
        options = {**_OPTIONS, **options}
        if isinstance(run, str):
            options["trigger"] = "manual"
        return ClaimRequest(run_id=str(run), slot_ms=self._slot_of(run), token=token, **options)

    def claim(self, run: int | str, token: str, **options: Any) -> ClaimReply:
        return self.backend.claim(self.request(run, token, **options))

    def won(self, run: int | str, token: str, **options: Any) -> ClaimReply:
        """A claim that must be granted, where a test needs a run to begin with."""
        reply = self.claim(run, token, **options)
        assert reply.outcome is Outcome.WON, reply
        return reply

    def heartbeat(self, run: int | str, token: str, lease_ms: int = 30_000, job: str = JOB) -> Verdict:
        return self.backend.heartbeat(job, str(run), token, lease_ms)

    def finish(self, run: int | str, token: str, **facts: Any) -> Verdict:
        record = self.record(run, **facts)
        return self.backend.finish(record.job, str(run), token, record)

    def release(self, run: int | str, token: str, counts: bool = False, **facts: Any) -> Verdict:
        record = self.record(run, **{"status": "interrupted", **facts})
        return self.backend.release(record.job, str(run), token, record, counts)

    def save_result(self, run: int | str, grant: ClaimReply, **facts: Any) -> None:
        assert grant.attempt is not None and grant.fence is not None
        record = self.record(run, attempt=grant.attempt, fence=grant.fence, lease_lost=True, **facts)
        self.backend.save_result(record.job, record)

    def record(self, run: int | str, **facts: Any) -> RunRecord:
        """A record as a holder writes it. Unless told, its attempt and fence are wrong: they are the store's to say."""
        values: dict[str, Any] = dict(
            job=JOB,
            slot=from_ms(self._slot_of(run)),
            run_id=str(run),
            attempt=77,
            trigger="manual" if isinstance(run, str) else "scheduled",
            status="success",
            instance_id="host-1",
            fence=7,
            started_at=from_ms(self.now),
            finished_at=from_ms(self.now),
            duration=0.0,
        )
        return RunRecord(**{**values, **facts})

    def reply(self, outcome: Outcome, **facts: Any) -> ClaimReply:
        """An answer as it must be, given by the store now."""
        return ClaimReply(outcome, self.now, **facts)

    def history(self, job: str = JOB) -> list[RunRecord]:
        return self.backend.history(job, 1_000)

    def story(self, job: str = JOB) -> list[tuple[str, int, str]]:
        """The history in short, newest first: run, attempt, status."""
        return [(record.run_id, record.attempt, record.status) for record in self.history(job)]

    def unfinished(self, job: str = JOB) -> list[tuple[str, int, float]]:
        """The unfinished runs in short, newest fence first: run, attempt, seconds of lease left."""
        return [(run.run_id, run.attempt, run.lease_left) for run in self.backend.active(job)]

    def _slot_of(self, run: int | str) -> int:
        if isinstance(run, int):
            return run
        if not hasattr(self, "_asked_at"):
            self._asked_at: dict[str, int] = {}
        return self._asked_at.setdefault(run, self.now)


class ManualHarness(Harness):
    """A store that takes a clock."""

    def __init__(self) -> None:
        self._clock = ManualClock(START)

    def advance(self, ms: int) -> None:
        self._clock.advance(timedelta(milliseconds=ms))

    def step(self, ms: int) -> None:
        self._clock.step_wall(timedelta(milliseconds=ms))


class MemoryHarness(ManualHarness):
    def __init__(self) -> None:
        super().__init__()
        self.backend = self._memory = MemoryBackend(clock=self._clock)

    def dump(self) -> Any:
        return copy.deepcopy({name: vars(job) for name, job in self._memory._jobs.items()})


class SQLiteHarness(ManualHarness):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path = directory / f"{uuid.uuid4().hex}.db"
        self._backends: list[SQLiteBackend] = []
        self.backend = self.another()

    def dump(self) -> Any:
        if not self._path.exists():
            return {}
        with closing(sqlite3.connect(self._path)) as file:
            tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: sorted(map(repr, file.execute(f'SELECT * FROM "{name}"'))) for name in tables}
        return {name: kept for name, kept in rows.items() if kept}

    def another(self) -> LeaseBackend:
        backend = SQLiteBackend(self._path, clock=self._clock)
        # One that is kept from its turn has to wait longer on a busy machine than a scheduler would.
        backend._reader.limit_ms = backend._writer.limit_ms = 60_000
        self._backends.append(backend)
        return backend

    def close(self) -> None:
        for backend in self._backends:
            backend.close()


class RedisHarness(Harness):
    def __init__(self, url: str) -> None:
        self._url, self._prefix = url, f"test:{uuid.uuid4().hex}:"
        self.backend = self._redis = ClockedRedisBackend(url, prefix=self._prefix, now_ms=to_ms(START))
        self._backends = [self._redis]

    def advance(self, ms: int) -> None:
        self._redis.now_ms += ms

    def step(self, ms: int) -> None:
        self._redis.now_ms += ms

    def dump(self) -> Any:
        return self._redis._source.ask(self._dump)

    def another(self) -> LeaseBackend:
        self._backends.append(ClockedRedisBackend(self._url, prefix=self._prefix, now_ms=None))
        return self._backends[-1]

    def close(self) -> None:
        self._redis._source.ask(lambda client: client.delete(*client.keys(f"{self._prefix}*")))
        for backend in self._backends:
            backend.close()

    def _dump(self, client: Any) -> dict[Any, Any]:
        read = {
            b"hash": client.hgetall,
            b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
            b"string": client.get,
        }
        keys = set(client.keys(f"{self._prefix}*")) - {f"{self._prefix}clock".encode()}
        return {key: read[client.type(key)](key) for key in sorted(keys)}
