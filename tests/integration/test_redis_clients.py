"""The clients that RedisBackend takes: its own, the user's of each kind, and what becomes of them in a child."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel
from servers import RedisServer

from anarchon.backends.redis import RedisBackend
from anarchon.durations import from_ms
from anarchon.errors import BackendError, ConfigurationError
from anarchon.records import ClaimRequest, Mode, Outcome, RunRecord, Verdict

pytestmark = pytest.mark.usefixtures("patient_redis")

RECORD = RunRecord("sync", from_ms(1), "run", 1, "scheduled", "success", "host", 1, from_ms(2), from_ms(3), 0.001)


def times(connect_s: float = 10, read_s: float = 20, **options: Any) -> dict[str, Any]:
    return {"socket_connect_timeout": connect_s, "socket_timeout": read_s, "retry": Retry(NoBackoff(), 0), **options}


def whole_run(backend: RedisBackend, job: str = "sync") -> None:
    """One run from claim to history, and every other call on the way."""
    slot_ms = backend.time(job)
    run_id = str(slot_ms)
    asked = ClaimRequest(job, slot_ms, run_id, "token", "höst", 30_000, "skip", 3, 60_000, Mode.START, "scheduled", 200)
    assert backend.claim(asked).outcome is Outcome.WON
    other = backend.claim(dataclasses.replace(asked, token="other"))
    assert other.holder is not None and other.holder.instance_id == "höst"
    assert backend.heartbeat(job, run_id, "token", 30_000) is Verdict.OK
    assert [run.instance_id for run in backend.active(job)] == ["höst"]
    record = dataclasses.replace(RECORD, job=job, run_id=run_id)
    assert backend.release(job, run_id, "token", record, False) is Verdict.OK
    assert backend.claim(dataclasses.replace(asked, token="other")).attempt == 2
    assert backend.finish(job, run_id, "other", record) is Verdict.OK
    backend.save_result(job, dataclasses.replace(RECORD, job=job, error="é"))
    assert [found.attempt for found in backend.history(job, 9)] == [2, 1, 1]
    backend.forget(job)
    assert backend.history(job, 9) == []


class TestOwn:
    def test_a_server_that_refuses_writes_for_a_while_uses_up_no_connections(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        """After each refusal the connections are closed, so that Sentinel or the host's name is asked anew."""
        server = redis_server().start()
        backend = RedisBackend(f"{server.url}?max_connections=2")
        with redis.Redis.from_url(server.url, socket_timeout=30) as client:
            whole_run(backend)
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            for _ in range(10):
                with pytest.raises(BackendError, match="read only replica"):
                    whole_run(backend)
            client.execute_command("REPLICAOF", "NO", "ONE")
        whole_run(backend)
        backend.close()

    def test_few_connections_are_enough_for_many_threads_and_what_is_read_beside_them(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        backend = RedisBackend(f"{server.url}?max_connections=2")
        asking = [threading.Thread(target=whole_run, args=(backend, f"job-{number}")) for number in range(2)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        whole_run(backend)
        backend.close()

    def test_a_backend_that_was_closed_connects_again_at_its_next_call(self, redis_url: str, prefix: str) -> None:
        backend = RedisBackend(redis_url, prefix=prefix)
        backend.close()
        for _ in range(2):
            whole_run(backend)
            backend.close()
            backend.close()

    def test_a_bound_that_comes_later_is_kept_by_the_next_call(self, redis_server: Callable[..., RedisServer]) -> None:
        server = redis_server().start()
        backend = RedisBackend(f"{server.url}?socket_connect_timeout=100&socket_timeout=100")
        backend.time("sync")
        backend.bound_calls(300)
        server.pause()
        started = time.monotonic()
        with pytest.raises(BackendError):
            backend.time("sync")
        assert time.monotonic() - started < 50
        backend.close()

    def test_a_socket_in_the_file_system_serves_as_well(
        self, redis_server: Callable[..., RedisServer], tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        path = tmp_path_factory.mktemp("s") / "redis.sock"
        server = redis_server(unixsocket=str(path)).start()
        backend = RedisBackend(f"unix://{path}?db=2")
        whole_run(backend)
        server.stop()
        with pytest.raises(BackendError, match=f"could not reach Redis at {path}: "):
            backend.time("sync")
        backend.close()


class TestGiven:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"decode_responses": True},
            {"protocol": 3},
            {"protocol": 3, "decode_responses": True},
            {"encoding": "latin-1", "decode_responses": True},
            {"single_connection_client": True},
        ],
    )
    def test_a_client_of_any_make_serves_and_is_left_open(
        self, redis_url: str, prefix: str, options: dict[str, Any]
    ) -> None:
        with redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 0), **options) as client:
            backend = RedisBackend(client=client, prefix=prefix)
            backend.bound_calls(100_000)
            whole_run(backend)
            assert backend.clock_of("sync") is None
            backend.close()
            connected = client.client_id()
            whole_run(backend)
            assert client.client_id() == connected

    def test_a_record_of_odd_bytes_does_not_trouble_a_client_that_decodes(self, redis_url: str, prefix: str) -> None:
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            backend = RedisBackend(client=client, prefix=prefix)
            backend.save_result("sync", RECORD)
            client.zadd(f"{prefix}{{sync}}:history", {b"\xff": 9})
            client.hset(f"{prefix}{{sync}}:records", b"\xff", b"\xff")  # type: ignore[arg-type]
            assert backend.history("sync", 9) == [RECORD]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """A cluster of two nodes, each serving half of the slots."""
    directory = tmp_path_factory.mktemp("cluster")
    servers = [RedisServer(directory / name, cluster_enabled="yes", appendonly="no") for name in ("one", "two")]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        join(servers)
        yield servers


def join(servers: list[RedisServer]) -> None:
    with ExitStack() as stack:
        nodes = [stack.enter_context(redis.Redis("127.0.0.1", server.port)) for server in servers]
        for node, slots in zip(nodes, (range(8_192), range(8_192, 16_384))):
            node.execute_command("CLUSTER", "ADDSLOTS", *slots)
        nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", servers[1].port)
        deadline = time.monotonic() + 60
        # A node does not tell when it has found the other; it has to be asked.
        while not all(node.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)


# Each on another of the two nodes.
ON_BOTH_NODES = ("job-1", "job-2")


def cluster_client(servers: list[RedisServer], **options: Any) -> RedisCluster:
    no_repeats: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
    if redis.VERSION[0] < 6:
        no_repeats = {"cluster_error_retry_attempts": 0}
    told = {"socket_connect_timeout": 10, "socket_timeout": 20, **no_repeats, **options}
    return RedisCluster("127.0.0.1", servers[0].port, **told)


class TestCluster:
    def test_every_call_of_a_job_is_served_by_the_node_that_has_it(
        self, cluster: list[RedisServer], prefix: str
    ) -> None:
        client = cluster_client(cluster)
        backend = RedisBackend(client=client, prefix=prefix)
        for job in ON_BOTH_NODES:
            whole_run(backend, job)
        assert {backend.clock_of(job) for job in ON_BOTH_NODES} == {f"127.0.0.1:{server.port}" for server in cluster}
        client.close()

    def test_a_node_that_forgot_the_scripts_gets_them_again(self, cluster: list[RedisServer], prefix: str) -> None:
        client = cluster_client(cluster)
        backend = RedisBackend(client=client, prefix=prefix)
        for job in ON_BOTH_NODES:
            whole_run(backend, job)
        with redis.Redis("127.0.0.1", cluster[1].port) as node:
            node.script_flush()
        for job in ON_BOTH_NODES:
            whole_run(backend, job)
        client.close()

    def test_its_longest_call_counts_the_cluster_map_and_its_repeats(self, cluster: list[RedisServer]) -> None:
        client = cluster_client(cluster)
        backend = RedisBackend(client=client)
        backend.bound_calls(60_000)
        with pytest.raises(ConfigurationError, match="cluster 127.0.0.1:.* may take 1m .*Build it so: RedisCluster"):
            backend.bound_calls(59_999)
        client.close()
        repeating = RedisCluster("127.0.0.1", cluster[0].port, socket_connect_timeout=10, socket_timeout=20)
        with pytest.raises(ConfigurationError, match=r"\d tries x 2 "):
            RedisBackend(client=repeating).bound_calls(200_000)
        repeating.close()

    def test_a_child_gets_a_cluster_client_of_its_own(self, cluster: list[RedisServer], prefix: str) -> None:
        child = in_a_child(
            f"""
            from redis.cluster import RedisCluster
            client = RedisCluster("127.0.0.1", {cluster[0].port}, socket_connect_timeout=10, socket_timeout=20)
            backend = RedisBackend(client=client, prefix={prefix!r})
            pools = [node.redis_connection.connection_pool for node in client.get_nodes()]
            locks = [client._lock, client.nodes_manager._lock]
            """
        )
        assert child.returncode == 0, child.stderr


class TestSentinel:
    def test_the_master_that_the_sentinels_name_serves(self, tmp_path: Path, prefix: str) -> None:
        with sentinel_of(tmp_path) as (sentinel, _):
            client = sentinel.master_for("main", **times())
            backend = RedisBackend(client=client, prefix=prefix)
            backend.bound_calls(60_000)
            whole_run(backend)
            client.close()

    def test_a_master_that_is_away_is_told_with_the_sentinels(self, tmp_path: Path, prefix: str) -> None:
        with sentinel_of(tmp_path) as (sentinel, servers):
            client = sentinel.master_for("main", **times(password="hush-hush"))
            backend = RedisBackend(client=client, prefix=prefix)
            servers[1].kill()
            with pytest.raises(BackendError, match="could not reach Redis at main of sentinels 127.0.0.1:") as caught:
                backend.time("sync")
            assert "hush" not in str(caught.value)
            client.close()

    def test_a_child_gets_a_sentinel_client_of_its_own(self, tmp_path: Path, prefix: str) -> None:
        with sentinel_of(tmp_path) as (_, servers):
            child = in_a_child(
                f"""
                from redis.sentinel import Sentinel
                sentinel = Sentinel([("127.0.0.1", {servers[1].port})], socket_timeout=20, socket_connect_timeout=10)
                client = sentinel.master_for("main", socket_timeout=20, socket_connect_timeout=10)
                backend = RedisBackend(client=client, prefix={prefix!r})
                pools = [client.connection_pool, sentinel.sentinels[0].connection_pool]
                locks = []
                """
            )
        assert child.returncode == 0, child.stderr


class TestFork:
    """A child must answer although another thread of the parent held every lock of its pools at the fork."""

    def test_a_child_gets_a_client_of_its_own(self, redis_url: str, prefix: str) -> None:
        child = in_a_child(
            f"""
            backend = RedisBackend({redis_url!r}, prefix={prefix!r})
            backend.time("sync")
            pools = [backend._source._clients[0].connection_pool]
            locks = []
            """
        )
        assert child.returncode == 0, child.stderr

    @pytest.mark.parametrize("kind", ["ConnectionPool", "BlockingConnectionPool"])
    def test_a_child_gets_a_client_like_the_given_one(self, redis_url: str, prefix: str, kind: str) -> None:
        child = in_a_child(
            f"""
            pool = redis.{kind}.from_url({redis_url!r}, socket_timeout=20, socket_connect_timeout=10, max_connections=7)
            client = redis.Redis(connection_pool=pool)
            backend = RedisBackend(client=client, prefix={prefix!r})
            pools = [pool]
            locks = []
            """
        )
        assert child.returncode == 0, child.stderr


IN_A_CHILD = """
import os, signal, sys, threading, warnings
from contextlib import ExitStack
import redis
from anarchon.backends.redis import RedisBackend

warnings.simplefilter("ignore")  # that a process with threads forks is the point
{setup}
before = backend.time("sync")

held, done = threading.Event(), threading.Event()
def hold():
    with ExitStack() as stack:
        for lock in [getattr(pool, "_lock", None) or pool.pool.mutex for pool in pools] + locks:
            stack.enter_context(lock)
        held.set()
        done.wait()
holder = threading.Thread(target=hold)
holder.start()
assert held.wait(60)

child = os.fork()
if child == 0:
    signal.alarm(60)  # hanging would kill it
    after = [backend.time("sync"), backend.history("sync", 1), backend.active("sync")]
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if backend.time("sync") >= before else 3)
    backend.close()
    os._exit(0 if after[0] >= before and os.waitpid(grandchild, 0)[1] == 0 else 4)
_, status = os.waitpid(child, 0)
done.set()
holder.join()
assert backend.time("sync") >= before  # the parent's connections are unharmed
backend.close()
sys.exit(os.waitstatus_to_exitcode(status) and 1)
"""


def in_a_child(setup: str) -> subprocess.CompletedProcess[str]:
    """Makes a backend, forks with its pools' locks held, and asks again in the child and in the child's child."""
    from textwrap import dedent

    code = IN_A_CHILD.format(setup=dedent(setup))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)


@contextmanager
def sentinel_of(directory: Path) -> Iterator[tuple[Sentinel, list[RedisServer]]]:
    """A server, and a sentinel that watches it as ``main``."""
    with ExitStack() as stack:
        master = RedisServer(directory / "master")
        stack.callback(master.kill)
        watches = f"monitor main 127.0.0.1 {master.start().port} 1"
        none = dict.fromkeys(("save", "appendonly", "appendfsync"))
        watcher = RedisServer(directory / "sentinel", ready="+monitor master main", sentinel=watches, **none)
        stack.callback(watcher.kill)
        sentinel = Sentinel([("127.0.0.1", watcher.start("--sentinel").port)], sentinel_kwargs=times())
        stack.callback(sentinel.sentinels[0].close)
        yield sentinel, [master, watcher]
