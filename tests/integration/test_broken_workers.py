"""The judge of the storms can find something: where the store is broken on purpose, it sees what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos_judge import judged
from fleet import Fleet, Line

from anarchon.testing import Judgement

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


def test_the_judge_finds_what_a_broken_store_does_and_nothing_where_it_is_sound(
    make_fleet: Callable[[str], Fleet],
) -> None:
    fleet = make_fleet("redis")
    fleet.start_all(NAMES, JOBS, runs=True, script="broken_worker.py")
    since_ms = time.time_ns() // 1_000_000 + 1_000
    # On a machine that stands still again and again a fault may have its excuse; the next one will have none.
    missing = dict(FOUND)

    def all_found() -> bool:
        found = judge(fleet, since_ms)
        for job in [job for job, kind in missing.items() if kind in kinds(found, job)]:
            del missing[job]
        return not missing

    try:
        fleet.wait_until(all_found, "every fault is found")
    finally:
        print(f"not found: {missing}")
    found = judge(fleet, since_ms)
    fleet.stop()
    print("\n".join(map(str, found.faults)))
    assert kinds(found, "sound") == set()
    assert found.ran > 0


def judge(fleet: Fleet, since_ms: int) -> Judgement:
    # What came due last may still be on its way.
    return judged(fleet, JOBS, since_ms, time.time_ns() // 1_000_000 - 2_000)


def kinds(found: Judgement, job: str) -> set[str]:
    return {fault.kind for fault in found.faults if fault.job == job}
