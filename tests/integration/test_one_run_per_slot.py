"""Four processes, one store, a job every second: each slot has exactly one run, whatever the processes' own clocks say.

On SQLite the store's clock is the host's, so there the skew is in the instances' clocks only; on Redis likewise, since
the server is on this host: the host's clock is the one that decides, and the one that the log of the handlers has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from fleet import Fleet, Line, together
from judge import faults_of_early_runs, faults_of_runs, judged_until
from stage import Stage

TICK_MS = 1000

# The second one often enough that each of four workers has its share of it within seconds.
INTERVALS_MS = {"tick": TICK_MS, "flutter": 250}

JOBS: list[Line] = [
    {"name": name, "every": f"{interval_ms}ms", "history_limit": 1000} for name, interval_ms in INTERVALS_MS.items()
]

RIGHT = {"one": 0, "two": 0, "three": 0, "four": 0}
WRONG = {"hour-behind": -3_600_000, "behind": -420_000, "ahead": 1_200_000, "hour-ahead": 3_600_000}


def run_side_by_side(stage: Stage, seconds: int) -> None:
    clocks = {stage.fleet(kind): skews for kind in ("redis", "sqlite") for skews in (RIGHT, WRONG)}
    together(clocks, lambda fleet: run(fleet, clocks[fleet], seconds))


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=lambda stage: run_side_by_side(stage, 8))
def test_each_slot_has_exactly_one_run_though_four_processes_and_their_clocks_want_it(
    played: Callable[[], None],
) -> None:
    played()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_each_slot_of_a_minute_has_exactly_one_run(stage: Stage) -> None:
    run_side_by_side(stage, 60)


def run(fleet: Fleet, skews: dict[str, int], seconds: int) -> None:
    fleet.begin({name: partial(fleet.start, name, JOBS, skew_ms=skew_ms) for name, skew_ms in skews.items()})
    begun_ms = max(line["wall_ms"] for line in fleet.lines("ready"))
    first_ms = begun_ms // TICK_MS * TICK_MS + 2 * TICK_MS
    last_ms = fleet.wait_for_value(
        lambda: judged_until(fleet.lines(), INTERVALS_MS, skews, first_ms, (seconds - 1) * TICK_MS),
        f"{seconds} seconds of slots that are decided",
        timeout_s=seconds + 60,
    )
    fleet.wait_until(lambda: takers(fleet) == set(skews), "each worker has its share")
    fleet.stop()

    lines = fleet.lines()
    for job, interval_ms in INTERVALS_MS.items():
        assert faults_of_runs(lines, job, skews, interval_ms, first_ms, last_ms) == []
    assert faults_of_early_runs(lines) == []
    assert fleet.lines(what="error") == []
    assert_history(fleet, {line["slot_ms"] for line in fleet.lines(what="begin", job="tick")})
    ticks = [line for line in fleet.lines(what="begin", job="tick") if first_ms <= line["slot_ms"] <= last_ms]
    print(f"{fleet!r}, {len(ticks)} ticks: {dict(Counter(line['worker'] for line in ticks))}")


def takers(fleet: Fleet) -> set[str]:
    """Who has run a job so far."""
    return {line["worker"] for line in fleet.lines(what="begin", job="flutter")}


def assert_history(fleet: Fleet, slots_ms: set[int]) -> None:
    reader = fleet.reader()
    try:
        records = reader.history("tick", limit=1000)
    finally:
        reader.stop()
    # A grant that comes when the stop has begun is given back, and nothing has begun.
    assert {record.status for record in records} <= {"success", "interrupted"}
    successes = Counter(int(record.run_id) for record in records if record.status == "success")
    assert successes == Counter(slots_ms)
