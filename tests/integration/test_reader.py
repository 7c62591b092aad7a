"""A Redis account that may read and ask the time, and nothing else, will do for history, last_run and active."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import redis
from fleet import Fleet
from kept_of_fleet import changes, kept
from servers import RedisServer

from anarchon import BackendError, JobNotRegistered, Scheduler

pytestmark = pytest.mark.usefixtures("patient_redis")

RULES = ("on", ">look", "~*", "-@all", "+@read", "+time")


@pytest.fixture
def server(redis_server: Callable[..., RedisServer]) -> RedisServer:
    started = redis_server().start()
    with redis.Redis.from_url(started.url) as admin:
        admin.execute_command("ACL", "SETUSER", "reader", *RULES)
    return started


def test_a_reader_with_a_read_only_account_answers_history_last_run_and_active(
    server: RedisServer, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path / "fleet", server.url)
    try:
        fleet.start_all(["worker"], [{"name": "tick", "every": "1s"}, {"name": "long", "every": "1s", "lasts": [60]}])
        begun = fleet.wait_for(what="begin", job="long")[0]
        fleet.wait_for(2, what="success", job="tick")
        # So that whatever changes is the reader's doing.
        fleet.wait_until(lambda: paused_beside(fleet, "tick"), "the worker is paused, and no tick is going on")
        ask_all(fleet, server.url.replace("//", "//reader:look@"), begun["slot_ms"])
        with redis.Redis.from_url(server.url) as admin:
            assert admin.execute_command("ACL", "LOG") == []
    finally:
        fleet.close()


def paused_beside(fleet: Fleet, job: str) -> bool:
    """Pauses the worker, unless that is in the middle of a run of the job."""
    fleet.workers["worker"].pause()
    with closing(fleet.backend()) as backend:
        if not backend.active(job):
            return True
    fleet.workers["worker"].resume()
    return False


def ask_all(fleet: Fleet, url: str, long_slot_ms: int) -> None:
    before = kept(fleet)
    reader = Scheduler(url)
    try:
        records = reader.history("tick")
        assert len(records) >= 2
        assert {record.status for record in records} == {"success"}
        assert reader.last_run("tick") == records[0]
        [run] = reader.active("long")
        assert (run.run_id, run.attempt, run.instance_id) == (str(long_slot_ms), 1, "worker")
        assert 0 < run.lease_left <= 30
        assert reader.active("tick") == []
        assert (reader.history("unheard-of"), reader.last_run("unheard-of")) == ([], None)
        assert reader.jobs() == []
        with pytest.raises(JobNotRegistered):
            reader.next_run("tick")
        with pytest.raises(JobNotRegistered):
            reader.run_now("tick")
    finally:
        assert reader.stop() is True
    assert changes(before, kept(fleet)) == set()


def test_the_account_that_readers_are_tried_with_cannot_write(server: RedisServer) -> None:
    reader = Scheduler(server.url.replace("//", "//reader:look@"))
    try:
        with pytest.raises(BackendError, match="refused the call"):
            reader.forget("tick")
    finally:
        reader.stop()
