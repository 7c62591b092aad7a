"""The lease backend for the processes of one host: a SQLite file that they share.

The claim table decides in Python (``claims.py``), inside one immediate transaction: only one process of the host is in
one at a time, and it is the host's clock, read in there, that decides. The file must be on a local disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from typing import Any
from urllib.parse import unquote_to_bytes

from anarchon.backends import LeaseBackend, claims
from anarchon.backends.damage import JOB, MISSING, RUN, damaged, first_damaged
from anarchon.backends.sqlite_connection import Connection
from anarchon.backends.sqlite_door import Door
from anarchon.backends.sqlite_file import STATEMENTS, open_for_reading, open_for_writing
from anarchon.backends.state import REMEMBER_NEWEST, JobState, Run
from anarchon.clock import Clock, SystemClock
from anarchon.errors import ConfigurationError
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict, decode_record, encode_record

__all__ = ["SQLiteBackend"]


class SQLiteBackend(LeaseBackend):
    """A lease backend in a SQLite file.

    The file is opened at the first call, and made by the first that writes. A process has at most two connections: one
    for the calls that write, and one for those that read.

    Args:
        path: the file; a relative one is taken from the directory that is current now.
        clock: where the store's time comes from; None: the host's clock.

    Raises:
        ConfigurationError: the path is none, or ``:memory:``, which no two processes can share.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._path = _absolute(path)
        self._now = (clock or SystemClock()).now_ms
        # In this order they go, too: only a writer that closes last folds the log into the file.
        self._reader = Door(self._path, open_for_reading)
        self._writer = Door(self._path, open_for_writing)

    @classmethod
    def from_url(cls, url: str) -> SQLiteBackend:
        """Makes one from ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; percent-encoded signs are read.

        Raises:
            ConfigurationError: it is no such URL, or has something after the path.
        """
        start = "sqlite:///"
        if not url.startswith(start) or not url[len(start) :]:
            raise ConfigurationError("Expected sqlite:///relative.db or sqlite:////absolute.db as the store's URL.")
        if "?" in url or "#" in url:
            raise ConfigurationError("A sqlite:/// URL is a path and nothing else; write ? as %3F and # as %23.")
        return cls(os.fsdecode(unquote_to_bytes(url[len(start) :])))

    def __repr__(self) -> str:
        return f"<SQLiteBackend {self._path}>"

    def claim(self, request: ClaimRequest) -> ClaimReply:
        with self._deciding(request.job) as (job, now_ms):
            return claims.claim(job, request, now_ms)

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        with self._deciding(job) as (state, now_ms):
            return claims.heartbeat(state, run_id, token, lease_ms, now_ms)

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        with self._deciding(job) as (state, now_ms):
            return claims.finish(state, run_id, token, record, now_ms)

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        with self._deciding(job) as (state, now_ms):
            return claims.release(state, run_id, token, record, counts, now_ms)

    def save_result(self, job: str, record: RunRecord) -> None:
        with self._deciding(job) as (state, _):
            claims.save_result(state, record)

    def time(self, job: str) -> int:
        # It needs nothing of the file, but a store that cannot be read shall say so at the first call.
        with self._reading():
            return self._now()

    def active(self, job: str) -> list[ActiveRun]:
        with self._reading() as connection:
            rows = _load_runs(connection, job) if connection is not None else []
            # What cannot be read is passed over.
            runs = [Run(**values) for values in rows if _damaged_field(values) is None]
            return claims.active(job, runs, self._now())

    def history(self, job: str, limit: int) -> list[RunRecord]:
        records: list[RunRecord] = []
        with self._reading() as connection:
            offset = 0
            while connection is not None and len(records) < limit:
                values = {"job": job, "limit": limit - len(records), "offset": offset}
                rows = connection.run(STATEMENTS["history"], values)
                if not rows:
                    break
                # What cannot be read is passed over, and as many more are asked for.
                offset += len(rows)
                records += [record for (text,) in rows if (record := decode_record(text)) is not None]
        return records

    def forget(self, job: str) -> None:
        with self._transaction() as connection:
            for name in ("remove_job", "remove_runs", "remove_ended", "remove_history"):
                connection.run(STATEMENTS[name], {"job": job})

    def bound_calls(self, limit_ms: int) -> None:
        for door in (self._writer, self._reader):
            door.limit_ms = min(door.limit_ms, limit_ms)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    @contextmanager
    def _deciding(self, job: str) -> Iterator[tuple[_Job, int]]:
        """The job as it is and the time, inside a transaction that ends by keeping what was changed."""
        with self._transaction() as connection:
            # The clock is read only here: a call that had to wait for its turn decides by the time when it got it.
            now_ms = self._now()
            state = _Job(connection, job)
            yield state, now_ms
            state.keep()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._writer.lent() as connection:
            assert connection is not None  # Only the reader's door opens to nothing.
            with connection.transaction("BEGIN IMMEDIATE"):
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection | None]:
        """One view of the file, whatever is written meanwhile; None where nothing has been written yet."""
        with self._reader.lent() as connection:
            if connection is None:
                yield None
                return
            with connection.transaction("BEGIN"):
                yield connection


class _Job(JobState):
    """A job's few rows. The history and the ended runs stay in the file, and are asked for one by one."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        own = connection.run(STATEMENTS["load_job"], {"job": name})
        runs = _load_runs(connection, name)
        if own:
            values: dict[str, Any] = dict(zip(("latest_ms", "fence", "history_limit"), own[0]))
        else:
            # The first grant writes both; a run without a job has lost what decides.
            values = {"latest_ms": None, "fence": MISSING if runs else 0, "history_limit": 1}
        if field := first_damaged(values, JOB):
            raise damaged(name, field, values[field])
        for run in runs:
            if field := _damaged_field(run):
                raise damaged(name, field, run[field], run["run_id"])
        super().__init__(name, **values, runs=[Run(**run) for run in runs])
        self._loaded = self._own()
        self._loaded_runs = {run_id: replace(run) for run_id, run in self.runs.items()}

    def finished(self, run_id: str) -> bool:
        return any(self._finished(run_id, value) for (value,) in self._run("finished", run_id=run_id))

    def ended_by(self, run_id: str, token: str) -> bool | None:
        rows = self._run("ended_by", run_id=run_id, token=token)
        return self._finished(run_id, rows[0][0]) if rows else None

    def remember(self, run_id: str, token: str | None, finished: bool, keep_until_ms: int, now_ms: int) -> None:
        self._run("remember", run_id=run_id, token=token, finished=finished, keep_until_ms=keep_until_ms)
        self._run("forget_ended", now_ms=now_ms, newest=REMEMBER_NEWEST)

    def has_record(self, run_id: str, attempt: int) -> bool:
        return bool(self._run("has_record", run_id=run_id, attempt=attempt))

    def save_record(self, record: RunRecord, keep: int) -> None:
        key = {"run_id": record.run_id, "attempt": record.attempt, "fence": record.fence}
        self._run("save_record", **key, record=encode_record(record))
        self._run("cut_history", keep=keep)

    def keep(self) -> None:
        """Writes what was changed, and nothing else: a claim that loses costs the disk nothing."""
        if self._own() != self._loaded:
            self._run("save_job", **self._own())
        for run_id in self._loaded_runs.keys() - self.runs.keys():
            self._run("close_run", run_id=run_id)
        for run_id, run in self.runs.items():
            if run != self._loaded_runs.get(run_id):
                self._run("save_run", **{**asdict(run), "held_before": json.dumps(run.held_before)})

    def _finished(self, run_id: str, value: object) -> bool:
        if value not in (0, 1):
            raise damaged(self.name, "finished", value, run_id)
        return value == 1

    def _own(self) -> dict[str, Any]:
        return {"latest_ms": self.latest_ms, "fence": self.fence, "history_limit": self.history_limit}

    def _run(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.run(STATEMENTS[name], {"job": self.name, **values})


_FIELDS = [field.name for field in fields(Run)]
_FLAGS = {0: False, 1: True}


def _load_runs(connection: Connection, job: str) -> list[dict[str, Any]]:
    """The fields of each unfinished run, as they are: a damaged one keeps what was found in the file."""
    runs = [dict(zip(_FIELDS, row)) for row in connection.run(STATEMENTS["load_runs"], {"job": job})]
    for run in runs:
        for name in ("manual", "released", "ended"):
            run[name] = _FLAGS.get(run[name], run[name])
        with suppress(ValueError, TypeError, RecursionError):
            run["held_before"] = json.loads(run["held_before"])
    return runs


def _damaged_field(run: dict[str, Any]) -> str | None:
    if field := first_damaged(run, RUN):
        return field
    return None if run["manual"] is (run["trigger"] == "manual") else "manual"


def _absolute(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigurationError(f"path must be text or a path, not {type(path).__name__}.")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\x00" in text:
        raise ConfigurationError("path must name a file.")
    if text == ":memory:":
        raise ConfigurationError("A SQLite store is a file that processes share; for this process alone use memory://.")
    # A daemon that changes its directory later must not begin another store there.
    return os.path.abspath(text)
