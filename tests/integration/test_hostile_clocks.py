"""A real process whose clock is set while it runs, on a store that keeps the host's time and on one with its own.

Twice: with a clock that its test steps, which needs nothing but Python; and under libfaketime, where that is installed,
with the clock, the waits and the stores exactly as users have them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, together
from stage import Stage

# Processes begin side by side here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(600)

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
STEPS_MS = (-HOUR_MS, YEAR_MS, 2_000, -2_000)
INTERVALS_MS = {"half": 500, "second": 1_000}

LIBFAKETIME = [
    library
    for folder in ("lib", "lib/*-linux-*", "lib64", "local/lib")
    for library in Path("/usr").glob(f"{folder}/faketime/libfaketimeMT.so.1")
]


class FakedClock:
    """The file in which libfaketime looks up the offset, each time that its process asks for the time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset_ms = 0
        self.step(0)

    def step(self, ms: int) -> None:
        self._offset_ms += ms
        new = self.path.with_suffix(".new")
        new.write_text(f"{self._offset_ms / 1000:+.3f}\n")
        new.replace(self.path)  # never half written


def play(fleet: Fleet, step: Callable[[Fleet, int], None]) -> None:
    """Steps the host's clock again and again: each time both jobs go on, at the time that it then is for the store."""
    own_clock = not fleet.url.startswith("sqlite")
    wait_for_both(fleet, 0)
    offset_ms = 0
    for step_ms in STEPS_MS:
        step(fleet, step_ms)
        offset_ms += 0 if own_clock else step_ms
        wait_for_both(fleet, offset_ms)
    fleet.stop()
    assert fleet.lines("error") == []
    judge(fleet, own_clock)


def wait_for_both(fleet: Fleet, offset_ms: int) -> None:
    """Until each job has run once more, for a slot of the store's new time: no step is as short as this allows."""
    before = len(fleet.lines("begin"))

    def going_on() -> bool:
        now_ms = time.time_ns() // 1_000_000 + offset_ms
        new = fleet.lines("begin")[before:]
        return {line["job"] for line in new if abs(line["slot_ms"] - now_ms) < 1_500} == set(INTERVALS_MS)

    fleet.wait_until(going_on, f"both jobs run with the store's clock {offset_ms} ms ahead of this one")


def judge(fleet: Fleet, own_clock: bool) -> None:
    for job, interval_ms in INTERVALS_MS.items():
        begun = fleet.lines("begin", job=job)
        skips = fleet.lines("skip", job=job)
        ran = [line["slot_ms"] for line in begun]
        assert [slot_ms for slot_ms, times in Counter(ran).items() if times > 1] == [], "run twice"
        assert [line for line in begun if line["store_ms"] < line["slot_ms"]] == [], "run early"
        if own_clock:
            known = {line["slot_ms"] for line in skips}.union(ran)
            assert set(range(min(ran), max(ran), interval_ms)) <= known, "neither run nor told"
            assert {line["count"] for line in skips} <= {1}  # nobody has seen a year go by
        else:
            # A hundred of the year's slots and one line for the rest; a few of the two seconds ahead and back, and of
            # the times at which the machine stood still.
            assert 100 < len(skips) < 1000
            [rest] = [line for line in skips if line["count"] != 1]
            first_ms = min(slot_ms for slot_ms in ran if slot_ms > rest["slot_ms"] + YEAR_MS // 2)
            if job == "half":
                assert 0 <= first_ms - (rest["slot_ms"] + rest["count"] * interval_ms) < 30_000
            else:
                assert rest["count"] is None


Step = Callable[[Fleet, int], None]


def stepped_by_the_test(stage: Stage) -> dict[Fleet, Step]:
    """Processes whose clock is one that the test steps, and how."""

    def step(fleet: Fleet, ms: int) -> None:
        fleet.workers["host"].ask("step", ms=ms)

    fleets = [stage.fleet("sqlite"), stage.fleet("redis")]
    for fleet in fleets:
        fleet.launch("host", "clocked_worker.py", {})
    return dict.fromkeys(fleets, step)


def under_libfaketime(stage: Stage) -> dict[Fleet, Step]:
    """The wall clock is the faked one, for the process and for its file; the monotonic clocks are left as they are."""
    clocks = {stage.fleet(kind): FakedClock(stage.directory()) for kind in ("sqlite", "redis")}
    for fleet, clock in clocks.items():
        environ = {
            "LD_PRELOAD": str(LIBFAKETIME[0]),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": str(clock.path),
        }
        fleet.launch("host", "clocked_worker.py", {}, environ=environ)
    return dict.fromkeys(clocks, lambda fleet, ms: clocks[fleet].step(ms))


def set_clocks(stage: Stage) -> None:
    steps = stepped_by_the_test(stage)
    if LIBFAKETIME:
        steps |= under_libfaketime(stage)
    together(steps, lambda fleet: play(fleet, steps[fleet]))


@pytest.mark.at_once(scenario=set_clocks)
def test_a_process_whose_clock_is_set_goes_on_at_once_and_runs_no_slot_twice_or_early(
    played: Callable[[], None],
) -> None:
    """apscheduler#351, #526, #1066, kubernetes#42649, in processes of their own."""
    played()
