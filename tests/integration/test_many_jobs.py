"""A thousand jobs cost a thousand threads and a few, whatever the store and the other instances do; none is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, Line, only
from servers import RedisServer

JOBS = 1_000

# Those that ask the store, the one that keeps the alarms, and as many again for what starts and ends.
FEW = 30

# Renewed as seldom as may be: it is threads that are counted here.
JOB: Line = {"name": "job", "copies": JOBS, "every": "4s", "jitter": "1s", "lease": "10s", "heartbeat": "3s"}

# For what is done in seconds where nothing else goes on: two processes that do a thousand things a second are a lot of
# work for a busy machine.
PATIENCE_S = 150


@pytest.mark.timeout(600)
def test_a_thousand_jobs_take_a_thousand_threads_and_a_few(
    redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = redis_server(appendfsync="no").start()
    fleet = Fleet(tmp_path / "fleet", server.url)
    try:
        watch_others(fleet, server)
    finally:
        fleet.close()


def watch_others(fleet: Fleet, server: RedisServer) -> None:
    fleet.start_all(["busy"], [{**JOB, "lasts": [600]}])
    fleet.wait_for(JOBS, PATIENCE_S, what="begin")
    fleet.start_all(["watcher"], [JOB])
    # A slot of every job comes due meanwhile, and is lost to the run that the other one has not ended.
    assert_few(most_threads(fleet, "others run them all", 5))
    fleet.wait_for(JOBS, PATIENCE_S, what="skip", worker="watcher", reason="overlap")

    fleet.workers["busy"].kill()
    server.stop()
    assert_few(most_threads(fleet, "the store is away", 5))
    # Each has come due again, before the store could be asked for the slot before.
    fleet.wait_for(JOBS, PATIENCE_S, what="skip", worker="watcher", reason="late")
    assert_few(most_threads(fleet, "the store is still away", 0.5))
    server.start()
    fleet.wait_until(lambda: len(begun(fleet, "watcher")) == JOBS, "the watcher has run every job", PATIENCE_S)

    watcher = fleet.workers["watcher"]
    watcher.terminate()
    assert watcher.wait() == 0
    stopped = only(fleet.lines(what="stopped", worker="watcher"))
    assert stopped["in_time"] is True
    assert stopped["threads"] == []


def begun(fleet: Fleet, worker: str) -> set[str]:
    return {line["job"] for line in fleet.lines(what="begin", worker=worker)}


def most_threads(fleet: Fleet, label: str, seconds: float) -> Line:
    fleet.workers["watcher"].ask("most_threads", label=label, least=JOBS, seconds=seconds)
    return only(fleet.wait_for(1, PATIENCE_S, what="most_threads", label=label))


def assert_few(told: Line) -> None:
    print(f"{told['label']}: {told['count']} threads for {JOBS} jobs")
    assert told["count"] <= JOBS + FEW, told
