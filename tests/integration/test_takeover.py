"""A holder, or all of a fleet, is killed, stopped or paused in the middle of runs: they are taken over, none twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fleet import Fleet
from restarts import restart_after_a_kill, restart_after_a_stop
from stage import Stage
from takeovers import kill_holders, pause_a_holder, stop_a_holder

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(600)


def kill_a_holder(fleet: Fleet) -> None:
    kill_holders(fleet, lease_s=5, lasts=(20, 6), kills=1)


@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(kill_a_holder))
def test_a_killed_holder_is_taken_over_within_a_lease_and_a_heartbeat(played: Callable[[], None]) -> None:
    played()


@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(stop_a_holder))
def test_a_holder_that_is_stopped_releases_its_run_and_a_backup_takes_it_at_its_next_check(
    played: Callable[[], None],
) -> None:
    played()


@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(pause_a_holder))
def test_a_paused_holder_finds_its_lease_lost_and_changes_nothing_but_its_own_record(
    played: Callable[[], None],
) -> None:
    played()


@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(restart_after_a_kill))
def test_the_first_process_back_takes_over_what_a_killed_fleet_left(played: Callable[[], None]) -> None:
    played()


@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(restart_after_a_stop))
def test_the_first_process_back_takes_over_what_a_stopped_fleet_left(played: Callable[[], None]) -> None:
    played()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("lease_s", "lasts", "kills"), [(3, (20, 0), 50), (30, (90, 0), 4)])
def test_many_killed_holders_are_taken_over_within_a_lease_a_heartbeat_and_half_a_second(
    stage: Stage, lease_s: int, lasts: tuple[float, float], kills: int
) -> None:
    stage.on_each_store(lambda fleet: kill_holders(fleet, lease_s, lasts, kills))
