"""Whole fleets in virtual time, with everything befalling them that a seed can think of: no slot twice, none lost.

What runs is the real scheduler, its runners, heartbeats and timers; time, threads and chance are the kernel's. The long
version's command is in docs/developing.rst.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from storm import Outcome, weather_a_storm
from wild import weather_a_wild_storm

#: A storm takes a few seconds, on a busy machine a minute.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("no_log")]

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

#: What only wild storms reach for certain: the lines for late repeats and for takeovers beside another run, and a first
#: claim that is done so late that its run was begun, died, and was passed by a newer slot.
REACHED_WILDLY = {f"line {line:>2}" for line in range(1, 15)} | {
    "claim: start done (superseded)",
    "fault: store's clock stepped",
}


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 6])
def test_a_fleet_weathers_a_storm(seed: int) -> None:
    outcome = weather_a_storm(seed, seconds=200)
    assert outcome.complaints() == []
    # The oracle is no oracle that explains everything away.
    assert outcome.judgement.ran > 0.7 * outcome.judgement.slots > 50


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fleet_weathers_a_wild_storm(seed: int) -> None:
    """The store's clock goes on as it should in the one, and is stepped in the other."""
    outcome = weather_a_wild_storm(seed, seconds=100)
    assert outcome.complaints() == []
    assert outcome.reached["event: start"] > 50


@pytest.mark.parametrize("weather", [weather_a_storm, weather_a_wild_storm])
def test_a_seed_replays_exactly(weather: Callable[..., Outcome]) -> None:
    first, second = weather(11, seconds=40), weather(11, seconds=40)
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


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_fleets_weather_many_wild_storms(capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of as many seeds."""
    first, seeds = int(os.environ.get("ANARCHON_SOAK_FROM", "0")), int(os.environ.get("ANARCHON_SOAK_SEEDS", "1000"))
    found: list[str] = []
    reached: Counter[str] = Counter()
    for seed in range(first, first + max(1, seeds // 10)):
        outcome = weather_a_wild_storm(seed)
        found += outcome.complaints()
        reached += outcome.reached
    with capsys.disabled():
        for what, times in sorted(reached.items()):
            print(f"  {times:>9} {what}")
    assert found == []
    assert REACHED_WILDLY - set(reached) == set()
