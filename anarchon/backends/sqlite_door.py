"""The door to one SQLite file: one connection of this process, lent to one thread at a time.

Guarantees:

- A call waits no longer than the limit for its turn and for other processes together.
- Whatever goes wrong in SQLite is a ``BackendError`` that names the file and the reason. After an error other than a
  lock the connection is closed, and the next call opens a new one: a disk with room again needs nobody's help.
- A file that was removed or replaced is noticed at the next call.
- A fork waits, within the limit, until no thread is inside, and finds no connection open (``sqlite_connection.py``).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anarchon.backends.sqlite_connection import Connection, leave_behind
from anarchon.backends.sqlite_file import identity, is_locked, why
from anarchon.backends.turns import Turns
from anarchon.clock import SystemClock
from anarchon.durations import format_duration
from anarchon.errors import BackendError
from anarchon.forks import in_child, meet_fork

__all__ = ["Door"]

#: How long one call may wait, where no job's lease asks for less.
LIMIT_MS = 3_000

# Other processes and other threads are waited for in real time, whatever clock the store was given.
_clock = SystemClock()


class Door:
    """Lends the connection. Every method may be called on any thread.

    Args:
        path: the file, absolute.
        open_file: opens it; takes the path and a deadline on the monotonic clock; None where there is nothing yet.
    """

    def __init__(self, path: str, open_file: Callable[[str, int], Connection | None]) -> None:
        self.limit_ms = LIMIT_MS
        self._path = path
        self._open_file = open_file
        self._turns = Turns(_clock)
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None
        _doors.add(self)

    def __del__(self) -> None:
        meet_fork()
        self._shut()

    @contextmanager
    def lent(self) -> Iterator[Connection | None]:
        """The connection for what is done inside; None where there is nothing to open yet.

        Raises:
            BackendError: it could not be had within the limit, or SQLite refused.
        """
        meet_fork()
        turns, limit_ms = self._turns, self.limit_ms
        deadline_ms = _clock.monotonic_ms() + limit_ms
        if not turns.take(limit_ms):
            waited = format_duration(limit_ms)
            raise BackendError(f"The SQLite store {self._path}: other threads kept it busy for longer than {waited}.")
        try:
            yield self._opened(deadline_ms)
        except sqlite3.Error as error:
            if not is_locked(error):
                self._shut()
            raise BackendError(f"The SQLite store {self._path}: {why(self._path, error, limit_ms)}.") from error
        finally:
            if self._connection is not None and (self._connection.once or self._connection.in_transaction):
                self._shut()
            turns.give()

    def close(self) -> None:
        """Closes the connection when the call that uses it has ended; gives up after the limit. Safe twice."""
        meet_fork()
        turns = self._turns
        if turns.take(self.limit_ms):
            self._shut()
            turns.give()

    def _opened(self, deadline_ms: int) -> Connection | None:
        if self._connection is not None and self._identity != identity(self._path):
            self._shut()
        if self._connection is None:
            self._connection = self._open_file(self._path, deadline_ms)
            self._identity = identity(self._path)
        if self._connection is not None:
            self._connection.wait_at_most(deadline_ms - _clock.monotonic_ms())
        return self._connection

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _quiet(self) -> Turns | None:
        """Before a fork: closes the connection and keeps the turn, which is returned; None if it was not to be had."""
        turns = self._turns
        if not turns.take(self.limit_ms):
            return None
        self._shut()
        return turns

    def _renew(self) -> None:
        """In a child: its parent's turns may be held by threads that are not here."""
        self._turns = Turns(_clock)
        self._connection = None


_doors: weakref.WeakSet[Door] = weakref.WeakSet()
_forking = threading.Lock()
_quieted: list[Turns] = []


def _before_fork() -> None:
    _forking.acquire()
    for door in list(_doors):
        turns = door._quiet()
        if turns is not None:
            _quieted.append(turns)


def _after_fork_in_parent() -> None:
    for turns in _quieted:
        turns.give()
    _quieted.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.Lock()
    _quieted.clear()
    for door in list(_doors):
        door._renew()
    leave_behind()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
in_child(_after_fork_in_child)
