"""Under Sentinel a primary is lost, and then the one that took its place."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from failover_asks import granted, is_not_relied_on, patiently, request
from failover_runs import beyond_their_attempts, now_ms, outage_ms, running, wait_for_runs
from servers import RedisServer
from topologies import Watched, until

from anarchon import RedisBackend
from anarchon.testing import RunLog

__all__ = ["under_sentinel"]


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
