"""A thousand jobs cost a few threads, whatever the store and the other instances do; none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from fleet import Fleet, Line, only
from servers import RedisServer

JOBS = 1_000

# Those that ask the store, the ones that keep the timers and the alarms, and as many again for what starts and ends.
FEW = 30

# Leased for long, and so renewed seldom: it is threads that are counted here, and a lost lease would begin a run.
JOB: Line = {"name": "job", "copies": JOBS, "every": "4s", "jitter": "500ms", "lease": "60s", "heartbeat": "10s"}

# Runs each once, at once, and asks for no more than that while it still has to begin some of them.
BUSY: Line = {**JOB, "every": "1h", "catch_up": "1h", "lasts": [600]}

# In such a time a slot of every job comes due.
ALL_DUE_S = 5

# For what is done in seconds where nothing else goes on: two processes that do a thousand things a second are a lot of
# work for a busy machine.
PATIENCE_S = 150


@pytest.mark.timeout(600)
def test_a_thousand_jobs_take_a_few_threads(redis_server: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = redis_server(appendfsync="no").start()
    fleet = Fleet(tmp_path / "fleet", server.url)
    try:
        watch_others(fleet, server)
    finally:
        fleet.close()


def watch_others(fleet: Fleet, server: RedisServer) -> None:
    fleet.start("watcher")
    fleet.start_all(["busy"], [BUSY])
    fleet.wait_for(JOBS, PATIENCE_S, what="begin")
    fleet.wait_for(what="ready", worker="watcher")
    fleet.workers["watcher"].ask("add", **JOB)
    with few_threads(fleet, "others run them all", ALL_DUE_S):
        # Every job is lost to the run that the other one has not ended.
        fleet.wait_for(JOBS, PATIENCE_S, what="skip", worker="watcher", reason="overlap")

    fleet.workers["busy"].kill()
    server.stop()
    with few_threads(fleet, "the store is away", ALL_DUE_S):
        # Each has come due again, before the store could be asked for the slot before.
        fleet.wait_for(JOBS, PATIENCE_S, what="skip", worker="watcher", reason="late")
    with few_threads(fleet, "the store is still away", 0.5):
        pass
    server.start()
    with redis.Redis.from_url(server.url, socket_timeout=30) as client:
        client.flushall()  # The leases of the one that was killed are not what is waited for here.
    fleet.wait_until(lambda: len(begun(fleet, "watcher")) == JOBS, "the watcher has run every job", PATIENCE_S)

    watcher = fleet.workers["watcher"]
    watcher.terminate()
    assert watcher.wait() == 0
    stopped = only(fleet.lines(what="stopped", worker="watcher"))
    assert stopped["in_time"] is True
    assert stopped["threads"] == []


def begun(fleet: Fleet, worker: str) -> set[str]:
    return {line["job"] for line in fleet.lines(what="begin", worker=worker)}


@contextmanager
def few_threads(fleet: Fleet, label: str, seconds: float) -> Iterator[None]:
    """From here on for so long the watcher has but few threads."""
    fleet.workers["watcher"].ask("most_threads", label=label, least=1, seconds=seconds)
    yield
    told = only(fleet.wait_for(1, PATIENCE_S, what="most_threads", label=label))
    print(f"{label}: {told['count']} threads for {JOBS} jobs")
    assert told["count"] <= FEW, told
