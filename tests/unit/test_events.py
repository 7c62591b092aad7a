"""Events: who is told, in which order, and that nobody who listens can harm a run."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from anarchon import ConfigurationError, Event, MemoryBackend, RunRecord, Scheduler
from anarchon.events import EVENT_TYPES, Events, describe

SLOT = datetime(2026, 3, 1, 8, 0, tzinfo=timezone.utc)


class Textless(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def event(type: str = "start", **fields: Any) -> Event:
    return Event(type, "sync", "host-1", **{"slot": SLOT, **fields})


def record(**fields: Any) -> RunRecord:
    values = dict(
        job="sync", slot=SLOT, run_id="1", attempt=1, trigger="scheduled", status="failed", instance_id="host-1",
        fence=7, started_at=SLOT, finished_at=SLOT, duration=1.5, error="ValueError: bad\nsecond line",
    )  # fmt: skip
    return RunRecord(**{**values, **fields})  # type: ignore[arg-type]


def test_listeners_are_told_in_the_order_in_which_they_came() -> None:
    events, told = Events(), []
    events.on("start", lambda e: told.append("first"))
    events.on("start", lambda e: told.append("second"))
    events.on("success", lambda e: told.append("other type"))
    events.emit(event())
    assert told == ["first", "second"]


def test_a_listener_added_twice_is_told_twice_and_removed_once() -> None:
    events, told = Events(), []
    for _ in range(2):
        events.on("start", told.append)
    events.emit(event())
    events.off("start", told.append)
    events.emit(event())
    assert len(told) == 3


def test_removing_what_was_never_added_does_nothing() -> None:
    Events().off("start", print)


def test_a_listener_may_remove_itself_while_it_is_told() -> None:
    events, told = Events(), []

    def once(event: Event) -> None:
        told.append("once")
        events.off("start", once)

    events.on("start", once)
    events.on("start", lambda e: told.append("always"))
    events.emit(event())
    events.emit(event())
    assert told == ["once", "always", "always"]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Textless()])
def test_a_listener_that_raises_is_logged_and_the_others_are_told(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise error

    events, told = Events(), []
    events.on("start", broken)
    events.on("start", told.append)
    with caplog.at_level(logging.ERROR, "anarchon"):
        events.emit(event())
    assert len(told) == 1
    assert [r.getMessage() for r in caplog.records] == ["A listener of 'start' events raised."]
    assert caplog.records[0].exc_info is not None and caplog.records[0].exc_info[1] is error


def test_what_a_framework_wraps_is_entered_around_each_listener_and_left_when_one_raises() -> None:
    told: list[str] = []

    @contextlib.contextmanager
    def around(event: Event) -> Iterator[None]:
        told.append(f"before {event.type}")
        try:
            yield
        finally:
            told.append("after")

    def broken(event: Event) -> None:
        told.append("broken")
        raise ValueError

    events = Events()
    events.around = around
    events.on("start", broken)
    events.on("start", lambda e: told.append("sound"))
    events.emit(event())
    assert told == ["before start", "broken", "after", "before start", "sound", "after"]


def test_a_log_that_raises_harms_nobody() -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    logger = logging.getLogger("anarchon.test.broken")
    logger.addFilter(Broken())
    events, told = Events(logger), []
    events.on("failure", told.append)
    events.emit(event("failure"))
    assert len(told) == 1


@pytest.mark.parametrize("wrong", ["succes", "Start", "", None, 3])
def test_an_unknown_event_names_the_known_ones(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected one of start, success, failure, interrupted, skip, error"):
        Events().on(wrong, print)
    with pytest.raises(ConfigurationError, match="Unknown event"):
        Events().off(wrong, print)


def test_a_misspelt_event_has_its_nearest_named() -> None:
    with pytest.raises(ConfigurationError, match="Unknown event 'succes'.*Did you mean 'success'"):
        Events().on("succes", print)


def test_a_listener_must_be_callable() -> None:
    with pytest.raises(ConfigurationError, match="listener of 'start' events must be callable, not 3"):
        Events().on("start", 3)  # type: ignore[arg-type]


async def coroutine(event: Any) -> None: ...


def generator(event: Any) -> Any:
    yield event


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        (coroutine, "is a coroutine function"),
        (generator, "is a generator function: calling it runs nothing"),
        (lambda: None, "must take the event"),
        (lambda event, more: None, "must take the event"),
    ],
)
def test_a_listener_that_could_never_work_is_refused(listener: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Events().on("start", listener)


def test_a_listener_may_be_of_any_kind_that_takes_the_event() -> None:
    class Listener:
        def __call__(self, event: Any, more: int = 1) -> None: ...

    heard: list[Any] = []
    events = Events()
    for listener in (print, Listener(), lambda *any: None, functools.partial(lambda a, b: None, 1), heard.append):
        events.on("skip", listener)
    event = Event("skip", "x", "here", reason="taken")
    events.emit(event)
    assert heard == [event]


def test_on_without_its_event_is_refused_at_once() -> None:
    scheduler = Scheduler(MemoryBackend())
    with pytest.raises(ConfigurationError, match="Unknown event <function"):

        @scheduler.on  # type: ignore[call-overload]
        def complain(event: Any) -> None: ...


def test_on_and_off_chain_and_on_decorates() -> None:
    scheduler = Scheduler(MemoryBackend())

    @scheduler.on("start")
    def listener(event: Event) -> None:
        pass

    assert scheduler.on("success", listener) is scheduler
    assert scheduler.off("start", listener) is scheduler
    assert scheduler._events._listeners == {"start": (), "success": (listener,)}


@pytest.mark.parametrize(
    ("type", "level"),
    [
        ("start", logging.INFO),
        ("success", logging.INFO),
        ("failure", logging.WARNING),
        ("interrupted", logging.WARNING),
        ("skip", logging.DEBUG),
        ("error", logging.WARNING),
    ],
)
def test_each_event_is_logged_at_its_level(type: str, level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "anarchon"):
        Events(True).emit(event(type))
    assert [(r.name, r.levelno) for r in caplog.records] == [("anarchon", level)]
    assert caplog.messages[0].startswith(f"sync {type}")


def test_every_type_has_been_tried_above() -> None:
    assert EVENT_TYPES == ("start", "success", "failure", "interrupted", "skip", "error")


@pytest.mark.parametrize("log", [None, False])
def test_without_a_log_nothing_is_logged(log: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Events(log).emit(event("failure"))
    assert caplog.records == []


def test_a_logger_of_the_users_is_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Events(logging.getLogger("mine")).emit(event())
        Events(logging.LoggerAdapter(logging.getLogger("adapted"), {})).emit(event())
    assert [r.name for r in caplog.records] == ["mine", "adapted"]


def test_only_a_failure_is_logged_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("bad")
    with caplog.at_level(logging.DEBUG, "anarchon"):
        for type in ("failure", "error", "interrupted"):
            Events(True).emit(event(type, exception=error))
    assert [r.exc_info is not None for r in caplog.records] == [True, False, False]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            event("start", attempt=1, trigger="scheduled", fence=7),
            "sync start slot=2026-03-01T08:00:00.000Z attempt=1 trigger=scheduled fence=7",
        ),
        (
            event("skip", reason="taken", holder="host-2"),
            "sync skip (taken) slot=2026-03-01T08:00:00.000Z holder=host-2",
        ),
        (event("skip", reason="late", count=40), "sync skip (late) and 39 more slots slot=2026-03-01T08:00:00.000Z"),
        (
            event("skip", reason="late", count=None),
            "sync skip (late) and more, uncounted slots slot=2026-03-01T08:00:00.000Z",
        ),
        (
            event("failure", record=record(), exception=ValueError("bad")),
            "sync failure slot=2026-03-01T08:00:00.000Z duration=1.500s error=ValueError: bad",
        ),
        (
            Event("error", None, "host-1", operation="claim", exception=OSError("gone\nfor good")),
            "anarchon error in claim error=OSError: gone",
        ),
        (
            Event("error", "sync", "host-1", operation="timer", exception=Textless()),
            "sync error in timer error=Textless: (its text could not be had: KeyboardInterrupt)",
        ),
    ],
)
def test_an_event_is_one_line(told: Event, line: str) -> None:
    assert describe(told) == line
