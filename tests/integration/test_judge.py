"""The judges of the fleets find what they are for."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from fleet import Line
from judge import (
    faults_of_early_runs,
    faults_of_records,
    faults_of_runs,
    judged_until,
)

from anarchon import RunRecord


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

WORKERS = ["one", "two"]

# What is asked of the judge: the job, who was there, how often it is due, and from when to when.
SLOTS = ("tick", WORKERS, 1000, 1000, 3000)


def until(lines: list[Line], least_ms: int = 2000) -> int | None:
    """When the time ends that can be judged."""
    return judged_until(lines, {"tick": 1000}, WORKERS, 1000, least_ms)


def test_good_runs_have_no_fault() -> None:
    assert faults_of_runs(GOOD, *SLOTS) == []
    assert faults_of_early_runs(GOOD) == []


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
    assert len(faults_of_runs(lines, *SLOTS)) == 1


def test_a_run_before_its_slot_is_a_fault() -> None:
    assert len(faults_of_early_runs([*GOOD, *run(4000, wall_ms=3999)])) == 1


def skip(slot_ms: int, worker: str, reason: str = "late") -> Line:
    return {"what": "skip", "job": "tick", "slot_ms": slot_ms, "worker": worker, "reason": reason}


def test_a_slot_that_every_worker_has_told_to_be_a_skip_may_be_without_a_run() -> None:
    lines = [*run(1000), skip(2000, "one"), skip(2000, "two", "overlap"), *run(3000)]
    assert until(lines) == 3000
    assert faults_of_runs(lines, *SLOTS) == []


@pytest.mark.parametrize(
    "skips",
    [
        pytest.param([], id="silence"),
        pytest.param([skip(2000, "one")], id="one of two"),
        pytest.param([skip(2000, "one"), skip(2000, "two", "taken")], id="nobody has taken it"),
        pytest.param([skip(2000, "one"), skip(3000, "two")], id="another slot"),
    ],
)
def test_a_slot_that_passes_in_silence_is_a_fault_once_it_is_decided(skips: list[Line]) -> None:
    lines = [*run(1000), *skips, *run(3000)]
    assert until(lines) is None
    assert len(faults_of_runs(lines, *SLOTS)) == 1


def test_more_skips_than_runs_are_a_fault() -> None:
    skips = [skip(slot_ms, worker) for slot_ms in (2000, 3000) for worker in WORKERS]
    assert len(faults_of_runs([*run(1000), *skips], *SLOTS)) == 1


def test_a_time_that_can_be_judged_has_lasted_for_long_enough_for_every_job() -> None:
    assert until(GOOD) == 3000
    assert until(GOOD, least_ms=2001) is None
    assert judged_until(GOOD, {"tick": 1000, "tack": 1000}, WORKERS, 1000, 2000) is None
    of_another = [{**line, "job": "tack"} for line in [*GOOD, *run(4000)]]
    assert judged_until([*GOOD, *of_another], {"tick": 1000, "tack": 1000}, WORKERS, 1000, 2000) == 3000


def test_a_time_in_which_most_slots_pass_is_made_up_for_by_what_comes_after() -> None:
    skips = [skip(slot_ms, worker) for slot_ms in (2000, 3000, 4000) for worker in WORKERS]
    lines = [*run(1000), *skips, *run(5000)]
    assert until(lines) is None
    assert until([*lines, *run(6000)]) == 6000


def record(slot_ms: int, status: str = "success", attempt: int = 1) -> RunRecord:
    at = datetime.fromtimestamp(slot_ms / 1000, timezone.utc)
    return RunRecord("tick", at, str(slot_ms), attempt, "scheduled", status, "one", slot_ms, at, at, 0.0)


RECORDS = [record(1000), record(2000), record(3000)]


def test_a_history_of_what_was_done_has_no_fault() -> None:
    told = [{**line, "what": "success"} for line in GOOD if line["what"] == "end"]
    assert faults_of_records([*GOOD, *told], "tick", RECORDS) == []
    # The newest may still wait to be found lost; one that never began was given back or lost.
    assert faults_of_records([*GOOD, *run(4000)], "tick", RECORDS) == []
    assert faults_of_records(GOOD, "tick", [*RECORDS, record(4000, "lost")]) == []


@pytest.mark.parametrize(
    ("lines", "records"),
    [
        pytest.param(GOOD, [*RECORDS, record(4000)], id="a success of nobody"),
        pytest.param([*GOOD, {**run(4000)[1], "what": "success"}], RECORDS, id="a success that was told and not kept"),
        pytest.param([*GOOD, *run(20_000)], RECORDS[1:], id="an old attempt without a record"),
        pytest.param(
            [*GOOD, *run(3000, attempt=2, fence=3001)], [*RECORDS, record(3000, attempt=2)], id="two successes"
        ),
    ],
)
def test_a_history_of_something_else_is_a_fault(lines: list[Line], records: list[RunRecord]) -> None:
    assert len(faults_of_records(lines, "tick", records)) == 1
