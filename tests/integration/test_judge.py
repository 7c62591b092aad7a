"""The judges of the fleets find what they are for."""

from __future__ import annotations

import pytest
from fleet import Line
from judge import faults_of_early_runs, faults_of_runs, faults_of_shares


def run(
    slot_ms: int, worker: str = "one", *, attempt: int = 1, fence: int | None = None, wall_ms: int | None = None
) -> list[Line]:
    about = {
        "job": "tick",
        "slot_ms": slot_ms,
        "worker": worker,
        "attempt": attempt,
        "fence": slot_ms if fence is None else fence,
        "wall_ms": slot_ms + 5 if wall_ms is None else wall_ms,
    }
    return [{"what": "begin", **about}, {"what": "end", **about}]


GOOD = [*run(1000), *run(2000, "two"), *run(3000)]


def test_good_runs_have_no_fault() -> None:
    assert faults_of_runs(GOOD, "tick", 1000, 1000, 3000) == []
    assert faults_of_early_runs(GOOD) == []
    assert faults_of_shares(GOOD, ["one", "two"], 0.3) == []


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([*run(1000), *run(3000)], id="a slot without a run"),
        pytest.param([*GOOD, *run(2000, "one", fence=2001)], id="a slot with two runs"),
        pytest.param([*run(1000), *run(2000, attempt=2), *run(3000)], id="a second attempt alone"),
        pytest.param([*run(1000), run(2000)[0], *run(3000)], id="a run that does not end"),
        pytest.param([*GOOD, *run(2500)], id="a run of no slot"),
        pytest.param([*run(1000), *run(2000, fence=900), *run(3000)], id="a fence that falls"),
        pytest.param([*run(1000), *run(2000, fence=1000), *run(3000)], id="a fence that stands"),
    ],
)
def test_a_bad_run_is_a_fault(lines: list[Line]) -> None:
    assert len(faults_of_runs(lines, "tick", 1000, 1000, 3000)) == 1


def test_a_run_before_its_slot_is_a_fault() -> None:
    assert len(faults_of_early_runs([*GOOD, *run(4000, wall_ms=3999)])) == 1


def test_a_small_share_is_a_fault() -> None:
    assert len(faults_of_shares(GOOD, ["one", "two"], 0.4)) == 1
    assert len(faults_of_shares(GOOD, ["one", "two", "three"], 0.1)) == 1
