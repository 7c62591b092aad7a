"""The books: an SQLite file, and a connection to it for every request and for every run of a job."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import click
from flask import Flask, current_app, g

SCHEMA = """
CREATE TABLE IF NOT EXISTS invoices (
    number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, mailed_by TEXT
);
CREATE TABLE IF NOT EXISTS totals (slot TEXT NOT NULL, invoices INTEGER NOT NULL, counted_by TEXT NOT NULL);
"""


def init_app(app: Flask) -> None:
    app.teardown_appcontext(close)
    app.cli.add_command(add_invoices)


def books() -> sqlite3.Connection:
    """This context's connection, opened when it is first asked for. Each statement is a transaction."""
    if "books" not in g:
        path = Path(current_app.instance_path, "billing.db")
        g.books = sqlite3.connect(path, timeout=30, isolation_level=None)
        g.books.executescript(SCHEMA)
    return g.books


def close(error: BaseException | None) -> None:
    if "books" in g:
        g.pop("books").close()


@click.command("add-invoices")
@click.argument("count", type=click.IntRange(1, 1000))
def add_invoices(count: int) -> None:
    """Adds invoices, for something to do."""
    rows = [(f"Customer {number}", 1000 + number) for number in range(count)]
    # One transaction, so that the job finds all of them.
    books().execute("BEGIN IMMEDIATE")
    books().executemany("INSERT INTO invoices (customer, cents) VALUES (?, ?)", rows)
    books().commit()


def not_mailed() -> list[int]:
    return [number for (number,) in books().execute("SELECT number FROM invoices WHERE mailed_by IS NULL")]


def mark_mailed(number: int, instance_id: str) -> None:
    books().execute("UPDATE invoices SET mailed_by = ? WHERE number = ?", [instance_id, number])


def add_total(slot: datetime, instance_id: str) -> None:
    """Adds a point to the chart, which shows one day."""
    books().execute("INSERT INTO totals SELECT ?, count(*), ? FROM invoices", [slot.isoformat(), instance_id])
    books().execute("DELETE FROM totals WHERE slot < ?", [(slot - timedelta(days=1)).isoformat()])


def summary() -> dict[str, int]:
    [(invoices, mailed)] = books().execute("SELECT count(*), count(mailed_by) FROM invoices")
    return {"invoices": invoices, "mailed": mailed}
