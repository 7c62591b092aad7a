"""What kind of process this is, told from what called us; servers are played by functions of their modules' names."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from anarchon.contrib.servers import gunicorn, uwsgi, watch, when_serving
from anarchon.contrib.servers.begin import begin
from anarchon.contrib.servers.stack import command, tool


def as_if(module: str, function: str, **given: Any) -> Callable[[Callable[[], Any]], Any]:
    """Calls what it is given from a function of that module and name, with those local variables."""
    lines = [f"def {function}(call):", *(f"    {name} = given[{name!r}]" for name in given), "    return call()"]
    scope: dict[str, Any] = {"__name__": module, "given": given}
    exec("\n".join(lines), scope)
    caller: Callable[[Callable[[], Any]], Any] = scope[function]
    return caller


def never() -> None:
    raise AssertionError("This must not be called.")


class Worker:
    """gunicorn's worker, as far as anybody looks at it."""

    def __init__(self, booted: bool = False) -> None:
        self.booted = booted
        self.cfg = self
        self.post_worker_init: Callable[[Any], None] = lambda worker: None

    def set(self, name: str, value: Any) -> None:
        setattr(self, name, value)


# -- gunicorn


@pytest.fixture
def no_workers() -> Iterator[list[Any]]:
    """What gunicorn's workers would start; empty before and after."""
    yield gunicorn._for_workers
    gunicorn._for_workers.clear()


def test_in_a_gunicorn_worker_the_start_comes_when_the_worker_is_set_up_after_the_users_hook() -> None:
    worker, told = Worker(), []
    worker.post_worker_init = lambda worker: told.append("user")
    started = threading.Event()

    def start() -> None:
        told.append("start")
        started.set()

    in_worker = as_if("gunicorn.arbiter", "spawn_worker", pid=0, worker=worker)
    assert in_worker(lambda: when_serving(start, lambda: told.append("ready"))) is None
    assert told == []
    worker.post_worker_init(worker)
    assert started.wait(60)
    assert told == ["user", "ready", "start"]


def test_an_application_that_its_first_request_makes_starts_at_once() -> None:
    in_worker = as_if("gunicorn.arbiter", "spawn_worker", pid=0, worker=Worker(booted=True))
    started = threading.Event()
    assert in_worker(lambda: when_serving(started.set, lambda: None)) is None
    assert started.wait(60)


def test_in_gunicorns_master_nothing_starts(no_workers: list[Any]) -> None:
    for module, function, given in [
        ("gunicorn.arbiter", "setup", {}),
        ("gunicorn.arbiter", "spawn_worker", {}),  # its pre_fork hook: nothing is forked yet
        ("gunicorn.app.base", "load_config_from_file", {}),
    ]:
        sentence = as_if(module, function, **given)(lambda: when_serving(never, never))
        assert sentence == "This is gunicorn's master, which serves no requests; its workers start."
    assert len(no_workers) == 3


def test_after_a_fork_only_a_worker_of_the_master_itself_starts_and_its_children_do_not(no_workers: list[Any]) -> None:
    for in_child in (gunicorn._in_child, partial(as_if("gevent.os", "fork"), gunicorn._in_child)):
        worker, told = Worker(), []
        no_workers.append(partial(told.append, "start"))
        forks = as_if("gunicorn.arbiter", "spawn_worker", worker=worker)
        forks(in_child)
        worker.post_worker_init(worker)
        assert told == ["start"]
        arranged = worker.post_worker_init
        forks(in_child)  # a child of that worker: the worker itself stands on its stack
        assert worker.post_worker_init is arranged


def test_a_child_that_the_masters_application_or_a_hook_of_its_forks_starts_nothing(no_workers: list[Any]) -> None:
    worker = Worker()
    in_child = partial(as_if("multiprocessing.popen_fork", "_launch"), gunicorn._in_child)
    for caller in (as_if("gunicorn.arbiter", "setup"), as_if("gunicorn.arbiter", "spawn_worker", worker=worker)):
        no_workers.append(never)
        caller(in_child)
        assert no_workers == []
    worker.post_worker_init(worker)


# -- uWSGI


@pytest.fixture
def in_uwsgi(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module as uWSGI has it in its processes; this is the master."""
    module = SimpleNamespace(
        has_threads=1,
        worker_id=lambda: 0,
        mule_id=lambda: 0,
        i_am_the_spooler=lambda: False,
        masterpid=lambda: 4711,
    )
    monkeypatch.setitem(sys.modules, "uwsgi", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "uwsgidecorators", None)  # type: ignore[arg-type]
    return module


def test_a_uwsgi_without_threads_starts_nothing_and_says_what_to_set(
    in_uwsgi: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    in_uwsgi.has_threads = 0
    for worker in (0, 1):
        in_uwsgi.worker_id = lambda worker=worker: worker
        caplog.clear()
        assert "enable-threads" in str(when_serving(never, never))
        assert [(record.levelno, "enable-threads" in record.message) for record in caplog.records] == [
            (logging.ERROR, True)
        ]
    assert not hasattr(in_uwsgi, "post_fork_hook")


@pytest.mark.parametrize("kind", [{"mule_id": lambda: 1}, {"i_am_the_spooler": lambda: True}], ids=["mule", "spooler"])
def test_a_mule_or_a_spooler_that_loads_the_application_itself_starts_nothing(
    in_uwsgi: SimpleNamespace, kind: dict[str, Any]
) -> None:
    vars(in_uwsgi).update(kind)
    assert when_serving(never, never) == "This is a mule or a spooler of uWSGI, which serves no requests."
    assert not hasattr(in_uwsgi, "post_fork_hook")


def test_a_start_that_fails_after_a_fork_keeps_no_other_hook_back(
    in_uwsgi: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda about: told.append(about.exc_type.__name__))
    in_uwsgi.post_fork_hook = lambda: told.append("theirs")
    uwsgi.arrange(lambda: told.append("first"))
    uwsgi.arrange(never)
    uwsgi.arrange(lambda: told.append("third"))
    in_uwsgi.post_fork_hook()  # in a mule
    in_uwsgi.worker_id = lambda: 1
    in_uwsgi.post_fork_hook()
    assert told == ["theirs", "theirs", "first", "AssertionError", "third"]


# -- the others


def test_the_command_under_way_is_known_by_its_function() -> None:
    assert command() is None
    assert as_if("django.core.management", "execute", subcommand="migrate")(command) == "migrate"
    assert as_if("django.core.management", "execute")(command) == "help"  # it has not looked at its arguments yet
    assert as_if("flask.cli", "run_command")(command) == "flask run"
    assert as_if("flask.cli", "shell_command")(command) == "flask"


def test_a_call_on_another_thread_sees_what_the_main_thread_does() -> None:
    seen: list[str | None] = []
    thread = threading.Thread(target=lambda: seen.append(tool()))
    thread.start()
    thread.join()
    assert seen == ["pytest"]


@pytest.mark.parametrize(("module", "function"), sorted(watch._SERVING))
def test_a_watched_process_starts_when_any_of_its_threads_serves(
    monkeypatch: pytest.MonkeyPatch, module: str, function: str
) -> None:
    monkeypatch.setattr(watch, "_LOOK_AGAIN_MS", 1)
    started, over = threading.Event(), threading.Event()
    assert watch.arrange(started.set, certain=True) is None
    assert not started.is_set()
    thread = threading.Thread(target=partial(as_if(module, function), partial(over.wait, 60)))
    thread.start()
    assert started.wait(60)
    over.set()
    thread.join()


@pytest.mark.parametrize(("module", "function"), sorted(watch._RELOADING))
def test_a_watched_process_that_waits_for_a_reloaders_child_starts_nothing(module: str, function: str) -> None:
    as_if(module, function)(partial(watch._watch, never, None))


def test_a_script_that_does_not_serve_in_good_time_starts_nothing_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "anarchon"):
        watch._watch(never, 0)
    assert [record.message for record in caplog.records] == [
        "No server has been recognised: call scheduler.start() where requests are served."
    ]


def test_what_cannot_start_is_told_to_the_threads_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    told, failed = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda about: (told.append(about.thread.name), failed.set()))
    begin(never, lambda: None)
    assert failed.wait(60)
    assert told == ["anarchon-start"]
