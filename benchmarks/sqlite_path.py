"""What a call through SQLiteBackend costs, beside bare transactions of the same statements, and beside the disk's sync.

    python benchmarks/sqlite_path.py [--json] [--rounds 30] [--calls 50] [--folder PATH]

One thread calls, and nobody else has the file open. In each round every call is made so many times by either side, in
turns, each with a file of its own in the same folder; a round's figure is the median of its calls, and a ratio is the
median over the rounds. The bare side opens its file as ours is opened (write-ahead log, ``synchronous = FULL``, no
spilling), and sends the statements that ours sends, with no decision between them, nor a look whether the file was
replaced.

A commit that writes is answered when it is on the disk. ``of a sync`` is told beside the plainest such write: one block
of a file that has its size, and ``fsync``. A run commits twice, so a file takes half as many runs a second as its disk
does syncs, and no more; the last row has both.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from harness import Row, ratio, show
from store_path import HISTORY, INSTANCE, LEASE_MS, NAMES, TURN, Ours, alone, one_round, record_of

from anarchon import SQLiteBackend
from anarchon.backends.sqlite_file import SCHEMA, STATEMENTS
from anarchon.backends.state import REMEMBER_NEWEST
from anarchon.records import encode_record

BLOCK = bytes(4096)
BLOCKS = 256


class Bare:
    """The same transactions, through sqlite3 as it comes."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_spill = OFF", "busy_timeout = 3000"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        for statement in SCHEMA:
            self._connection.execute(statement)
        self._slots_ms = itertools.count(int(time.time() * 1000) - 10_000_000)

    def begin_anew(self) -> None:
        slot_ms = next(self._slots_ms)
        self._values: dict[str, Any] = {
            "job": "job",
            "run_id": f"{slot_ms}",
            "slot_ms": slot_ms,
            "trigger": "scheduled",
            "manual": False,
            "attempt": 1,
            "counted": 1,
            "token": "k3J9sX0aQ2mP7vB1nL5tYw",
            "fence": slot_ms,
            "instance_id": INSTANCE,
            "started_at_ms": slot_ms,
            "lease_until_ms": slot_ms + LEASE_MS,
            "lease_ms": LEASE_MS,
            "overlap": "skip",
            "history_limit": HISTORY,
            "latest_before_ms": slot_ms - 1,
            "latest_ms": slot_ms,
            "released": False,
            "ended": False,
            "held_before": "[]",
            "finished": True,
            "keep_until_ms": slot_ms + 600_000,
            "now_ms": slot_ms,
            "newest": REMEMBER_NEWEST,
            "keep": HISTORY,
            "record": encode_record(record_of(slot_ms)),
        }

    def _transaction(self, *names: str) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        for name in names:
            run(STATEMENTS[name], self._values).fetchall()
        run("COMMIT")

    def claim(self) -> None:
        self._transaction("load_job", "load_runs", "finished", "save_job", "save_run")

    def lose(self) -> None:
        self._transaction("load_job", "load_runs")

    check = lose

    def heartbeat(self) -> None:
        self._values["lease_until_ms"] += 1
        self._transaction("load_job", "load_runs", "save_run")

    def finish(self) -> None:
        names = "ended_by", "remember", "forget_ended", "save_record", "cut_history", "close_run"
        self._transaction("load_job", "load_runs", *names)

    def close(self) -> None:
        self._connection.close()


class Disk:
    """A file with its size, of which one block after another is written and synced."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(BLOCK * BLOCKS)
        self._file = os.open(path, os.O_WRONLY)
        self._places = itertools.cycle(range(0, len(BLOCK) * BLOCKS, len(BLOCK)))
        os.fsync(self._file)

    def sync(self) -> None:
        os.pwrite(self._file, BLOCK, next(self._places))
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def measure(arguments: argparse.Namespace) -> list[Row]:
    mine: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=arguments.folder) as folder:
        backend = SQLiteBackend(Path(folder) / "ours.db")
        ours, bare, disk = Ours(backend), Bare(Path(folder) / "bare.db"), Disk(Path(folder) / "disk")
        try:
            for number in range(arguments.rounds + 1):
                both = one_round(ours, arguments.calls), one_round(bare, arguments.calls)
                sync = alone(disk.sync, arguments.calls)
                if number:  # the first round warms up
                    mine.append(both[0])
                    theirs.append(both[1] | {"sync": sync})
        finally:
            disk.close()
            bare.close()
            backend.close()
    for each in (*mine, *theirs):
        each["run"] = each["claim"] + each["finish"]
    return [*(row(name, mine, theirs) for name in (*TURN, "run")), most_runs(mine, theirs)]


def row(name: str, mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> Row:
    ours, bare = [each[name] for each in mine], [each[name] for each in theirs]
    return {
        "call": "whole run" if name == "run" else NAMES[name],
        "anarchon, us": median(ours),
        "bare, us": median(bare),
        "ratio": ratio(ours, bare),
        "of a sync": ratio(ours, [each["sync"] for each in theirs]),
        "rounds": [ours, bare],
    }


def most_runs(mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> Row:
    syncs = [each["sync"] for each in theirs]
    return {
        "sync, us": median(syncs),
        "runs a second that it allows": 1e6 / (2 * median(syncs)),
        "that bare transactions make": 1e6 / median(each["run"] for each in theirs),
        "that anarchon makes": 1e6 / median(each["run"] for each in mine),
        "rounds": syncs,
    }


if __name__ == "__main__":
    more: dict[str, Any] = {
        "rounds": {"type": int, "default": 30, "help": "how many rounds count"},
        "calls": {"type": int, "default": 50, "help": "how often each call is made in a round"},
        "folder": {"help": "where the files are; by default where temporary ones are"},
    }
    show(__doc__, measure, **more)
