"""What the log says, once, of a store that may lose what decides."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from servers import RedisServer

from anarchon import Event, LeaseBackend, MemoryBackend, RedisBackend, Scheduler

# Whatever a busy machine does, no call of these fails for the time that it takes.
pytestmark = pytest.mark.usefixtures("patient_redis")
LEASE = "10m"

Servers = Callable[..., RedisServer]


def started(backend: LeaseBackend) -> tuple[Scheduler, list[Event]]:
    """A scheduler that has asked its store for advice, and what went wrong."""
    asked = threading.Event()
    advice = backend.advice

    def ask() -> list[str]:
        try:
            return advice()
        finally:
            asked.set()

    backend.advice = ask  # type: ignore[method-assign]
    errors: list[Event] = []
    scheduler = Scheduler(backend, lease=LEASE).every("a", "1h", lambda: None).every("b", "1h", lambda: None)
    scheduler.on("error", errors.append).start()
    assert asked.wait(60)
    return scheduler, errors


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_start_warns_once_of_a_redis_that_evicts_any_key(
    policy: str, redis_server: Servers, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server().start("--maxmemory-policy", policy)
    scheduler, errors = started(RedisBackend(server.url, prefix=prefix))
    assert scheduler.stop()
    (warning,) = warnings(caplog)
    assert f"may evict any key (maxmemory-policy {policy})" in warning
    assert "noeviction" in warning
    assert errors == []


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
def test_a_start_says_nothing_of_a_redis_that_keeps_keys_without_a_time_to_live(
    policy: str, redis_server: Servers, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server().start("--maxmemory-policy", policy)
    scheduler, errors = started(RedisBackend(server.url, prefix=prefix))
    assert scheduler.stop()
    assert warnings(caplog) == [] and errors == []


def test_an_account_that_may_not_ask_is_no_error(
    redis_server: Servers, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server().start("--maxmemory-policy", "allkeys-lru")
    with redis.Redis.from_url(server.url) as admin:
        rights = "+@read +@write -@dangerous +eval +evalsha +time"
        admin.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", *rights.split())
    url = server.url.replace("redis://", "redis://worker:secret@")
    scheduler, errors = started(RedisBackend(url, prefix=prefix))
    assert scheduler.run_now("a").status == "success"
    assert scheduler.stop()
    assert warnings(caplog) == [] and errors == []


def test_advice_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(MemoryBackend):
        def advice(self) -> list[Any]:
            raise RuntimeError("no word")

    scheduler, errors = started(Mute())
    assert scheduler.stop()
    assert warnings(caplog) == [] and errors == []
