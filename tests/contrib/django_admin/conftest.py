"""A site with the admin, its database in a file, and a scheduler of the test's own behind the pages."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import override_settings

from anarchon import BackendError, Scheduler
from anarchon.backends.memory import MemoryBackend

URLS = "anarchon_admin_test_urls"

SITE = Path(__file__).parents[1] / "django_site"


def _set_up() -> None:
    sys.path.append(str(SITE))
    from site_in_process import set_up_once

    set_up_once()


_set_up()

OF_THE_ADMIN: dict[str, Any] = {
    "MIDDLEWARE": [*settings.MIDDLEWARE, f"{URLS}.ContentPolicy"],
    "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
    "ROOT_URLCONF": URLS,
    # A name that a template has wrong would be an empty place on the page.
    "TEMPLATES": [
        {**engine, "OPTIONS": {**engine["OPTIONS"], "string_if_invalid": "INVALID(%s)"}}
        for engine in settings.TEMPLATES
    ],
    "TIME_ZONE": "Europe/Athens",
}


class ContentPolicy:
    """What a careful site sends: no script and no style but from files of its own."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self._get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'; frame-ancestors 'none'; form-action 'self'"
        return response


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The site of all Django's tests, with a database and addresses of its own for the tests of one file."""
    with override_settings(**OF_THE_ADMIN), database(tmp_path_factory.mktemp("site") / "site.sqlite3"), urls():
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    connections.close_all()


@pytest.fixture
def store() -> MightBeAway:
    return MightBeAway()


@pytest.fixture
def make(store: MightBeAway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scheduler]]:
    """Makes schedulers over one store; the last one made is the site's."""
    from anarchon.contrib.django.admin import JobAdmin
    from anarchon.contrib.django.connections import around_run

    # A short run is told about at once, however busy the machine.
    monkeypatch.setattr(JobAdmin, "wait", "60s")
    made: list[Scheduler] = []

    def make(**options: Any) -> Scheduler:
        given = {"backend": store, "instance_id": "web-1", "around_run": around_run(None), **options}
        made.append(Scheduler(**given))
        monkeypatch.setattr("anarchon.contrib.django.scheduler", made[-1])
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop("60s")


class MightBeAway(MemoryBackend):
    """A store in memory that counts its questions, and can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = 0

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise BackendError("store.example:6379 does not answer")

    def history(self, job: str, limit: int) -> Any:
        self._ask()
        return super().history(job, limit)

    def active(self, job: str) -> Any:
        self._ask()
        return super().active(job)

    def claim(self, request: Any) -> Any:
        self._ask()
        return super().claim(request)

    def time(self, job: str) -> int:
        self._ask()
        return super().time(job)


class urls:
    """The site's URLs: the usual admin, and another admin site beside it."""

    def __enter__(self) -> None:
        from django.contrib import admin
        from django.urls import path

        from anarchon.contrib.django.admin import JobAdmin
        from anarchon.contrib.django.models import Job

        other = admin.AdminSite(name="back-office")
        other.register(Job, JobAdmin)
        module = types.ModuleType(URLS)
        module.urlpatterns = [path("admin/", admin.site.urls), path("back-office/", other.urls)]  # type: ignore[attr-defined]
        module.ContentPolicy = ContentPolicy  # type: ignore[attr-defined]
        sys.modules[URLS] = module

    def __exit__(self, *exc_info: object) -> None:
        del sys.modules[URLS]


class database:
    """The default database, in a file, so that every thread has a connection of its own; with its tables."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        from django.core.management import call_command

        connections["default"].close()
        self._before = connections.settings["default"]
        connections.settings["default"] = {
            **self._before,
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(self._path),
            # Nothing here is to outlive the machine.
            "OPTIONS": {"timeout": 20, "init_command": "PRAGMA synchronous = OFF"},
            "ATOMIC_REQUESTS": False,
        }
        del connections["default"]
        call_command("migrate", verbosity=0)
        connections["default"].close()

    def __exit__(self, *exc_info: object) -> None:
        connections["default"].close()
        connections.settings["default"] = self._before
        del connections["default"]
