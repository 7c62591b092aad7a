"""When an app has been made: a run must not begin before its factory has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from flask import Flask

from anarchon.contrib.flask import Anarchon, loading
from anarchon.contrib.flask.loading import until_made

MakeApp = Callable[..., Flask]

Wait = Callable[[], None]


def start(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Factory:
    """A thread that makes an app, and goes on with whatever it is told to."""

    def __init__(self) -> None:
        self.waits: list[Wait] = []
        self.registered = threading.Event()
        self.may_return = threading.Event()
        self.may_end = threading.Event()
        self.thread = start(self.serve)

    def serve(self) -> None:
        self.create_app()
        self.may_end.wait(60)

    def create_app(self) -> None:
        self.set_up_extensions()
        self.registered.set()
        self.may_return.wait(60)

    def set_up_extensions(self) -> None:
        self.waits.append(until_made())


@contextmanager
def factory() -> Iterator[Factory]:
    made = Factory()
    assert made.registered.wait(30)
    try:
        yield made
    finally:
        made.may_return.set()
        made.may_end.set()
        made.thread.join(30)


def test_app_has_been_made_when_the_thread_has_left_the_code_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # The thread's own outermost call stands for a server's here.
    monkeypatch.setattr(loading, "_serves", lambda frame: frame.f_code.co_name == "serve")
    with factory() as made:
        waiting = start(made.waits[0])
        waiting.join(0.2)
        assert waiting.is_alive()
        made.may_return.set()
        waiting.join(30)
        assert not waiting.is_alive()
        assert made.thread.is_alive()


def test_thread_that_has_ended_makes_nothing() -> None:
    with factory() as made:
        pass
    made.waits[0]()


def test_app_that_is_made_for_ever_is_taken_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_LONGEST_MS", 100)
    with factory() as made:
        made.waits[0]()
        assert made.thread.is_alive()


def test_script_that_serves_its_app_itself_has_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in `app.run()` at the end of a script, whose module is never left.
    monkeypatch.setattr(loading, "_serves", lambda frame: frame.f_code.co_name == "create_app")
    with factory() as made:
        made.waits[0]()
        assert not made.may_return.is_set()


def test_start_waits_for_the_factory_that_calls_init_app(
    make_app: MakeApp, cron: Anarchon, monkeypatch: pytest.MonkeyPatch
) -> None:
    readies: list[Wait] = []
    monkeypatch.setattr("anarchon.contrib.flask.extension.when_serving", lambda start, ready: readies.append(ready))
    may_return, registered = threading.Event(), threading.Event()

    def create_app() -> None:
        cron.init_app(make_app(AUTOSTART=True))
        registered.set()
        may_return.wait(60)

    making = start(create_app)
    assert registered.wait(30)
    waiting = start(readies[0])
    waiting.join(0.2)
    assert waiting.is_alive()
    may_return.set()
    waiting.join(30)
    assert not waiting.is_alive()
    making.join(30)
