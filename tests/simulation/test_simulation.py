"""Whole fleets in virtual time, with everything befalling them that a seed can think of: no slot twice, none lost.

What runs is the real scheduler, its runners, heartbeats and timers; time, threads and chance are the kernel's. The long
version's command is in docs/developing.rst.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from storm import weather_a_storm

#: What a storm must have reached: each answer of the claim table, each verdict, each way that a run may end.
REACHED = {
    "claim: start won",
    "claim: start running",
    "claim: start overlap",
    "claim: start late",
    "claim: start done (finished)",
    "claim: start done (passed)",
    "claim: start done (exhausted)",
    "claim: takeover won",
    "claim: takeover running",
    "claim: takeover overlap",
    "claim: takeover late",
    "claim: takeover none",
    "claim: takeover done (finished)",
    "claim: takeover done (passed)",
    "claim: takeover done (superseded)",
    "claim: takeover done (exhausted)",
    "takeover",
    "a call done late",
    "heartbeat: ok",
    "heartbeat: finished",
    "heartbeat: lost",
    "finish: ok",
    "finish: lost",
    "release: ok",
    "release: lost",
    "save_result",
    "manual run",
    "manual run refused",
    "manual run without a store",
    "event: start",
    "event: success",
    "event: failure",
    "event: interrupted stop",
    "event: interrupted lease-lost",
    "event: skip taken",
    "event: skip overlap",
    "event: skip late",
    "event: error",
    "fault: kill",
    "fault: stop",
    "fault: pause",
    "fault: weather",
    "fault: store away",
    "fault: store restarted empty",
    "fault: clock stepped",
    "fault: deploy",
}


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """A storm says a great deal."""
    logger = logging.getLogger("anarchon")
    before = logger.disabled
    logger.disabled = True
    yield
    logger.disabled = before


@pytest.mark.parametrize("seed", range(6))
def test_a_fleet_weathers_a_storm(seed: int) -> None:
    outcome = weather_a_storm(seed, seconds=300)
    assert outcome.complaints() == []
    # The oracle is no oracle that explains everything away.
    assert outcome.judgement.ran > 0.7 * outcome.judgement.slots > 50


def test_a_seed_replays_exactly() -> None:
    first, second = weather_a_storm(11, seconds=60), weather_a_storm(11, seconds=60)
    assert first == second


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_fleets_weather_many_storms(capsys: pytest.CaptureFixture[str]) -> None:
    """``ANARCHON_SOAK_SEEDS`` seeds from ``ANARCHON_SOAK_FROM`` on, of 600 s each."""
    first, seeds = int(os.environ.get("ANARCHON_SOAK_FROM", "0")), int(os.environ.get("ANARCHON_SOAK_SEEDS", "1000"))
    found: list[str] = []
    reached: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    attempts: Counter[int] = Counter()
    slots = ran = 0
    for seed in range(first, first + seeds):
        outcome = weather_a_storm(seed)
        found += outcome.complaints()
        reached += outcome.reached
        explained += outcome.judgement.explained
        attempts += outcome.judgement.attempts
        slots += outcome.judgement.slots
        ran += outcome.judgement.ran
    with capsys.disabled():
        print(f"\n{seeds} seeds, {slots} slots: {ran} ran, the others {dict(explained)}; attempts {dict(attempts)}")
        for what, times in sorted(reached.items()):
            print(f"  {times:>9} {what}")
    assert found == []
    assert REACHED - set(reached) == set()
