"""The stage itself: a scenario that fails fails its test, and is played again only where the machine is to blame."""

from __future__ import annotations

import pytest
from fleet import Fleet
from stage import Stage

LOST = {"worker": "one", "job": "sync", "reason": "lease-lost"}


def test_a_scenario_that_fails_on_a_store_fails(stage: Stage) -> None:
    played: list[Fleet] = []

    def scenario(fleet: Fleet) -> None:
        played.append(fleet)
        assert not fleet.url.startswith("sqlite"), "it went wrong"

    with pytest.raises(AssertionError, match="it went wrong"):
        stage.on_each_store(scenario)
    assert len(played) == 2


def test_one_in_which_a_lease_was_lost_that_nobody_paused_is_played_once_more(stage: Stage) -> None:
    """1. the machine stands still for most of a lease  2. the holder finds it lost  3. nothing is as it was to be."""
    played: list[Fleet] = []

    def scenario(fleet: Fleet) -> None:
        played.append(fleet)
        if [each.url for each in played].count(fleet.url) == 1 and fleet.url.startswith("redis"):
            fleet.note("told", **LOST)
            raise AssertionError("attempt 2 has begun")

    stage.on_each_store(scenario)
    assert sorted(fleet.url.partition(":")[0] for fleet in played) == ["redis", "redis", "sqlite"]


def test_one_that_fails_twice_fails(stage: Stage) -> None:
    played: list[Fleet] = []

    def scenario(fleet: Fleet) -> None:
        played.append(fleet)
        fleet.note("told", **LOST)
        raise AssertionError("it goes wrong again")

    with pytest.raises(AssertionError, match="it goes wrong again"):
        stage.on_each_store(scenario)
    assert len(played) == 4
