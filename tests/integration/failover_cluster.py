"""In a cluster a node is lost, a job moves to another node, and ``wait_replicas`` is about the node of the job."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack, closing
from pathlib import Path

from failover_asks import finished, granted, is_not_relied_on, patiently, request
from failover_runs import begun, beyond_their_attempts, now_ms, outage_ms, running, wait_for_runs
from redis.cluster import RedisCluster
from topologies import Cluster, until

from anarchon import RedisBackend
from anarchon.backends.redis import KEYS
from anarchon.testing import RunLog

__all__ = ["in_a_cluster"]


def in_a_cluster(directory: Path, hold_back: bool = True, node_timeout_ms: int = 4_000) -> None:
    """A node is lost: its jobs go on when its replica has taken its place, and those of the others never stop.

    Args:
        hold_back: the replica is paused until the others' jobs have run without that node.
    """
    prefix = "test:"
    with closing(Cluster(directory, node_timeout_ms)) as cluster:
        cluster.start()
        jobs = [cluster.job_on(number) for number in range(3)]
        log = RunLog(directory / "runs")
        with ExitStack() as stack:
            clients = [stack.enter_context(cluster.client()) for _ in range(3)]
            asks_the_node_that_wrote(cluster, clients[0], prefix)
            follows_a_job_that_moves(cluster, clients[0], prefix)
            with running(log, clients, jobs, prefix=prefix):
                for job in jobs:
                    wait_for_runs(log, job, 2)
                if hold_back:
                    cluster.replicas[1].pause()
                before = cluster.epoch()
                cluster.primaries[1].kill()
                gone_ms = now_ms()
                if hold_back:
                    for job in (jobs[0], jobs[2]):
                        wait_for_runs(log, job, 2, since_ms=gone_ms)
                    assert begun(log, jobs[1], since_ms=gone_ms) == []
                    cluster.replicas[1].resume()
                wait_for_runs(log, jobs[1], 3, since_ms=gone_ms)
                print(f"in a cluster, a node killed: {outage_ms(log, jobs[1], gone_ms)} ms without a run of its job")
            if cluster.epoch() <= before + 1:
                print("in a cluster, the one failover and no other: every run is asked for")
                for job in jobs:
                    assert beyond_their_attempts(log, job, since_ms=gone_ms) == []


def asks_the_node_that_wrote(cluster: Cluster, client: RedisCluster, prefix: str) -> None:
    """``wait_replicas`` is about the replica of the job's own node."""
    prefix = f"wait:{prefix}"
    on_paused, elsewhere = cluster.job_on(0), cluster.job_on(1)
    backend = RedisBackend(client=client, prefix=prefix, wait_replicas=1)
    for job in (on_paused, elsewhere):
        until(lambda: granted(backend, request(backend, "before", job)), f"{job} is granted")  # noqa: B023
    two = RedisBackend(client=client, wait_replicas=2)
    until(
        lambda: len({told for told in two.advice() if "has 1 replicas" in told}) == 3, "each node is told to have one"
    )
    cluster.replicas[0].pause()
    try:
        is_not_relied_on(lambda: backend.claim(request(backend, "token", on_paused)))
        until(lambda: granted(backend, request(backend, "token", elsewhere)), f"{elsewhere} is granted")
    finally:
        cluster.replicas[0].resume()
    until(lambda: granted(backend, request(backend, "after", on_paused)), f"{on_paused} is granted")


def follows_a_job_that_moves(cluster: Cluster, client: RedisCluster, prefix: str) -> None:
    """Its slot migrates to another node. A job's keys are asked for together, so they are served where all of them are.

    1. the slot is to migrate, and the keys are still where they were: the old node serves the job
    2. the keys have been moved: the old node sends every call on (ASK)
    3. the slot belongs to the new node: whoever asks the old one is told so (MOVED)
    """
    prefix = f"move:{prefix}"
    job = cluster.job_on(0, other=1)
    slot = cluster.slot_of(job)
    backend = RedisBackend(client=client, prefix=prefix, wait_replicas=1)
    before, asked = (patiently(lambda: request(backend, token, job)) for token in ("before", "token"))  # noqa: B023
    asked = dataclasses.replace(asked, slot_ms=asked.slot_ms + 1, run_id=str(asked.slot_ms + 1))
    until(lambda: granted(backend, before), "a run begins")
    until(lambda: finished(backend, before), "it leaves all the keys that there are")
    old, new = cluster.primaries[0], cluster.primaries[2]
    with cluster.admin(old) as source, cluster.admin(new) as target:
        of_old, of_new = (node.execute_command("CLUSTER", "MYID") for node in (source, target))
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", of_old)
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", of_new)
        until(lambda: granted(backend, asked), "the old node grants it")
        keys = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10)
        assert len(keys) == len(KEYS)
        source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 30_000, "KEYS", *keys)
        until(lambda: granted(backend, asked), "the claim is sent on, and known there")
        for node in (target, source):
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", of_new)
        until(lambda: finished(backend, asked), "the end is sent to the new place")
        history = patiently(lambda: backend.history(job, 9))
        assert [kept.run_id for kept in history] == [asked.run_id, before.run_id]
