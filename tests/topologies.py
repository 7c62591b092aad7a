"""Servers that stand in for each other, on this host: a primary with replicas, its sentinels, and a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel
from servers import RedisServer

from anarchon import BackendError

__all__ = ["DOWN_AFTER_MS", "Cluster", "Replicated", "Watched", "until"]

#: So long a server is silent before the others call it down. On a machine that is kept busy one may be that by chance.
DOWN_AFTER_MS = 1_500

# Whoever asks logs in as ``app``; what the servers and the sentinels have to say to each other, they say as ``link``.
_USERS = "default off\nuser app on >app ~* &* +@all\nuser link on >link ~* &* +@all"

_SERVER: dict[str, str] = {
    "appendonly": "no",
    "repl_diskless_sync_delay": "0",
    "user": _USERS,
    "masteruser": "link",
    "masterauth": "link",
}


def until(holds: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
    """Waits for something that comes to pass; no answer is not yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if holds():
                return
        except (redis.RedisError, BackendError, OSError):
            pass
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def no_repeats(connect_s: float, read_s: float) -> dict[str, Any]:
    return {"socket_connect_timeout": connect_s, "socket_timeout": read_s, "retry": Retry(NoBackoff(), 0)}


class Replicated:
    """A primary and its replicas. Close it, and they are gone."""

    def __init__(self, directory: Path, replicas: int) -> None:
        self.primary = RedisServer(directory / "primary", **_SERVER)
        follows = f"127.0.0.1 {self.primary.port}"
        self.replicas = [RedisServer(directory / f"replica-{n}", replicaof=follows, **_SERVER) for n in range(replicas)]

    def start(self) -> Replicated:
        for server in (self.primary, *self.replicas):
            server.start()
        with self.admin(self.primary) as primary:
            until(lambda: _online(primary) == len(self.replicas), "every replica follows the primary")
        # One that the primary calls online may still be loading what it was sent first, and has nothing else.
        for server in self.replicas:
            with self.admin(server) as replica:
                until(lambda: _follows(replica), "the replica has all that the primary has")
        return self

    def close(self) -> None:
        for server in (self.primary, *self.replicas):
            server.kill()

    @staticmethod
    def url(server: RedisServer) -> str:
        return server.url.replace("redis://", "redis://app:app@")

    @staticmethod
    def admin(server: RedisServer) -> redis.Redis:
        return redis.Redis.from_url(Replicated.url(server), socket_timeout=30, decode_responses=True)

    def cut_off(self, server: RedisServer) -> None:
        """The server answers its clients, and nobody else: neither its replicas nor the sentinels."""
        with self.admin(server) as node:
            node.execute_command("ACL", "SETUSER", "link", "off")
            node.execute_command("CLIENT", "KILL", "USER", "link")

    def promote(self, server: RedisServer) -> None:
        """Makes a replica a primary, as an operator does when the old one is gone."""
        with self.admin(server) as node:
            node.execute_command("REPLICAOF", "NO", "ONE")


class Watched(Replicated):
    """A primary, its replicas, and three sentinels that replace it when two of them do not hear from it."""

    def __init__(self, directory: Path, replicas: int) -> None:
        super().__init__(directory, replicas)
        lines = [
            f"monitor main 127.0.0.1 {self.primary.port} 2",
            f"down-after-milliseconds main {DOWN_AFTER_MS}",
            "failover-timeout main 2000",
            "parallel-syncs main 9",
            "auth-user main link",
            "auth-pass main link",
        ]
        none = dict.fromkeys(("save", "appendonly", "appendfsync"))
        self.sentinels = [
            RedisServer(
                directory / f"sentinel-{n}",
                ready="+monitor master main",
                sentinel="\nsentinel ".join(lines),
                **none,
            )
            for n in range(3)
        ]

    def start(self) -> Watched:
        super().start()
        for sentinel in self.sentinels:
            sentinel.start("--sentinel")
        for sentinel in self.sentinels:
            with redis.Redis("127.0.0.1", sentinel.port, decode_responses=True) as watcher:
                # One that was held up for two seconds, by a slow disk say, would do nothing for the next thirty. Those
                # before 7.0 cannot be told otherwise.
                with suppress(redis.ResponseError):
                    watcher.execute_command("SENTINEL", "DEBUG", "tilt-trigger", 60_000)
                until(lambda: _knows(watcher, 2, len(self.replicas)), "the sentinels know the others and the replicas")
        return self

    def close(self) -> None:
        for sentinel in self.sentinels:
            sentinel.kill()
        super().close()

    def client(self) -> redis.Redis:
        """A client that asks the sentinels who is the primary. One call takes 6.8s at most, with wait_replicas."""
        places = [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]
        sentinel = Sentinel(places, sentinel_kwargs=no_repeats(0.2, 0.4))
        client: redis.Redis = sentinel.master_for(
            "main", redis_class=_OfSentinels, username="app", password="app", **no_repeats(0.4, 0.8)
        )
        return client

    def epoch(self) -> int:
        """A number that grows by one with every failover, or by more, as far as any sentinel knows; 0 at first."""
        epochs = []
        for sentinel in self.sentinels:
            with redis.Redis("127.0.0.1", sentinel.port, socket_timeout=30, decode_responses=True) as watcher:
                epochs.append(int(_master(watcher)["config-epoch"]))
        return max(epochs)

    def settled(self, replicas: int) -> bool:
        """Whether the primary that the sentinels name is followed by so many."""
        primary, follow = self.named(), 0
        for server in (self.primary, *self.replicas):
            with suppress(redis.RedisError), self.admin(server) as node:
                told = node.info("replication")
                follow += told.get("master_port") == primary.port and told["master_link_status"] == "up"
        return follow == replicas

    def named(self) -> RedisServer:
        """The server that most of the sentinels name as the primary."""
        told = []
        for sentinel in self.sentinels:
            with redis.Redis("127.0.0.1", sentinel.port, socket_timeout=30, decode_responses=True) as watcher:
                told.append(int(watcher.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1]))
        port = max(told, key=told.count)
        return next(server for server in (self.primary, *self.replicas) if server.port == port)


class _OfSentinels(redis.Redis):
    def close(self) -> None:
        """Closes its way to the sentinels, too."""
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            sentinel.close()
        self.connection_pool.disconnect()


class Cluster:
    """Three primaries, each with a replica that takes its place when it is gone. Close it, and they are gone.

    Jobs of nodes that are left go on in the meantime: ``cluster-require-full-coverage`` is off.
    """

    def __init__(self, directory: Path, node_timeout_ms: int) -> None:
        options = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(node_timeout_ms),
            "cluster_require_full_coverage": "no",
            "cluster_replica_validity_factor": "0",
            "repl_diskless_sync_delay": "0",
            "appendonly": "no",
        }
        self.servers = [RedisServer(directory / f"node-{n}", **options) for n in range(6)]
        self.primaries, self.replicas = self.servers[:3], self.servers[3:]

    def start(self) -> Cluster:
        for server in self.servers:
            server.start()
        nodes = [self.admin(server) for server in self.servers]
        ids = [str(node.execute_command("CLUSTER", "MYID")) for node in nodes]
        for number, node in enumerate(nodes):
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(nodes[:3]):
            node.execute_command("CLUSTER", "ADDSLOTS", *range(16_384 * number // 3, 16_384 * (number + 1) // 3))
        for server in self.servers[1:]:
            nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        until(lambda: all(int(_cluster(node)["cluster_known_nodes"]) == 6 for node in nodes), "the nodes are all known")
        for primary, replica in zip(ids, nodes[3:]):
            _replicate(replica, primary)
        until(lambda: all(_cluster(node)["cluster_state"] == "ok" for node in nodes), "the cluster is up")
        until(lambda: all(_online(node) == 1 for node in nodes[:3]), "every primary has its replica")
        until(lambda: all(_follows(node) for node in nodes[3:]), "every replica has all that its primary has")
        with self.client() as client:
            until(lambda: len(client.get_replicas()) == 3 or client.nodes_manager.initialize(), "the map is whole")
        for node in nodes:
            node.close()
        return self

    def close(self) -> None:
        for server in self.servers:
            server.kill()

    @staticmethod
    def admin(server: RedisServer) -> redis.Redis:
        return redis.Redis("127.0.0.1", server.port, socket_timeout=30, decode_responses=True)

    def client(self) -> RedisCluster:
        """A client of the cluster. One call takes 5.4s at most, with wait_replicas."""
        told: dict[str, Any] = no_repeats(0.5, 1)
        if redis.VERSION[0] < 6:
            told = {**told, "retry": None, "cluster_error_retry_attempts": 0}
        return RedisCluster("127.0.0.1", self.servers[-1].port, **told)

    def epoch(self) -> int:
        """A number that grows by one with every failover, or by more, as far as the first and the last node know."""
        epochs = []
        for server in (self.primaries[0], self.primaries[2]):
            with self.admin(server) as node:
                epochs.append(int(_cluster(node)["cluster_current_epoch"]))
        return max(epochs)

    @staticmethod
    def slot_of(job: str) -> int:
        return int(key_slot(job.encode()))

    def job_on(self, number: int, other: int = 0) -> str:
        """A job's name that belongs to this one of the three primaries; each of ``other`` is another one."""
        bounds = 16_384 * number // 3, 16_384 * (number + 1) // 3
        names = [name for name in (f"job-{n}" for n in range(100)) if bounds[0] <= self.slot_of(name) < bounds[1]]
        return names[other]


def _follows(replica: redis.Redis) -> bool:
    return bool(replica.info("replication")["master_link_status"] == "up")


def _online(node: redis.Redis) -> int:
    told = node.info("replication")
    return sum(1 for name, value in told.items() if name.startswith("slave") and "online" in str(value))


def _replicate(node: redis.Redis, primary_id: str) -> None:
    until(lambda: bool(node.execute_command("CLUSTER", "REPLICATE", primary_id)), "a node becomes a replica")


def _cluster(node: redis.Redis) -> dict[str, str]:
    told = node.execute_command("CLUSTER", "INFO")
    return told if isinstance(told, dict) else dict(line.split(":") for line in told.split())


def _master(sentinel: redis.Redis) -> dict[str, str]:
    told = sentinel.execute_command("SENTINEL", "MASTER", "main")
    return told if isinstance(told, dict) else dict(zip(told[::2], told[1::2]))


def _knows(sentinel: redis.Redis, others: int, replicas: int) -> bool:
    facts = _master(sentinel)
    return (int(facts["num-other-sentinels"]), int(facts["num-slaves"])) == (others, replicas)
