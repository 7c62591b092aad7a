"""All that a store keeps, piece by piece, so that a test can say what may have changed and what not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import redis
from fleet import Fleet

__all__ = ["changes", "kept"]

Kept = dict[tuple[Any, ...], Any]


def kept(fleet: Fleet) -> Kept:
    """Everything in the fleet's store: ``("run", run id, field)``, ``("record", run id, attempt)``, and the rest."""
    if fleet.url.startswith("sqlite:"):
        with closing(sqlite3.connect(fleet.url.removeprefix("sqlite:///"))) as file:
            file.row_factory = sqlite3.Row
            return _kept_in_sqlite(file)
    with redis.Redis.from_url(fleet.url, decode_responses=True) as client:
        return _kept_in_redis(client, fleet.prefix or "anarchon:")


def changes(before: Kept, after: Kept) -> set[tuple[Any, ...]]:
    """The names of what came, went or changed."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _kept_in_sqlite(file: sqlite3.Connection) -> Kept:
    found: Kept = {}
    tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for row in file.execute(f"SELECT * FROM {table}"):
            if table == "runs":
                found |= {("run", row["run_id"], column): row[column] for column in row.keys()}
            elif table == "history":
                found["record", row["run_id"], row["attempt"]] = tuple(row)
            else:
                found[table, row[0]] = tuple(row)
    return found


def _kept_in_redis(client: redis.Redis, prefix: str) -> Kept:
    found: Kept = {}
    for key in client.scan_iter(match=f"{prefix}*", count=1000):
        part = key.rpartition(":")[2]
        if part in ("expiry", "history"):
            found |= {(key, name): score for name, score in client.zrange(key, 0, -1, withscores=True)}
            continue
        for name, value in client.hgetall(key).items():
            before, _, after = name.partition(":")
            if part == "state" and before == "run":
                found |= {("run", after, field): each for field, each in json.loads(value).items()}
            elif part == "records":
                found["record", after, int(before)] = value
            else:
                found[key, name] = value
    return found
