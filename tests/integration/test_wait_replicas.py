"""What ``wait_replicas`` makes of a call: it is relied on where a replica has it, and not where none has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from failover_asks import record, request
from servers import RedisServer
from topologies import Replicated, until

from anarchon import BackendError, RedisBackend
from anarchon.backends import redis_replicas
from anarchon.records import Outcome, Verdict


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    """A primary and a replica."""
    with closing(Replicated(tmp_path_factory.mktemp("replicated"), replicas=1)) as servers:
        yield servers.start()


class TestWaitReplicas:
    """What a call is worth while no replica answers."""

    @pytest.fixture
    def paused(self, servers: Replicated) -> Iterator[RedisServer]:
        """The replica, to be paused by the test, and resumed at its end at the latest."""
        [replica] = servers.replicas
        yield replica
        replica.resume()

    @pytest.fixture(autouse=True)
    def hasty_clients_wait_for_no_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wait_ms(client: redis.Redis) -> int:
            return 100 if client.connection_pool.connection_kwargs.get("client_name") == "hasty" else 30_000

        monkeypatch.setattr(redis_replicas, "_wait_ms", wait_ms)

    @pytest.fixture
    def make(self, servers: Replicated, prefix: str) -> Iterator[Callable[..., RedisBackend]]:
        backends: list[RedisBackend] = []

        def make(name: str = "patient", wait_replicas: int = 1) -> RedisBackend:
            url = f"{servers.url(servers.primary)}?socket_timeout=60&client_name={name}"
            backends.append(RedisBackend(url, prefix=prefix, wait_replicas=wait_replicas))
            return backends[-1]

        yield make
        for backend in backends:
            backend.close()

    @pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}])
    def test_a_run_goes_its_way_where_a_replica_follows(
        self, servers: Replicated, prefix: str, options: dict[str, Any]
    ) -> None:
        with redis.Redis.from_url(servers.url(servers.primary), socket_timeout=60, **options) as client:
            backend = RedisBackend(client=client, prefix=prefix, wait_replicas=1)
            asked = request(backend, "token")
            granted = backend.claim(asked)
            assert (granted.outcome, granted.attempt) == (Outcome.WON, 1)
            assert backend.heartbeat("sync", asked.run_id, "token", 30_000) is Verdict.OK
            assert backend.claim(request(backend, "other", slot_ms=asked.slot_ms)).outcome is Outcome.RUNNING
            assert backend.finish("sync", asked.run_id, "token", record(asked)) is Verdict.OK
            assert backend.heartbeat("sync", asked.run_id, "token", 30_000) is Verdict.FINISHED
            [kept] = backend.history("sync", 9)
            assert kept.fence == granted.fence

    def test_a_claim_that_no_replica_has_is_not_relied_on_and_its_repeat_is_the_same_attempt(
        self, servers: Replicated, make: Callable[..., RedisBackend], paused: RedisServer
    ) -> None:
        hasty, patient = make("hasty"), make()
        asked = request(patient, "token")
        paused.pause()
        with pytest.raises(BackendError, match="may lose the call: 0 of the 1 replicas that wait_replicas asks for"):
            hasty.claim(asked)
        # It is there all the same, as after any answer that was lost: in nobody else's hands, and for its lease only.
        [left] = patient.active("sync")
        assert (left.run_id, left.attempt) == (asked.run_id, 1)
        # Whoever lost has nothing to wait for.
        waited = waits(servers)
        assert hasty.claim(request(hasty, "other", slot_ms=asked.slot_ms)).outcome is Outcome.RUNNING
        assert waits(servers) == waited > 0
        paused.resume()
        again = patient.claim(asked)
        assert (again.outcome, again.attempt, again.fence) == (Outcome.WON, 1, left.fence)

    def test_a_renewal_and_an_end_that_no_replica_has_are_not_relied_on(
        self, make: Callable[..., RedisBackend], paused: RedisServer
    ) -> None:
        hasty, patient = make("hasty"), make()
        asked = request(patient, "token")
        assert patient.claim(asked).outcome is Outcome.WON
        paused.pause()
        with pytest.raises(BackendError, match="may lose the call"):
            hasty.heartbeat("sync", asked.run_id, "token", 30_000)
        # The second time it has ended already, and only WAIT is left to do; the third one waits as long as it takes.
        for _ in range(2):
            with pytest.raises(BackendError, match="may lose the call"):
                hasty.finish("sync", asked.run_id, "token", record(asked))
        paused.resume()
        assert patient.finish("sync", asked.run_id, "token", record(asked)) is Verdict.OK
        assert len(patient.history("sync", 9)) == 1

    def test_it_is_waited_for_what_this_very_call_has_written(
        self, servers: Replicated, paused: RedisServer, prefix: str
    ) -> None:
        """A pool hands out any of its connections, and one that was made anew has nothing to wait for.

        1. the claim is granted on connection A, and no replica has it
        2. WAIT is sent on B, of which the replica has all that it ever wrote: nothing (older servers may wait even so)
        3. were that believed, the claim would be
        """

        class Forgetful(redis.ConnectionPool):
            def release(self, connection: Any) -> None:
                connection.disconnect()
                super().release(connection)

        url = servers.url(servers.primary)
        pool = Forgetful.from_url(url, socket_timeout=60, client_name="hasty")
        paused.pause()
        with redis.Redis(connection_pool=pool) as client:
            backend = RedisBackend(client=client, prefix=prefix, wait_replicas=1)
            asked = request(backend, "token")
            for call in (
                lambda: backend.claim(asked),
                lambda: backend.heartbeat("sync", asked.run_id, "token", 30_000),
                lambda: backend.finish("sync", asked.run_id, "token", record(asked)),
                lambda: backend.finish("sync", asked.run_id, "token", record(asked)),
            ):
                with pytest.raises(BackendError, match="may lose the call"):
                    call()
        pool.disconnect()

    def test_without_wait_replicas_nothing_waits(self, make: Callable[..., RedisBackend], paused: RedisServer) -> None:
        backend = make(wait_replicas=0)
        paused.pause()
        assert backend.claim(request(backend, "token")).outcome is Outcome.WON

    def test_a_server_that_may_have_been_replaced_is_connected_to_anew(
        self, servers: Replicated, make: Callable[..., RedisBackend], paused: RedisServer
    ) -> None:
        """Its host's name, or Sentinel, may stand for another one by now."""
        with servers.admin(servers.primary) as primary, servers.admin(servers.replicas[0]) as replica:

            def connected(server: redis.Redis) -> bool:
                return any(client["name"] == "hasty" for client in server.client_list())

            backend = make("hasty")
            asked = request(backend, "token")
            assert connected(primary)
            paused.pause()
            with pytest.raises(BackendError, match="may lose the call"):
                backend.claim(asked)
            until(lambda: not connected(primary), "the connections are closed")
            paused.resume()

            url = f"{servers.url(servers.replicas[0])}?client_name=hasty&socket_timeout=60"
            with closing(RedisBackend(url)) as of_the_replica:
                of_the_replica.time("sync")
                assert connected(replica)
                with pytest.raises(BackendError, match="refused the call: .*read only replica"):
                    of_the_replica.claim(asked)
                until(lambda: not connected(replica), "the connections are closed")

    def test_a_worker_account_needs_one_more_right(self, servers: Replicated) -> None:
        page = Path(__file__).resolve().parents[2] / "docs" / "backends.rst"
        [account] = re.findall(r"ACL SETUSER (cron-worker .+)", page.read_text(encoding="utf-8"))
        url = servers.url(servers.primary).replace("app:app", "cron-worker:password")
        with servers.admin(servers.primary) as admin:
            admin.execute_command("ACL", "SETUSER", *account.split())
            with closing(RedisBackend(f"{url}?socket_timeout=60", prefix="billing:cron:", wait_replicas=1)) as backend:
                asked = request(backend, "token")
                with pytest.raises(BackendError, match="refused the call: .*wait"):
                    backend.claim(asked)
                admin.execute_command("ACL", "SETUSER", "cron-worker", "+wait")
                assert backend.claim(asked).outcome is Outcome.WON
                assert backend.finish("sync", asked.run_id, "token", record(asked)) is Verdict.OK

    def test_a_start_warns_where_there_are_fewer_replicas_than_are_waited_for(
        self, make: Callable[..., RedisBackend]
    ) -> None:
        assert make(wait_replicas=1).advice() == []
        [warning] = make(wait_replicas=2).advice()
        assert "has 1 replicas, and wait_replicas=2 waits for more" in warning


def waits(servers: Replicated) -> int:
    """How often the primary has been asked to wait."""
    with servers.admin(servers.primary) as primary:
        return int(primary.info("commandstats")["cmdstat_wait"]["calls"])
