"""Opening the file: whose it is, how it is made, and how little a reader may touch.

A file is ours by its application id, which is set in the same transaction as the tables. Whatever else is found there
is refused before anything that writes has opened it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from importlib.resources import files

from anarchon.backends.sqlite_connection import Connection
from anarchon.clock import SystemClock
from anarchon.durations import format_duration
from anarchon.errors import BackendError

__all__ = ["STATEMENTS", "identity", "is_locked", "open_for_reading", "open_for_writing", "why"]

APPLICATION_ID = int.from_bytes(b"anrc", "big")
SCHEMA_VERSION = 1

_INSPECT = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""

#: How often a writer asks again for the change to the write-ahead log, for which SQLite does not always wait itself.
_ASK_AGAIN_MS = 5

_clock = SystemClock()


def _read(name: str) -> str:
    return (files("anarchon.backends") / "sql" / name).read_text(encoding="utf-8")


def _named(text: str) -> dict[str, str]:
    parts = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {name.strip(): sql.strip() for name, _, sql in parts}


STATEMENTS = _named(_read("statements.sql"))
SCHEMA = [statement for statement in _read("schema.sql").split(";\n") if statement.strip()]


def open_for_writing(path: str, deadline_ms: int) -> Connection:
    """Opens the file to write in it, and makes it where there is none or an empty one.

    Raises:
        BackendError: it is not ours, or from a newer version, or cannot have a write-ahead log.
        sqlite3.Error: it cannot be opened, or is locked until the deadline.
    """
    there = identity(path) is not None
    if there:
        _refuse_strangers(path, deadline_ms)
    connection = Connection(path, "mode=rw" if there else "mode=rwc")
    try:
        connection.wait_at_most(deadline_ms - _clock.monotonic_ms())
        # FULL: each commit is on the disk before it is answered. With NORMAL a power cut could take back the last
        # claims, and after the restart their slots would be run a second time.
        connection.run("PRAGMA synchronous = FULL")
        # Nothing of an open transaction reaches the log before its commit: what a fork relies on.
        connection.run("PRAGMA cache_spill = OFF")
        if not _is_ours(connection):
            _make(connection)
        _use_log(connection, deadline_ms)
    except BaseException:
        connection.close()
        raise
    connection.settled = True
    return connection


def open_for_reading(path: str, deadline_ms: int) -> Connection | None:
    """Opens the file to read only; None where there is nothing to read yet. Makes no file and changes none.

    Beside a store that nobody has open SQLite leaves its own ``-wal`` (empty) and ``-shm`` files, where it may.

    Raises:
        BackendError: as for writing; or the directory does not exist.
        sqlite3.Error: it cannot be opened, or is locked until the deadline.
    """
    if identity(path) is None:
        if not os.path.isdir(os.path.dirname(path)):
            raise BackendError(f"The SQLite store {path} cannot be read: its directory does not exist.")
        return None
    try:
        return _look(path, "mode=ro", deadline_ms)
    except sqlite3.OperationalError as error:
        # In a directory that may not be written in SQLite cannot make its lock file. Where there is no log either,
        # nobody has the file open and all is in it: then it can be read as one that does not change, for this call.
        if not _is_refused(error) or _has_log(path):
            raise
    connection = _look(path, "mode=ro&immutable=1", deadline_ms)
    if connection is not None:
        connection.once = True
    return connection


def identity(path: str) -> tuple[int, int] | None:
    """What the path names now: device and inode; None where it names nothing. Changes when the file is replaced.

    Raises:
        BackendError: it is no plain file, or that cannot be found out.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BackendError(f"The SQLite store {path} cannot be reached: {error.strerror}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise BackendError(f"The SQLite store {path} is not a file.")
    return found.st_dev, found.st_ino


def is_locked(error: sqlite3.Error) -> bool:
    # By SQLite's own words: Python has told the code only since 3.11.
    return "locked" in str(error)


def why(path: str, error: sqlite3.Error, limit_ms: int) -> str:
    """The reason of an error for people."""
    if is_locked(error):
        return f"other processes kept it locked for longer than {format_duration(limit_ms)}"
    if not os.path.isdir(os.path.dirname(path)):
        return "its directory does not exist"
    return str(error)


def _refuse_strangers(path: str, deadline_ms: int) -> None:
    """Looks at the file without the right to write, for opening alone may already roll back or fold in a log."""
    try:
        connection = _look(path, "mode=ro", deadline_ms)
    except sqlite3.OperationalError as error:
        if not _is_refused(error) or not os.path.exists(f"{path}-journal"):
            raise
        # Whoever made the file died in the middle of it, and that must be rolled back first. If it is ours, we may.
        connection = _look(path, "mode=ro&immutable=1", deadline_ms)
        if connection is None:
            raise
    if connection is not None:
        connection.close()


def _look(path: str, mode: str, deadline_ms: int) -> Connection | None:
    """A connection to a file that is ours; None if it is empty; else an error."""
    connection = Connection(path, mode)
    try:
        connection.wait_at_most(deadline_ms - _clock.monotonic_ms())
        connection.settled = _is_ours(connection)
    finally:
        if not connection.settled:
            connection.close()
    return connection if connection.settled else None


def _is_ours(connection: Connection) -> bool:
    [(application_id, version, tables)] = connection.run(_INSPECT)
    if application_id == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise BackendError(
                f"The SQLite store {connection.path} was written by a newer anarchon "
                f"(its version is {version}, this one knows {SCHEMA_VERSION})."
            )
        return True
    if application_id or version or tables:
        raise BackendError(f"The SQLite file {connection.path} belongs to another application. It was left untouched.")
    return False


def _make(connection: Connection) -> None:
    with connection.transaction("BEGIN IMMEDIATE"):
        # Another process may have been first; only now nobody can be.
        if not _is_ours(connection):
            connection.run(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.run(f"PRAGMA user_version = {SCHEMA_VERSION}")
            for statement in SCHEMA:
                connection.run(statement)


def _use_log(connection: Connection, deadline_ms: int) -> None:
    """Changes to the write-ahead log, once in the file's life; only after the tables, so that the id is in the file."""
    while connection.run("PRAGMA journal_mode") != [("wal",)]:
        try:
            if connection.run("PRAGMA journal_mode = WAL") != [("wal",)]:
                raise BackendError(f"The SQLite store {connection.path} is on a file system without shared memory.")
        except sqlite3.OperationalError as error:
            if not is_locked(error) or _clock.monotonic_ms() >= deadline_ms:
                raise
            _clock.wait(_clock.event(), _ASK_AGAIN_MS)


def _is_refused(error: sqlite3.Error) -> bool:
    return "readonly" in str(error) or "unable to open" in str(error)


def _has_log(path: str) -> bool:
    return any(os.path.exists(path + end) and os.path.getsize(path + end) for end in ("-wal", "-journal"))
