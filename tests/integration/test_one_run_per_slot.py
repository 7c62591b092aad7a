"""Four processes, one store, a job every second: each slot has exactly one run, whatever the processes' own clocks say.

On SQLite the store's clock is the host's, so there the skew is in the instances' clocks only; on Redis likewise, since
the server is on this host: the host's clock is the one that decides, and the one that the log of the handlers has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from fleet import Fleet, Line, together
from judge import faults_of_early_runs, faults_of_runs, faults_of_shares

TICK_MS, FLUTTER_MS = 1000, 250

JOBS: list[Line] = [
    {"name": "tick", "every": "1s", "history_limit": 1000},
    # Often enough that each of four workers has its share of it within seconds.
    {"name": "flutter", "every": "250ms"},
]

RIGHT = {"one": 0, "two": 0, "three": 0, "four": 0}
WRONG = {"hour-behind": -3_600_000, "behind": -420_000, "ahead": 1_200_000, "hour-ahead": 3_600_000}


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(300)])])
def test_each_slot_has_exactly_one_run_though_four_processes_and_their_clocks_want_it(
    make_fleet: Callable[[str], Fleet], seconds: int
) -> None:
    clocks = {}
    for kind in ("redis", "sqlite"):
        for skews in (RIGHT, WRONG):
            clocks[make_fleet(kind)] = skews
    together(clocks, lambda fleet: run(fleet, clocks[fleet], seconds))


def run(fleet: Fleet, skews: dict[str, int], seconds: int) -> None:
    for name, skew_ms in skews.items():
        fleet.start(name, JOBS, skew_ms=skew_ms)
    begun_ms = max(fleet.wait_for(what="ready", worker=name)[0]["wall_ms"] for name in skews)
    first_ms = begun_ms // TICK_MS * TICK_MS + 2 * TICK_MS
    last_ms = first_ms + (seconds - 1) * TICK_MS
    fleet.wait_for(what="end", job="tick", slot_ms=last_ms, timeout_s=seconds + 60)
    fleet.wait_for(what="end", job="flutter", slot_ms=last_ms)
    fleet.stop()

    lines = fleet.lines()
    assert faults_of_runs(lines, "tick", TICK_MS, first_ms, last_ms) == []
    assert faults_of_runs(lines, "flutter", FLUTTER_MS, first_ms, last_ms) == []
    assert faults_of_early_runs(lines) == []
    assert faults_of_shares(fleet.lines(job="flutter"), list(skews), least=0.05) == []
    assert fleet.lines(what="error") == []
    assert_history(fleet, first_ms, last_ms)
    ticks = [line for line in fleet.lines(what="begin", job="tick") if first_ms <= line["slot_ms"] <= last_ms]
    print(f"{fleet!r}, {len(ticks)} ticks: {dict(Counter(line['worker'] for line in ticks))}")


def assert_history(fleet: Fleet, first_ms: int, last_ms: int) -> None:
    reader = fleet.reader()
    try:
        records = reader.history("tick", limit=1000)
    finally:
        reader.stop()
    assert {record.status for record in records} == {"success"}
    slots = Counter(int(record.run_id) for record in records)
    assert all(slots[slot_ms] == 1 for slot_ms in range(first_ms, last_ms + 1, TICK_MS)), slots
