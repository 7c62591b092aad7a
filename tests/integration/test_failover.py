"""A primary is lost and a replica takes its place: the schedule goes on by itself, and what may be lost is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from failover_asks import record, request
from failover_cluster import in_a_cluster
from failover_runs import side_by_side
from failover_sentinel import under_sentinel
from topologies import DOWN_AFTER_MS, Replicated, until

from anarchon import BackendError, RedisBackend
from anarchon.records import Outcome


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=lambda stage: under_sentinel(stage.directory()))
def test_under_sentinel_the_schedule_goes_on_by_itself_when_a_primary_is_lost(played: Callable[[], None]) -> None:
    played()


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=lambda stage: in_a_cluster(stage.directory()))
def test_in_a_cluster_the_schedule_goes_on_by_itself_when_a_primary_is_lost(played: Callable[[], None]) -> None:
    played()


# -- how long it takes and what is lost, measured


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("time", range(5))
def test_how_long_nothing_runs_is_told(tmp_path: Path, time: int) -> None:
    side_by_side(
        lambda: under_sentinel(tmp_path / "sentinel"),
        lambda: in_a_cluster(tmp_path / "cluster", hold_back=False, node_timeout_ms=DOWN_AFTER_MS),
    )


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("wait_replicas", [0, 1])
@pytest.mark.parametrize("cut_ms", [0, 300])
def test_what_a_failover_loses_is_counted(tmp_path: Path, cut_ms: int, wait_replicas: int) -> None:
    """The primary is killed under claims, at once or some time after its replica has lost it; the replica is promoted.

    Lost is a grant or an end that a client relied on and the promoted replica does not know.
    """
    losses = [lose_a_primary(tmp_path / str(number), cut_ms, wait_replicas) for number in range(20)]
    grants, lost_grants, ends, lost_ends = map(sum, zip(*losses))
    print(
        f"replica cut off {cut_ms} ms before, wait_replicas={wait_replicas}: {len(losses)} failovers, "
        f"{sum(1 for loss in losses if loss[1] or loss[3])} with a loss; "
        f"{lost_grants} of {grants} grants and {lost_ends} of {ends} ends lost"
    )
    assert grants > 20 * 20
    if wait_replicas:
        assert (lost_grants, lost_ends) == (0, 0)
    elif cut_ms:
        assert lost_grants > 0


def lose_a_primary(directory: Path, cut_ms: int, wait_replicas: int) -> tuple[int, int, int, int]:
    """Returns how many grants were relied on, how many of them are lost, and the same of ends."""
    with closing(Replicated(directory, replicas=1)) as servers:
        servers.start()
        url = f"{servers.url(servers.primary)}?socket_timeout=1"
        killed = threading.Event()
        relied_on: list[tuple[str, str, bool]] = []
        claimers = [
            threading.Thread(target=claim_until, args=(killed, url, f"job-{number}", wait_replicas, relied_on))
            for number in range(4)
        ]
        for claimer in claimers:
            claimer.start()
        until(lambda: len(relied_on) > 80, "claims are granted")
        if cut_ms:
            servers.cut_off(servers.primary)
            time.sleep(cut_ms / 1000)
        servers.primary.kill()
        killed.set()
        for claimer in claimers:
            claimer.join()
        # A replica that is promoted seconds later has read everything that had reached its host.
        with servers.admin(servers.replicas[0]) as replica:
            until(lambda: replica.info("replication")["master_link_status"] == "down", "the replica misses the primary")
        servers.promote(servers.replicas[0])
        with closing(RedisBackend(servers.url(servers.replicas[0]))) as promoted:
            known = {(f"job-{number}", run.run_id) for number in range(4) for run in promoted.active(f"job-{number}")}
            ended = {(f"job-{n}", kept.run_id) for n in range(4) for kept in promoted.history(f"job-{n}", 10_000)}
        grants = {(job, run_id) for job, run_id, _ in relied_on}
        ends = {(job, run_id) for job, run_id, finished in relied_on if finished}
        return len(grants), len(grants - known - ended), len(ends), len(ends - ended)


def claim_until(
    killed: threading.Event, url: str, job: str, wait_replicas: int, relied_on: list[tuple[str, str, bool]]
) -> None:
    """Claims a slot and finishes it, some fifty times a second."""
    with closing(RedisBackend(url, wait_replicas=wait_replicas)) as backend:
        while not killed.wait(0.01):
            try:
                asked = request(backend, "token", job)
                if backend.claim(asked).outcome is Outcome.WON:
                    relied_on.append((job, asked.run_id, False))
                    backend.finish(job, asked.run_id, "token", record(asked))
                    relied_on.append((job, asked.run_id, True))
            except BackendError:
                pass
