"""One connection to SQLite, and what becomes of it when the process forks.

SQLite remembers in the process's memory which locks on a file the process holds. A child inherits that memory, but not
the locks. If it opened the file beside an inherited connection, it would trust in locks that it does not have: another
process could fold the log into the file and remove it, and all that the child writes from then on would be lost. So the
parent closes its connections before it forks (``sqlite_door.py``), and its child inherits none. Where that was not to
be had:

- an inherited connection that was idle, or in a transaction but outside SQLite, is closed in the child. Nothing of an
  open transaction is in the log yet, so this takes nothing from the parent, and the false memory is gone with it.
- one that was inside SQLite at that moment cannot even be closed: SQLite's own mutexes are held by a thread that the
  child does not have. It is left as it is, for good, and the child is refused that file with a clear message.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anarchon.errors import BackendError

__all__ = ["Connection", "leave_behind"]

_NOTHING: Mapping[str, Any] = {}

_open: set[Connection] = set()
_left_behind: dict[str, Connection] = {}


class Connection:
    """A connection that one thread uses at a time. Every call into SQLite is made in ``run``, which marks it.

    Args:
        path: the file, absolute.
        mode: as SQLite's URIs say it, such as ``mode=ro``.

    Attributes:
        settled: the file is open and known to be ours; until then a child cannot part with it.
        once: to be closed after one call.

    Raises:
        BackendError: the parent of this process was inside SQLite with that file when it forked.
        sqlite3.Error: it cannot be opened.
    """

    def __init__(self, path: str, mode: str) -> None:
        if os.path.realpath(path) in _left_behind:
            raise BackendError(
                f"The SQLite store {path} cannot be used in this process: it was forked while another thread of its "
                "parent was inside SQLite with that file. Fork before the store is used, or start the process afresh."
            )
        self.path = path
        self.settled = False
        self.once = False
        self._inside = True
        self._raw: sqlite3.Connection | None = None
        _open.add(self)
        try:
            self._raw = sqlite3.connect(
                f"{Path(path).as_uri()}?{mode}", uri=True, timeout=0, isolation_level=None, check_same_thread=False
            )
            self._raw.text_factory = _text
        except BaseException:
            _open.discard(self)
            raise
        finally:
            self._inside = False

    def run(self, sql: str, values: Mapping[str, Any] = _NOTHING) -> list[tuple[Any, ...]]:
        """Runs one statement to its end and returns its rows."""
        if self._raw is None:
            raise sqlite3.ProgrammingError("the connection has been closed")
        self._inside = True
        try:
            return self._raw.execute(sql, values).fetchall()
        except (UnicodeEncodeError, OverflowError) as error:
            raise BackendError(f"The SQLite store {self.path} cannot hold a value: {error}.") from error
        finally:
            self._inside = False

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """``begin``, then what is done inside, then COMMIT; on any error nothing of it has happened."""
        self.run(begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            # Some errors have rolled back already. Where this fails too, `in_transaction` tells the owner.
            if self.in_transaction:
                with suppress(sqlite3.Error):
                    self.run("ROLLBACK")
            raise

    def wait_at_most(self, ms: int) -> None:
        """How long the next statements wait for other processes."""
        self.run(f"PRAGMA busy_timeout = {max(1, ms)}")

    @property
    def in_transaction(self) -> bool:
        return self._raw is not None and self._raw.in_transaction

    def close(self) -> None:
        """Safe twice, and after any error."""
        raw, self._raw = self._raw, None
        _open.discard(self)
        if raw is not None:
            with suppress(sqlite3.Error):
                raw.close()

    def leave_behind(self) -> None:
        """In a child: parts with what it inherited."""
        if self.settled and not self._inside:
            self.close()
            return
        # Nor does its end close it: the thread that used it has it in hand still, and never lets go of it here.
        _left_behind[os.path.realpath(self.path)] = self


def _text(raw: bytes) -> str | bytes:
    """Text as it is in the file; bytes where it is none, for SQLite's own error would not tell which row it is in."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def leave_behind() -> None:
    """In a child, once, before it opens anything: parts with every connection of its parent's."""
    for connection in list(_open):
        connection.leave_behind()
    _open.clear()
