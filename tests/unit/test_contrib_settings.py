"""What a framework's settings become: the scheduler that they describe, or an error that names the setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from anarchon import ConfigurationError, MemoryBackend, RunContext
from anarchon.contrib.settings import SCHEDULER_SETTINGS, by_dotted_path, make_scheduler, unknown_settings
from anarchon.options import option_names


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Writes a module that can be imported, under names of this test alone."""
    written = []

    def write(name: str, text: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(name)

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in written:
        sys.modules.pop(name, None)


def test_every_option_of_a_scheduler_is_a_setting() -> None:
    assert {name.upper() for name in option_names()} <= set(SCHEDULER_SETTINGS)


def test_settings_reach_the_scheduler_as_its_arguments() -> None:
    scheduler = make_scheduler(
        {"BACKEND": "memory://", "TIMEZONE": "Europe/Athens", "INSTANCE_ID": "web-1", "LEASE": "9s", "HEARTBEAT": "2s"}
    )
    scheduler.every("sync", "10s", print)
    (job,) = scheduler.jobs()
    assert (str(scheduler.timezone), scheduler.instance_id) == ("Europe/Athens", "web-1")
    assert (job.options["lease"], job.options["heartbeat"]) == (9, 2)


def test_what_the_framework_gives_goes_before_the_settings() -> None:
    scheduler = make_scheduler({"BACKEND": "memory://", "TIMEZONE": "Europe/Athens"}, timezone="Asia/Tokyo")
    assert str(scheduler.timezone) == "Asia/Tokyo"


def test_settings_of_the_framework_itself_are_passed_over() -> None:
    assert make_scheduler({"BACKEND": "memory://", "AUTOSTART": True}).jobs() == []


@pytest.mark.parametrize(
    "text",
    [
        "from anarchon import MemoryBackend\nhere = MemoryBackend()",
        "from anarchon import MemoryBackend\ndef here():\n    return MemoryBackend()",
        "from anarchon import MemoryBackend as here",
    ],
    ids=["an object", "a function", "a class"],
)
def test_a_backend_may_be_a_dotted_path(module: Any, text: str) -> None:
    module("settings_test_store", text)
    assert isinstance(make_scheduler({"BACKEND": "settings_test_store.here"}).backend, MemoryBackend)


def test_a_backend_may_be_the_object_itself() -> None:
    backend = MemoryBackend()
    assert make_scheduler({"BACKEND": backend}).backend is backend


def test_around_run_may_be_a_dotted_path(module: Any) -> None:
    module("settings_test_around", "from contextlib import contextmanager\nentered = []\n"
           "@contextmanager\ndef around(ctx):\n    entered.append(ctx.job)\n    yield\n")  # fmt: skip
    scheduler = make_scheduler({"BACKEND": "memory://", "AROUND_RUN": "settings_test_around.around"})
    scheduler.every("sync", "10s", lambda: None).run_now("sync")
    assert sys.modules["settings_test_around"].entered == ["sync"]
    scheduler.stop()


def test_around_run_may_be_a_callable() -> None:
    entered = []

    @contextmanager
    def around(ctx: RunContext) -> Iterator[None]:
        entered.append(ctx.job)
        with nullcontext():
            yield

    scheduler = make_scheduler({"BACKEND": "memory://", "AROUND_RUN": around})
    scheduler.every("sync", "10s", lambda: None).run_now("sync")
    assert entered == ["sync"]
    scheduler.stop()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "BACKEND is missing"),
        ({"BACKEND": None}, "BACKEND is missing"),
        ({"BACKEND": 7}, "BACKEND must be .* not int"),
        ({"BACKEND": "amqp://guest:secret@host"}, "Unknown scheme 'amqp'"),
        ({"BACKEND": "just words"}, "BACKEND must be a dotted path"),
        ({"BACKEND": "redis:/:secret@host/0"}, "BACKEND must be a dotted path"),
        ({"BACKEND": "nowhere"}, "BACKEND must be a dotted path"),
        ({"BACKEND": "..up.store"}, "BACKEND must be a dotted path"),
        ({"BACKEND": "no_such_package.store"}, "BACKEND: there is no module 'no_such_package'"),
        ({"BACKEND": "anarchon.no_such.store"}, "BACKEND: there is no module 'anarchon.no_such'"),
        ({"BACKEND": "anarchon.MemoryBackends"}, "anarchon has no 'MemoryBackends'. Did you mean 'MemoryBackend'?"),
        ({"BACKEND": "anarchon.durations.parse_duration"}, "BACKEND must be made by a call without"),
        ({"BACKEND": "anarchon.__version__"}, "BACKEND must be .* not str"),
        ({"BACKEND": MemoryBackend(), "PREFIX": "billing:"}, "PREFIX goes with the URL of a Redis"),
        ({"BACKEND": "memory://", "PREFIX": "billing:"}, "prefix is for Redis"),
        ({"BACKEND": "memory://", "LEASE": "soon"}, "lease"),
        ({"BACKEND": "memory://", "TIMEZONE": "Mars/Olympus"}, "Mars/Olympus"),
        ({"BACKEND": "memory://", "AROUND_RUN": "anarchon.no_such"}, "AROUND_RUN: anarchon has no 'no_such'"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_was_expected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        make_scheduler(given)
    assert "secret" not in str(refused.value)


def test_an_error_inside_the_module_of_a_path_is_raised_as_it_came(module: Any) -> None:
    module("settings_test_lacks", "import no_such_driver")
    with pytest.raises(ModuleNotFoundError, match="no_such_driver"):
        by_dotted_path("settings_test_lacks.store", "BACKEND")


def test_an_unknown_name_comes_with_the_nearest_right_one() -> None:
    given = ["LEASE", "HEARTBEET", "timezone", "QQQ"]
    assert unknown_settings(given, SCHEDULER_SETTINGS) == {
        "HEARTBEET": "HEARTBEAT",
        "timezone": "TIMEZONE",
        "QQQ": None,
    }
