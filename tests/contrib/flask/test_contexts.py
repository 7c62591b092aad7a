"""Each run, and each listener, has an app context of its own; the teardown functions are called after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask, appcontext_popped, appcontext_pushed, current_app, g, has_request_context

from anarchon import Event, RunContext
from anarchon.contrib.flask import Anarchon

MakeApp = Callable[..., Flask]


def test_handler_finds_its_app(app: Flask, cron: Anarchon) -> None:
    found: list[object] = []

    @cron.every("sync", "1h")
    def sync() -> None:
        found.append(current_app._get_current_object())
        found.append(cron.scheduler)

    assert app.extensions["anarchon"].run_now("sync").status == "success"
    assert found == [app, app.extensions["anarchon"]]


def test_each_app_is_current_in_its_own_runs(make_app: MakeApp, cron: Anarchon) -> None:
    found: list[str] = []
    cron.every("sync", "1h", lambda: found.append(current_app.name))
    one, other = make_app("one"), make_app("other")
    for app in (one, other):
        cron.init_app(app)
    with one.app_context():
        other.extensions["anarchon"].run_now("sync")
        cron.run_now("sync")
    assert found == ["other", "one"]


def test_scheduled_run_has_an_app_context(app: Flask, cron: Anarchon) -> None:
    found: list[str] = []
    ran = threading.Event()

    @cron.every("sync", "100ms")
    def sync() -> None:
        found.append(current_app.name)
        ran.set()

    with app.extensions["anarchon"]:
        assert ran.wait(30)
    assert set(found) == {"shop"}


def test_run_with_a_timeout_has_an_app_context(app: Flask, cron: Anarchon) -> None:
    cron.every("sync", "1h", lambda: current_app.name, timeout="30s")
    assert app.extensions["anarchon"].run_now("sync").status == "success"


def test_each_run_has_a_g_of_its_own_and_no_request(app: Flask, cron: Anarchon) -> None:
    @cron.every("sync", "1h")
    def sync() -> None:
        assert not has_request_context()
        assert "user" not in g
        g.user = "sync"

    @app.get("/")
    def index() -> dict[str, Any]:
        g.user = "visitor"
        records = [cron.run_now("sync") for _ in range(2)]
        return {"errors": [record.error for record in records], "user": g.user}

    assert app.test_client().get("/").json == {"errors": [None, None], "user": "visitor"}


def test_teardown_functions_are_called_after_each_run_on_its_thread(app: Flask, cron: Anarchon) -> None:
    told: list[tuple[str, bool]] = []

    @app.teardown_appcontext
    def close(error: BaseException | None) -> None:
        told.append((f"closed {g.pop('session', None)} after {error!r}", threading.current_thread() is thread[-1]))

    thread: list[threading.Thread] = []

    @cron.every("sync", "1h")
    def sync() -> None:
        thread.append(threading.current_thread())
        g.session = len(thread)
        if len(thread) == 2:
            raise ValueError("no customers")

    scheduler = app.extensions["anarchon"]
    assert [scheduler.run_now("sync").status for _ in range(3)] == ["success", "failed", "success"]
    assert told == [
        ("closed 1 after None", True),
        ("closed 2 after ValueError('no customers')", True),
        ("closed 3 after None", True),
    ]


def test_teardown_that_raises_makes_the_run_a_failure_and_harms_no_other(app: Flask, cron: Anarchon) -> None:
    faults = iter([OSError("disk full")])

    @app.teardown_appcontext
    def commit(error: BaseException | None) -> None:
        for fault in faults:
            raise fault

    cron.every("sync", "1h", lambda: current_app.name)
    records = [app.extensions["anarchon"].run_now("sync") for _ in range(2)]
    assert [(record.status, record.error) for record in records] == [
        ("failed", "OSError: disk full"),
        ("success", None),
    ]


def test_app_context_is_over_whatever_a_handler_raises(app: Flask, cron: Anarchon) -> None:
    pushed: list[object] = []
    popped: list[object] = []

    @cron.every("sync", "1h")
    def sync(ctx: RunContext) -> None:
        raise [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()][len(pushed) - 1]

    with appcontext_pushed.connected_to(pushed.append, app), appcontext_popped.connected_to(popped.append, app):
        errors = [app.extensions["anarchon"].run_now("sync").error for _ in range(4)]
    assert errors == ["SystemExit: 3", "KeyboardInterrupt", "StopIteration", "GeneratorExit"]
    assert pushed == popped == [app] * 4


# -- what the app has around its own runs


def test_own_around_run_is_inside_the_app_context(make_app: MakeApp, cron: Anarchon) -> None:
    told: list[str] = []

    @contextmanager
    def around(context: RunContext) -> Iterator[None]:
        told.append(f"{current_app.name} before {context.job}")
        g.inside = True
        yield
        told.append("after")

    app = make_app(AROUND_RUN=around)
    cron.init_app(app)
    app.teardown_appcontext(lambda error: told.append("torn down"))
    cron.every("sync", "1h", lambda: told.append(f"inside: {g.inside}"))
    assert app.extensions["anarchon"].run_now("sync").status == "success"
    assert told == ["shop before sync", "inside: True", "after", "torn down"]


def test_own_around_run_may_swallow_what_the_handler_raised(make_app: MakeApp, cron: Anarchon) -> None:
    @contextmanager
    def around(context: RunContext) -> Iterator[None]:
        try:
            yield
        except LookupError:
            pass

    app = make_app(AROUND_RUN=around)
    cron.init_app(app)
    cron.every("lenient", "1h", lambda: {}["customers"])
    cron.every("strict", "1h", lambda: 1 / 0)
    scheduler = app.extensions["anarchon"]
    assert scheduler.run_now("lenient").status == "success"
    assert scheduler.run_now("strict").error == "ZeroDivisionError: division by zero"


def test_own_around_run_that_raises_fails_the_run_and_the_app_context_is_over(
    make_app: MakeApp, cron: Anarchon
) -> None:
    def around(context: RunContext) -> Any:
        raise OSError("no database")

    app = make_app(AROUND_RUN=around)
    cron.init_app(app)
    torn_down: list[BaseException | None] = []
    app.teardown_appcontext(torn_down.append)
    cron.every("sync", "1h", lambda: None)
    assert app.extensions["anarchon"].run_now("sync").error == "OSError: no database"
    assert [str(error) for error in torn_down] == ["no database"]


# -- listeners


def test_listener_is_told_in_the_context_of_the_events_app(make_app: MakeApp, cron: Anarchon) -> None:
    told: list[tuple[str, str]] = []

    @cron.on("success")
    def note(event: Event) -> None:
        told.append((current_app.name, event.job))

    cron.every("sync", "1h", lambda: None)
    apps = [make_app("one"), make_app("other")]
    torn_down: list[object] = []
    for app in apps:
        cron.init_app(app)
        app.teardown_appcontext(torn_down.append)
        app.extensions["anarchon"].run_now("sync")
    assert told == [("one", "sync"), ("other", "sync")]
    assert len(torn_down) == 4  # of two runs and two listeners


def test_listener_that_raises_harms_nobody(app: Flask, cron: Anarchon, caplog: pytest.LogCaptureFixture) -> None:
    @cron.on("success")
    def note(event: Event) -> None:
        raise OSError("no mail server")

    cron.every("sync", "1h", lambda: None)
    assert app.extensions["anarchon"].run_now("sync").status == "success"
    assert "A listener of 'success' events raised." in caplog.text
