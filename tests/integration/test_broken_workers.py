"""The judge of the storms can find something: where the store is broken on purpose, it sees what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from chaos_judge import histories_of, judged
from fleet import Fleet, Line
from judge import passed_over
from stage import Stage

from anarchon.durations import to_ms
from anarchon.testing import Fault, Judgement

NAMES = ("one", "two", "three")

#: What the oracle must say of each job of ``broken_worker.py``.
FOUND = {
    "granted-to-all": "repeated",
    "passed-over": "missed",
    "not-fenced": "unfenced",
    "not-renewed": "overlapping",
    "not-stored": "repeated",
    "forgotten": "unrecorded",
}

OPTIONS = {"jitter": "50ms", "lease": "3s", "history_limit": 10_000}

JOBS: list[Line] = [
    {"name": name, "every": "1s", **OPTIONS}
    for name in ("sound", "granted-to-all", "passed-over", "not-fenced", "forgotten")
]
JOBS += [
    {"name": "not-renewed", "every": "3s", "lasts": [2.8], **OPTIONS, "lease": "1500ms"},
    {"name": "not-stored", "every": "3s", **OPTIONS, "lease": "1500ms"},
]


def break_the_store(stage: Stage) -> None:
    fleet = stage.fleet("redis")
    fleet.start_all(NAMES, JOBS, runs=True, script="broken_worker.py")
    since_ms = time.time_ns() // 1_000_000 + 1_000
    # On a machine that stands still again and again a fault may have its excuse; the next one will have none.
    fleet.wait_until(lambda: not missing(judge(fleet, since_ms, settled_ms())), "every fault is found", timeout_s=240)
    until_ms = settled_ms()
    fleet.stop()
    # Not what is to be found, once more: a stop ends what went on beside another run, and it may have hardly begun.
    found = judge(fleet, since_ms, until_ms)
    print("\n".join(map(str, found.faults)))
    # Where all of them came too late for a slot, as they may on such a machine, each has said so.
    assert [fault for fault in found.faults if fault.job == "sound" and not passed_over_by_all(fleet, fault)] == []
    assert found.ran > 0


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=break_the_store)
def test_the_judge_finds_what_a_broken_store_does_and_nothing_where_it_is_sound(played: Callable[[], None]) -> None:
    played()


def passed_over_by_all(fleet: Fleet, fault: Fault) -> bool:
    return fault.kind == "missed" and passed_over(fleet.lines(), fault.job, NAMES, [to_ms(fault.slot)]) != []


def judge(fleet: Fleet, since_ms: int, until_ms: int) -> Judgement:
    return judged(fleet, JOBS, histories_of(fleet, JOBS), since_ms, until_ms)


def settled_ms() -> int:
    """What came due later may still be on its way, and what lasts may go on."""
    return time.time_ns() // 1_000_000 - 5_000


def missing(found: Judgement) -> dict[str, str]:
    """What is to be found and was not."""
    return {job: kind for job, kind in FOUND.items() if kind not in kinds(found, job)}


def kinds(found: Judgement, job: str) -> set[str]:
    return {fault.kind for fault in found.faults if fault.job == job}
