"""A wrong or unreachable store is named by host and port; its password stands in no error, event, log or text."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import pytest
from servers import RedisServer, free_port

from anarchon import BackendError, ConfigurationError, Event, Scheduler

# Signs that mean something in a URL, so that it is written in one way and known in another.
PASSWORD, WRITTEN = "pa$$/w:rd@1", "pa$$%2Fw%3Ard%401"


def assert_silent(password_in: str) -> None:
    for secret in (PASSWORD, WRITTEN, PASSWORD[:5], "rd@1", "rd%401"):
        assert secret not in password_in


def everything_about(error: BaseException) -> str:
    """All that a traceback, a log or a debugger shows of an error and what caused it."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None:
        links.append(link)
        link = link.__cause__ or link.__context__
    return "\n".join([*traceback.format_exception(error), *(f"{each} {each!r} {each.__dict__}" for each in links)])


@pytest.mark.parametrize("start", ["redis://", "rediss://"])
def test_a_store_that_cannot_be_reached_is_named_by_host_and_port_and_never_by_password(
    start: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with caplog.at_level(logging.DEBUG):
        told = fail_in_every_way(f"{start}someone:{WRITTEN}@127.0.0.1:{port}/0")
    assert f"127.0.0.1:{port}" in told
    assert f"127.0.0.1:{port}" in caplog.text
    assert_silent(told)
    assert_silent(caplog.text)


def test_a_host_that_does_not_exist_is_named_and_the_password_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        told = fail_in_every_way(f"redis://:{WRITTEN}@no-such-host.invalid:6379/0")
    assert "no-such-host.invalid:6379" in told
    assert_silent(told)
    assert_silent(caplog.text)


def test_a_password_that_is_refused_is_not_told(
    redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = redis_server(requirepass="another").start()
    with caplog.at_level(logging.DEBUG):
        told = fail_in_every_way(f"redis://:{WRITTEN}@127.0.0.1:{server.port}/0")
    assert f"127.0.0.1:{server.port}" in told
    assert_silent(told)
    assert_silent(caplog.text)


def fail_in_every_way(url: str) -> str:
    """All that is told by a scheduler whose store is not there: results, events, texts of itself."""
    scheduler = Scheduler(url, log=True, lease="3s")
    events: list[Event] = []
    scheduler.on("error", events.append)
    scheduler.every("tick", "1h", lambda: None, catch_up="1h", jitter=0)
    told = [repr(scheduler)]
    for ask in (lambda: scheduler.run_now("tick"), lambda: scheduler.history("tick"), lambda: scheduler.active("tick")):
        with pytest.raises(BackendError) as raised:
            ask()
        told.append(everything_about(raised.value))
    scheduler.stop()
    assert {event.operation for event in events} >= {"claim", "history", "active"}
    for event in events:
        assert event.exception is not None
        told += [repr(event), everything_about(event.exception)]
    return "\n".join(told)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://someone:{WRITTEN}@host:port/0",
        f"redis://someone:{WRITTEN}@host:99999/0",
        f"redis://someone:{PASSWORD}@host:6379/0",
        f"redis://someone:{WRITTEN}@host:6379/zero",
        f"redis://someone:{WRITTEN}@host:6379/0?socket_timeout=soon",
        f"redis://someone:{WRITTEN}@host:6379/0?unheard_of=1",
        f"postgres://someone:{WRITTEN}@host/db",
        f"redis:someone:{WRITTEN}@host",
        f"memory://someone:{WRITTEN}@host",
        f"sqlite://someone:{WRITTEN}@host/db",
    ],
)
def test_a_wrong_url_is_refused_at_once_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Scheduler(url)
    assert_silent(everything_about(raised.value))
