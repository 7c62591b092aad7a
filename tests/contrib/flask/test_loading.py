"""When an app has been made: a run must not begin before its factory has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from flask import Flask

from anarchon.contrib.flask import Anarchon, loading
from anarchon.contrib.flask.loading import until_made

MakeApp = Callable[..., Flask]


def function(module: str, *lines: str, **names: Any) -> Callable[[], None]:
    """A function with these lines, of a module of that name."""
    namespace: dict[str, Any] = {"__name__": module, **names}
    exec("\n    ".join(("def function():", *lines)), namespace)
    made: Callable[[], None] = namespace["function"]
    return made


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Making:
    """A thread on which a factory makes an app, called from another module, which then goes on."""

    def __init__(self) -> None:
        self.waits: list[Callable[[], None]] = []
        self.registered = threading.Event()
        self.may_return = threading.Event()
        self.may_end = threading.Event()
        self.threads: list[threading.Thread] = []

    def begin(self, caller: str, goes_on_in: str | None = None) -> threading.Thread:
        """Returns the thread that waits for the app, when the factory has called ``init_app``.

        Args:
            caller: the module that calls the factory.
            goes_on_in: the module that it calls when the factory has returned; None: it goes on itself.
        """
        init_app = function("shop.extensions", "waits.append(until_made())", until_made=until_made, waits=self.waits)
        may_return = partial(self.may_return.wait, 60)
        create_app = function(
            "shop", "init_app()", "registered()", "may_return()",
            init_app=init_app, registered=self.registered.set, may_return=may_return,
        )  # fmt: skip
        go_on: Callable[[], object] = partial(self.may_end.wait, 60)
        if goes_on_in is not None:
            go_on = function(goes_on_in, "go_on()", go_on=go_on)
        self.threads.append(start(function(caller, "create_app()", "go_on()", create_app=create_app, go_on=go_on)))
        assert self.registered.wait(30)
        self.threads.append(start(self.waits[0]))
        return self.threads[-1]

    def end(self) -> None:
        self.may_return.set()
        self.may_end.set()
        for thread in self.threads:
            thread.join(30)


@pytest.fixture
def making() -> Iterator[Making]:
    making = Making()
    yield making
    making.end()


def check_waits(thread: threading.Thread) -> None:
    thread.join(0.2)
    assert thread.is_alive()


def check_waits_no_longer(thread: threading.Thread) -> None:
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("caller", ["gunicorn.util", "waitress.task", "werkzeug.serving", "__main__", "threading"])
def test_factory_that_a_server_or_a_script_calls_is_waited_for_alone(making: Making, caller: str) -> None:
    waiting = making.begin(caller)
    check_waits(waiting)
    making.may_return.set()
    check_waits_no_longer(waiting)


def test_module_that_calls_the_factory_may_have_more_to_do_for_the_app(making: Making) -> None:
    waiting = making.begin("wsgi")
    making.may_return.set()
    check_waits(waiting)
    making.may_end.set()
    check_waits_no_longer(waiting)


@pytest.mark.parametrize("server", ["gunicorn.arbiter", "waitress.server", "werkzeug.serving"])
def test_app_that_is_being_served_has_been_made(making: Making, server: str) -> None:
    waiting = making.begin("shop.serve", goes_on_in=server)
    check_waits(waiting)
    making.may_return.set()
    check_waits_no_longer(waiting)


def test_app_that_is_made_for_ever_is_taken_after_a_while(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_LONGEST_MS", 100)
    check_waits_no_longer(making.begin("shop.serve", goes_on_in="some.server"))


def test_thread_that_is_gone_makes_nothing(making: Making) -> None:
    waiting = making.begin("shop.wsgi")
    making.end()
    check_waits_no_longer(waiting)
    making.waits[0]()


def test_start_waits_for_the_factory_that_calls_init_app(
    make_app: MakeApp, cron: Anarchon, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Callable[[], None]] = []
    monkeypatch.setattr("anarchon.contrib.flask.extension.when_serving", lambda start, ready: waits.append(ready))
    registered, may_return = threading.Event(), threading.Event()

    def create_app() -> None:
        cron.init_app(make_app(AUTOSTART=True))
        registered.set()
        may_return.wait(60)

    making = start(create_app)
    assert registered.wait(30)
    waiting = start(waits[0])
    check_waits(waiting)
    may_return.set()
    check_waits_no_longer(waiting)
    making.join(30)
