"""The books: billing's own database. It is not where the jobs are kept, and knows nothing of them but a number.

``python -m billing.books 300`` adds three hundred invoices: half a minute's work for whoever mails them.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from billing.config import VAR

SCHEMA = """
CREATE TABLE IF NOT EXISTS invoices (
    number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, mailed_by TEXT
);
CREATE TABLE IF NOT EXISTS totals (slot TEXT NOT NULL, invoices INTEGER NOT NULL, counted_by TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fences (job TEXT PRIMARY KEY, fence INTEGER NOT NULL);
"""


class Overtaken(Exception):
    """A newer attempt has written here: this one was taken for dead."""


def add_invoices(count: int) -> None:
    with _transaction() as books:
        books.executemany(
            "INSERT INTO invoices (customer, cents) VALUES (?, ?)",
            [(f"Customer {number}", 1000 + number) for number in range(count)],
        )


def not_mailed() -> list[int]:
    with _transaction() as books:
        return [number for (number,) in books.execute("SELECT number FROM invoices WHERE mailed_by IS NULL")]


def mark_mailed(number: int, instance_id: str, fence: int) -> None:
    """Keeps the greatest fence that has written, and refuses a smaller one: its holder was paused, and taken over.

    Raises:
        Overtaken: this one is smaller.
    """
    with _transaction() as books:
        books.execute("INSERT OR IGNORE INTO fences VALUES ('mail', ?)", [fence])
        if not books.execute("UPDATE fences SET fence = ? WHERE job = 'mail' AND fence <= ?", [fence, fence]).rowcount:
            raise Overtaken
        books.execute("UPDATE invoices SET mailed_by = ? WHERE number = ?", [instance_id, number])


def add_total(slot: datetime, instance_id: str) -> None:
    """Adds a point to the chart, which shows one day."""
    with _transaction() as books:
        books.execute("INSERT INTO totals SELECT ?, count(*), ? FROM invoices", [slot.isoformat(), instance_id])
        books.execute("DELETE FROM totals WHERE slot < ?", [(slot - timedelta(days=1)).isoformat()])


def summary() -> dict[str, int]:
    with _transaction() as books:
        [(invoices, mailed)] = books.execute("SELECT count(*), count(mailed_by) FROM invoices")
        return {"invoices": invoices, "mailed": mailed}


@contextmanager
def _transaction() -> Iterator[sqlite3.Connection]:
    # A connection belongs to its thread, and every run has another one.
    connection = sqlite3.connect(VAR / "billing.db", timeout=30, isolation_level=None)
    try:
        connection.executescript(SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection
    finally:
        connection.close()


if __name__ == "__main__":
    add_invoices(int(sys.argv[1]))
