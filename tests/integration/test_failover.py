"""A primary is lost and a replica takes its place: the schedule goes on by itself, and what may be lost is known."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from redis.cluster import RedisCluster
from servers import RedisServer
from topologies import DOWN_AFTER_MS, Cluster, Replicated, Watched, until

from anarchon import BackendError, RedisBackend, Scheduler
from anarchon.backends import redis_replicas
from anarchon.backends.redis import KEYS
from anarchon.durations import from_ms
from anarchon.records import ClaimRequest, Mode, Outcome, RunRecord, Verdict
from anarchon.testing import Ran, RunLog

Answer = TypeVar("Answer")

# What one call of these clients may take, three times over.
LEASE = "30s"


def request(backend: RedisBackend, token: str, job: str = "sync", slot_ms: int | None = None) -> ClaimRequest:
    slot_ms = backend.time(job) if slot_ms is None else slot_ms
    return ClaimRequest(
        job, slot_ms, str(slot_ms), token, "host", 30_000, "allow", 3, 60_000, Mode.START, "scheduled", 10_000
    )


def record(asked: ClaimRequest) -> RunRecord:
    times = from_ms(asked.slot_ms), from_ms(asked.slot_ms)
    return RunRecord(asked.job, times[0], asked.run_id, 1, "scheduled", "success", "host", 1, *times, 0.0)


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


@pytest.mark.timeout(600)
def test_the_schedule_goes_on_by_itself_when_a_primary_is_lost(tmp_path: Path) -> None:
    """Under Sentinel and in a cluster, at once: most of it is waiting."""
    side_by_side(lambda: under_sentinel(tmp_path / "sentinel"), lambda: in_a_cluster(tmp_path / "cluster"))


def under_sentinel(directory: Path) -> None:
    """The primary is cut off and goes on answering its clients; then the next one is killed."""
    with closing(Watched(directory, replicas=3)) as servers:
        servers.start()
        log = RunLog(directory / "runs")
        with ExitStack() as stack:
            clients = [stack.enter_context(closing(servers.client())) for _ in range(3)]
            with running(log, clients, ["tick"], wait_replicas=1):
                wait_for_runs(log, "tick", 3)
                for lose, replicas in ((servers.cut_off, 3), (RedisServer.kill, 2)):
                    # Not while the sentinels are replacing it already, as they may where it was held up for too long.
                    until(lambda: servers.settled(replicas), "the replicas follow the primary")  # noqa: B023
                    lost = servers.named()
                    lose(lost)
                    gone_ms = now_ms()
                    until(lambda: servers.named() is not lost, "another primary is named")  # noqa: B023
                    if lose == servers.cut_off:
                        two_primaries_hold_one_slot(servers, lost)
                    back = wait_for_runs(log, "tick", 3, since_ms=gone_ms)
                    print(f"under Sentinel, {lose.__name__}: {outage_ms(log, 'tick', gone_ms)} ms without a run")
                    assert len(back) >= 3
            # Whatever was relied on, a replica had it, and one of those that had all of it was promoted. Not so where a
            # busy machine made the sentinels replace a primary that was well: it goes on for a moment, and a replica
            # that is not the one promoted still acknowledges what it writes.
            if servers.epoch() <= 2:
                print("under Sentinel, the two failovers and no other: every run is asked for")
                assert beyond_their_attempts(log, "tick") == []
                # Asked anew, for a client that only reads stays with a primary that was cut off.
                newest = RedisBackend(client=stack.enter_context(closing(servers.client())))
                told = patiently(lambda: newest.history("tick", 10_000))
                records = {(kept.slot, kept.attempt) for kept in told}
                assert [ran for ran in log.read() if (ran.slot, ran.attempt) not in records] == []


def two_primaries_hold_one_slot(servers: Watched, old: RedisServer) -> None:
    """The one that was replaced does not know of it.

    1. the old primary is cut off from the others; whoever is connected to it goes on asking it
    2. the sentinels have a replica promoted; whoever asks them is led there
    3. each of the two grants the slot
    4. with ``wait_replicas`` the old one's grant is not relied on; with ``min-replicas-to-write`` it gives none
    """
    url = servers.url(old)
    with (
        closing(RedisBackend(url, prefix="two:")) as of_old,
        closing(RedisBackend(f"{url}?socket_timeout=0.6", prefix="two:", wait_replicas=1)) as wary,
        closing(servers.client()) as client,
    ):
        of_new = RedisBackend(client=client, prefix="two:")
        slot_ms = patiently(lambda: of_old.time("sync"))
        until(lambda: granted(of_old, request(of_old, "a", slot_ms=slot_ms)), "the old one grants it")
        until(lambda: granted(of_new, request(of_new, "b", slot_ms=slot_ms)), "the new one grants it")
        is_not_relied_on(lambda: wary.claim(request(wary, "c", "other")))
        with servers.admin(old) as admin:
            admin.config_set("min-replicas-to-write", 1)
        is_not_relied_on(lambda: of_old.claim(request(of_old, "d", "another")), "ot enough good replicas")


def is_not_relied_on(call: Callable[[], object], why: str = "may lose the call: 0 of the 1 replicas") -> None:
    """It fails, and says why; on a busy machine it may fail for another reason first."""

    def told() -> bool:
        with pytest.raises(BackendError) as caught:
            call()
        return why in str(caught.value)

    until(told, why)


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Asks until there is an answer: these clients give up after a second, and a busy machine may take longer."""
    answers: list[Answer] = []
    until(lambda: answers.append(ask()) is None, "an answer")
    return answers[0]


def granted(backend: RedisBackend, asked: ClaimRequest) -> bool:
    try:
        return backend.claim(asked).outcome is Outcome.WON
    except BackendError:
        return False


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


def finished(backend: RedisBackend, asked: ClaimRequest) -> bool:
    try:
        return backend.finish(asked.job, asked.run_id, asked.token, record(asked)) is Verdict.OK
    except BackendError:
        return False


# -- schedulers of this process, each with a client of its own, and what their handlers wrote down


@contextmanager
def running(log: RunLog, clients: Iterable[Any], jobs: Iterable[str], **options: Any) -> Iterator[None]:
    jobs = list(jobs)
    schedulers = []
    for number, client in enumerate(clients):
        backend = RedisBackend(client=client, **options)
        scheduler = Scheduler(backend, instance_id=f"host-{number}", around_run=log.around_run, jitter="100ms")
        for job in jobs:
            scheduler.every(job, "1s", lambda: None, lease=LEASE, history_limit=10_000)
        schedulers.append(scheduler)
    try:
        for scheduler in schedulers:
            scheduler.start()
        yield
    finally:
        in_time = [scheduler.stop(timeout="60s") for scheduler in schedulers]
    assert all(in_time)


def begun(log: RunLog, job: str, since_ms: int = 0) -> list[Ran]:
    """The runs of slots that came after this instant."""
    try:
        return [ran for ran in log.read() if ran.job == job and _ms(ran.slot) > since_ms]
    except FileNotFoundError:
        return []


def wait_for_runs(log: RunLog, job: str, count: int, since_ms: int = 0) -> list[Ran]:
    until(lambda: len(begun(log, job, since_ms)) >= count, f"{count} runs of {job}")
    return begun(log, job, since_ms)


def outage_ms(log: RunLog, job: str, gone_ms: int) -> int:
    return min(_ms(ran.started_at) for ran in begun(log, job, gone_ms)) - gone_ms


def beyond_their_attempts(log: RunLog, job: str, since_ms: int = 0) -> list[tuple[datetime, int]]:
    """Slots of which an attempt began more than once."""
    counts = Counter((ran.slot, ran.attempt) for ran in begun(log, job, since_ms))
    return [which for which, count in counts.items() if count > 1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms(instant: datetime) -> int:
    return round((instant - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1000)


def side_by_side(*scenarios: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def play(scenario: Callable[[], None]) -> None:
        try:
            scenario()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=play, args=(scenario,)) for scenario in scenarios]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


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
