"""Thousands of runs through one process: its memory stays what it was, and so does what the store keeps of each job."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis
from fleet import Fleet, only, together
from kept_of_fleet import kept

# What allocators may keep for themselves, a heap for each of several threads: half a kilobyte that is left behind by
# each of 10,000 runs is more. On SQLite also the pages of the file that it keeps at hand, at most 2,000 KiB for each of
# its two connections.
LIMIT_KIB = {"redis": 4_000, "sqlite": 4_000 + 2 * 2_000}

HISTORY = 50


@pytest.fixture
def fleets(make_fleet: Callable[[str], Fleet]) -> Iterator[dict[Fleet, int]]:
    """A fleet on each kind of store, and its limit. The file lies in memory where there is such a place: thousands of
    writes are not to wait for a disk here."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=memory) as directory:
        in_memory = Fleet(Path(directory, "fleet"), f"sqlite:///{directory}/jobs.db")
        yield {make_fleet("redis"): LIMIT_KIB["redis"], in_memory: LIMIT_KIB["sqlite"]}
        in_memory.close()
        assert "Traceback" not in in_memory.complaints()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("runs", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_memory_and_keys_stay_the_same_over_thousands_of_runs(fleets: dict[Fleet, int], runs: int) -> None:
    together(fleets, lambda fleet: run_so_often(fleet, runs, fleets[fleet]))


def run_so_often(fleet: Fleet, runs: int, limit_kib: int) -> None:
    """Runs two jobs: one as fast as it comes by hand, one on schedule meanwhile."""
    jobs = [
        # Due every ten years: a slot that came due would be in the way of a run by hand.
        {"name": "by-hand", "every": "3650d", "history_limit": HISTORY},
        {"name": "on-schedule", "every": "20ms", "history_limit": HISTORY},
    ]
    fleet.start_all(["worker"], jobs)
    worker = fleet.workers["worker"]
    run_by_hand(fleet, 500)
    fleet.wait_for(HISTORY + 1, what="success", job="on-schedule")
    worker.ask("memory", label="warm")
    warm_kib = only(fleet.wait_for(what="memory", label="warm"))["kib"]
    warm = shape(fleet)

    run_by_hand(fleet, runs)
    worker.ask("memory", label="end")
    end_kib = only(fleet.wait_for(what="memory", label="end"))["kib"]
    end = shape(fleet)
    fleet.stop()
    ran = Counter(line["job"] for line in fleet.lines(what="end"))
    print(f"{fleet!r}: after {dict(ran)} runs {warm_kib} KiB have become {end_kib} KiB; kept: {warm}, then {end}")
    assert ran["by-hand"] == 500 + runs
    assert end_kib - warm_kib <= limit_kib
    assert end == warm


def run_by_hand(fleet: Fleet, times: int) -> None:
    before = len(fleet.lines(what="ran"))
    fleet.workers["worker"].ask("run_now", name="by-hand", times=times)
    fleet.wait_for(before + 1, timeout_s=300, what="ran")
    assert fleet.lines(what="refused") == []


def shape(fleet: Fleet) -> dict[str, int]:
    """How many keys (Redis) or rows (SQLite) there are of each kind, but for what comes and goes with each run.

    What tells a repeated call is kept for ten minutes, and so grows for as long, under a key that is always there.
    """
    counts = Counter(name[0].rpartition(":")[2] for name in kept(fleet))
    for kind in ("run", "ended", "expiry", "history"):
        counts.pop(kind, None)
    keys = 0
    if fleet.prefix is not None:
        with redis.Redis.from_url(fleet.url) as client:
            keys = len(set(client.scan_iter(match=f"{fleet.prefix}*", count=1000)))  # it may tell a key twice
    return {"keys": keys, **counts}
