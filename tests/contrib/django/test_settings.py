"""The settings: each that is wrong is an error of the system checks, with a hint, before anything starts."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from anarchon import MemoryBackend, Scheduler
from anarchon.contrib.django import site
from anarchon.contrib.django.settings import SETTINGS, option, read
from anarchon.contrib.settings import SCHEDULER_SETTINGS

MEMORY = {"BACKEND": "memory://"}


def made(**given: Any) -> Scheduler:
    scheduler, errors = read({**MEMORY, **given})
    assert errors == []
    assert scheduler is not None
    return scheduler


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module ``django_settings_test`` for dotted paths, empty."""
    module = types.ModuleType("django_settings_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("given", "id", "about", "said", "hint"),
    [
        (None, "E001", "ANARCHON", "is missing", "BACKEND"),
        ("redis://:secret@host/0", "E001", "ANARCHON", "must be a dictionary, not str", "BACKEND"),
        (["BACKEND"], "E001", "ANARCHON", "must be a dictionary, not list", "BACKEND"),
        ({**MEMORY, "HEARTBEET": "1s"}, "E002", "ANARCHON['HEARTBEET']", "Nobody reads", "Did you mean 'HEARTBEAT'?"),
        ({**MEMORY, "lease": "10s"}, "E002", "ANARCHON['lease']", "Nobody reads", "Did you mean 'LEASE'?"),
        ({**MEMORY, "AUTO_START": True}, "E002", "ANARCHON['AUTO_START']", "Nobody reads", "Did you mean 'AUTOSTART'?"),
        ({**MEMORY, "QQQ": 1}, "E002", "ANARCHON['QQQ']", "Nobody reads", "Known are AROUND_RUN, AUTOSTART, BACKEND,"),
        ({**MEMORY, 7: 1}, "E002", "ANARCHON[7]", "Nobody reads", "Known are"),
        ({}, "E003", "ANARCHON['BACKEND']", "BACKEND is missing", None),
        ({"BACKEND": None}, "E003", "ANARCHON['BACKEND']", "BACKEND is missing", None),
        ({"BACKEND": 7}, "E003", "ANARCHON['BACKEND']", "not int", None),
        ({"BACKEND": "redis://:secret@host/x"}, "E003", "ANARCHON['BACKEND']", "", None),
        ({"BACKEND": "amqp://guest:secret@host"}, "E003", "ANARCHON['BACKEND']", "Unknown scheme 'amqp'", None),
        ({"BACKEND": "redis:/:secret@host/0"}, "E003", "ANARCHON['BACKEND']", "must be a dotted path", None),
        ({"BACKEND": "shop.no_such.store"}, "E003", "ANARCHON['BACKEND']", "no module 'shop.no_such'", None),
        ({"BACKEND": "anarchon.MemoryBackends"}, "E003", "ANARCHON['BACKEND']", "Did you mean 'MemoryBackend'?", None),
        ({**MEMORY, "PREFIX": "shop:"}, "E003", "ANARCHON['BACKEND']", "prefix is for Redis", None),
        ({**MEMORY, "LEASE": "soon"}, "E004", "ANARCHON['LEASE']", "lease must be a duration", None),
        ({**MEMORY, "LEASE": "10ms"}, "E004", "ANARCHON['LEASE']", "at least 1s", None),
        ({**MEMORY, "HEARTBEAT": 0}, "E004", "ANARCHON['HEARTBEAT']", "more than zero", None),
        ({**MEMORY, "JITTER": "-1s"}, "E004", "ANARCHON['JITTER']", "jitter", None),
        ({**MEMORY, "MAX_LATE": None}, "E004", "ANARCHON['MAX_LATE']", "max_late", None),
        ({**MEMORY, "CATCH_UP": "yes"}, "E004", "ANARCHON['CATCH_UP']", "catch_up", None),
        ({**MEMORY, "OVERLAP": "forbid"}, "E004", "ANARCHON['OVERLAP']", "'skip' or 'allow'", None),
        ({**MEMORY, "MAX_ATTEMPTS": 0}, "E004", "ANARCHON['MAX_ATTEMPTS']", "from 1 to", None),
        ({**MEMORY, "TIMEOUT": 0}, "E004", "ANARCHON['TIMEOUT']", "more than zero", None),
        ({**MEMORY, "HISTORY_LIMIT": "many"}, "E004", "ANARCHON['HISTORY_LIMIT']", "whole number", None),
        ({**MEMORY, "TIMEZONE": "Mars/Olympus"}, "E004", "ANARCHON['TIMEZONE']", "Mars/Olympus", "settings.TIME_ZONE"),
        ({**MEMORY, "INSTANCE_ID": ""}, "E004", "ANARCHON['INSTANCE_ID']", "printable", None),
        ({**MEMORY, "LOG": "shop.jobs"}, "E004", "ANARCHON['LOG']", "log must be True, a Logger or None", None),
        ({**MEMORY, "AROUND_RUN": "anarchon.no_such"}, "E004", "ANARCHON['AROUND_RUN']", "has no 'no_such'", None),
        ({**MEMORY, "AROUND_RUN": 3}, "E004", "ANARCHON['AROUND_RUN']", "must be callable", None),
        ({**MEMORY, "AROUND_RUN": lambda: None}, "E004", "ANARCHON['AROUND_RUN']", "must take the context", None),
        ({**MEMORY, "PERMISSION": True}, "E004", "ANARCHON['PERMISSION']", "must be callable", None),
        ({**MEMORY, "PERMISSION": lambda: True}, "E004", "ANARCHON['PERMISSION']", "must take the request", None),
        ({**MEMORY, "STOP_TIMEOUT": "soon"}, "E004", "ANARCHON['STOP_TIMEOUT']", "STOP_TIMEOUT must be", None),
        ({**MEMORY, "AUTOSTART": "False"}, "E004", "ANARCHON['AUTOSTART']", "must be True or False", None),
        ({**MEMORY, "AUTOSTART": None}, "E004", "ANARCHON['AUTOSTART']", "must be True or False", None),
        ({**MEMORY, "JOBS_MODULE": "shop.jobs"}, "E004", "ANARCHON['JOBS_MODULE']", "a module's name", None),
        ({**MEMORY, "JOBS_MODULE": False}, "E004", "ANARCHON['JOBS_MODULE']", "a module's name", None),
        ({**MEMORY, "LEASE": "10s", "HEARTBEAT": "5s"}, "E005", "ANARCHON", "at most a third of the lease", None),
        ({**MEMORY, "JITTER": "2m"}, "E005", "ANARCHON", "jitter must be less than max_late", None),
    ],
)
def test_what_is_wrong_is_one_error_that_says_where_and_what_was_expected(
    given: Any, id: str, about: str, said: str, hint: str | None
) -> None:
    scheduler, errors = read(given)
    assert scheduler is None
    [error] = errors
    assert (error.id, error.obj) == (f"anarchon.{id}", about)
    assert said in error.msg
    assert (hint in str(error.hint)) if hint else error.hint is None
    assert "secret" not in str(error)


async def let_in(request: object) -> bool:
    return True


def test_a_coroutine_function_cannot_say_who_may_ask() -> None:
    # What it returns is true whatever it would say.
    _, [error] = read({**MEMORY, "PERMISSION": let_in})
    assert "coroutine function" in error.msg


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "must be a dotted path"),
        ("shop.no_such.staff", "no module 'shop.no_such'"),
        ("shop.views.everybodi", "Did you mean 'everybody'?"),
        ("shop.views.__doc__", "must be callable"),
        ("shop.views.run", "must take the request"),
    ],
)
def test_a_path_that_names_nobody_who_could_say_who_may_ask_is_told(path: str, said: str) -> None:
    with override_settings(ANARCHON={**MEMORY, "PERMISSION": path}):
        [error] = site.errors()
        assert (error.id, error.obj) == ("anarchon.E004", "ANARCHON['PERMISSION']")
        assert said in error.msg
        # As a web server has it.
        with pytest.raises(ImproperlyConfigured, match=r"^ANARCHON\['PERMISSION'\]: "):
            site.begin()


def test_everything_that_is_wrong_is_told_at_once() -> None:
    _, errors = read({"BACKND": 1, "LEASE": "soon", "TIMEZONE": "Mars", "AUTOSTART": 1, "JITTER": "2m"})
    assert [error.obj for error in errors] == [
        "ANARCHON['BACKND']",
        "ANARCHON['BACKEND']",
        "ANARCHON['TIMEZONE']",
        "ANARCHON['LEASE']",
        "ANARCHON['AUTOSTART']",
    ]


def test_options_that_contradict_each_other_are_told_beside_others_that_are_wrong() -> None:
    _, errors = read({**MEMORY, "QQQ": 1, "LEASE": "10s", "HEARTBEAT": "5s"})
    assert [error.id for error in errors] == ["anarchon.E002", "anarchon.E005"]


def test_every_setting_of_the_scheduler_reaches_it() -> None:
    given: dict[str, Any] = {
        "TIMEZONE": "Asia/Tokyo",
        "INSTANCE_ID": "web-1",
        "LOG": None,
        "LEASE": "20s",
        "HEARTBEAT": timedelta(seconds=4),
        "JITTER": 0.25,
        "MAX_LATE": "2m",
        "CATCH_UP": "1h",
        "OVERLAP": "allow",
        "MAX_ATTEMPTS": 5,
        "TIMEOUT": "10m",
        "HISTORY_LIMIT": 50,
    }
    assert {*given, "BACKEND", "PREFIX", "AROUND_RUN"} == set(SCHEDULER_SETTINGS)
    scheduler = made(**given).every("sync", "10s", print)
    [job] = scheduler.jobs()
    assert scheduler.instance_id == "web-1"
    assert job.timezone == "Asia/Tokyo"
    assert job.options == {
        "lease": 20, "heartbeat": 4, "jitter": 0.25, "max_late": 120, "catch_up": 3600, "overlap": "allow",
        "max_attempts": 5, "timeout": 600, "history_limit": 50,
    }  # fmt: skip


@pytest.mark.parametrize(("given", "said"), [({}, ["ValueError: no such customer"]), ({"LOG": False}, [])])
def test_failures_are_logged_unless_the_settings_say_otherwise(
    given: dict[str, Any], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no such customer")

    made(**given).every("sync", "10s", fail).run_now("sync")
    assert [record.exc_text.splitlines()[-1] for record in caplog.records if record.exc_text] == said


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_time_zone_is_the_sites_unless_another_is_given(use_tz: bool) -> None:
    with override_settings(TIME_ZONE="America/Chicago", USE_TZ=use_tz):
        assert str(made().timezone) == "America/Chicago"
        assert str(made(TIMEZONE="UTC").timezone) == "UTC"


def test_a_time_zone_of_the_site_that_cannot_be_had_is_told() -> None:
    with override_settings():
        # Django itself would refuse it when it is set.
        from django.conf import settings

        settings.TIME_ZONE = "Atlantis/Capital"
        _, [error] = read(MEMORY)
    assert error.obj == "ANARCHON['TIMEZONE']"
    assert "Atlantis/Capital" in error.msg


def test_a_backend_may_be_an_object_or_the_path_of_a_callable_that_is_called_once(module: Any) -> None:
    calls = []

    def store() -> MemoryBackend:
        calls.append(MemoryBackend())
        return calls[-1]

    module.store = store
    assert made(BACKEND="django_settings_test.store").backend is calls[0]
    assert len(calls) == 1
    assert made(BACKEND=calls[0]).backend is calls[0]


def test_what_is_raised_inside_a_module_that_is_named_comes_as_it_is(module: Any) -> None:
    def store() -> MemoryBackend:
        raise OSError("no such host")

    module.store = store
    with pytest.raises(OSError, match="no such host"):
        read({"BACKEND": "django_settings_test.store"})


def test_a_module_that_is_named_and_uses_the_scheduler_is_told_why_it_cannot(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_settings", site._Settings())

    def store() -> Any:
        return site.scheduler.jobs()

    module.store = store
    monkeypatch.setattr(site.scheduler, "_wrapped", type(site.scheduler)()._wrapped)
    with (
        override_settings(ANARCHON={"BACKEND": "django_settings_test.store"}),
        pytest.raises(ImproperlyConfigured, match="Keep what is named apart from the jobs"),
    ):
        site.errors()
    # It is no lasting fault.
    with override_settings(ANARCHON=MEMORY):
        assert site.errors() == []


def test_a_setting_of_the_app_is_read_as_it_is_now() -> None:
    with override_settings(ANARCHON={**MEMORY, "STOP_TIMEOUT": "3s"}):
        assert option("STOP_TIMEOUT") == "3s"
    with override_settings(ANARCHON=MEMORY):
        assert [option(name) for name in ("STOP_TIMEOUT", "AUTOSTART", "JOBS_MODULE", "PERMISSION")] == [
            "25s", False, "jobs", None,
        ]  # fmt: skip
    with override_settings(ANARCHON=7), pytest.raises(ImproperlyConfigured, match="must be a dictionary, not int"):
        option("STOP_TIMEOUT")


def test_every_setting_is_known() -> None:
    assert set(SETTINGS) == {*SCHEDULER_SETTINGS, "AUTOSTART", "JOBS_MODULE", "PERMISSION", "STOP_TIMEOUT"}


class TestSchedulerBeforeItIsMade:
    """What is imported from ``anarchon.contrib.django`` stands for the scheduler."""

    @pytest.fixture
    def fresh(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
        """As a process has it that has not used its scheduler yet."""
        monkeypatch.setattr(site, "_settings", site._Settings())
        return site._SiteScheduler

    def test_it_is_made_at_its_first_use_and_only_once(self, fresh: Callable[[], Any]) -> None:
        with override_settings(ANARCHON={**MEMORY, "INSTANCE_ID": "web-1"}):
            scheduler = fresh()
            assert repr(scheduler) == "<Scheduler of this site, not made yet>"
            assert scheduler.instance_id == "web-1"
        assert repr(scheduler).startswith("<Scheduler web-1 jobs=0")
        assert isinstance(scheduler, Scheduler)
        assert fresh().backend is scheduler.backend

    def test_its_use_is_refused_with_all_that_is_wrong(self, fresh: Callable[[], Any]) -> None:
        with override_settings(ANARCHON={"BACKND": "memory://", "LEASE": "soon"}):
            scheduler = fresh()
            for _ in range(2):
                with pytest.raises(ImproperlyConfigured) as refused:
                    scheduler.every("sync", "10s", print)
        for said in ("Did you mean 'BACKEND'?", "ANARCHON['LEASE']: lease must be", "BACKEND is missing"):
            assert said in str(refused.value)

    def test_it_can_be_started_and_stopped_by_with(self, fresh: Callable[[], Any]) -> None:
        with override_settings(ANARCHON=MEMORY), fresh() as scheduler:
            scheduler.every("sync", "10s", print)
            assert scheduler.next_run("sync") is not None
