"""The accounts that docs/backends.rst gives to readers and workers are enough, on a real server, and no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from servers import RedisServer

from anarchon import BackendError, RedisBackend, Scheduler

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backends.rst"
PREFIX = "billing:cron:"

pytestmark = pytest.mark.usefixtures("patient_redis")


def backend_of(account: str, server: RedisServer) -> RedisBackend:
    """Makes the account by the page's own line, and a backend that logs in with it."""
    [line] = re.findall(rf"ACL SETUSER ({account} .+)", PAGE.read_text(encoding="utf-8"))
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", *line.split())
    return RedisBackend(server.url.replace("redis://", f"redis://{account}:password@"), prefix=PREFIX)


def test_a_worker_account_runs_jobs_and_a_reader_account_reads_them(
    redis_server: Callable[..., RedisServer],
) -> None:
    server = redis_server().start()
    worker = Scheduler(backend=backend_of("cron-worker", server)).every("sync", "10s", lambda: None, lease="10m")
    reader = Scheduler(backend=backend_of("cron-reader", server))
    try:
        assert worker.run_now("sync").status == "success"
        assert [record.status for record in reader.history("sync")] == ["success"]
        assert reader.last_run("sync") == worker.last_run("sync")
        assert reader.active("sync") == []
        with pytest.raises(BackendError):
            reader.forget("sync")
        assert worker.run_now("sync").fence > reader.history("sync")[-1].fence
    finally:
        worker.stop()
        reader.stop()
