"""What a site is told whose settings are wrong, by the process that is started: a command, or a web server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from anarchon import MemoryBackend
from anarchon.contrib.django import scheduler, site

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

MakeSite = Callable[..., Any]
Attempts = dict[str, subprocess.CompletedProcess[str]]

WRONG = {"BACKND": "redis://:secret@host/0", "LEASE": "soon", "AUTOSTART": True}


#: Each begins, or tries to, on a site whose settings are wrong.
ATTEMPTS: dict[str, Callable[[Any], subprocess.CompletedProcess[str]]] = {
    "check": lambda site: site.manage("check", check=False),
    "jobs": lambda site: site.manage("anarchon_jobs", check=False),
    "worker": lambda site: site.manage("anarchon_worker", check=False),
    "runserver": lambda site: site.manage("runserver", "--noreload", "0", check=False),
    "server": lambda site: serve(site),
}


@pytest.fixture(scope="module")
def attempts(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """What becomes of each, two at a time."""

    def attempt(name: str) -> subprocess.CompletedProcess[str]:
        return ATTEMPTS[name](site_type(tmp_path_factory.mktemp(name), ANARCHON=WRONG))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ATTEMPTS, pool.map(attempt, ATTEMPTS), strict=True))


def serve(site: Any) -> subprocess.CompletedProcess[str]:
    """Imports what a web server is given, as it would, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "import site_wsgi; print('serves')"],
        env=site._environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_check_shows_all_that_is_wrong_and_no_traceback(attempts: Attempts) -> None:
    done = attempts["check"]
    assert done.returncode == 1
    for said in (
        "ANARCHON['BACKND']: (anarchon.E002) Nobody reads this setting.",
        "HINT: Did you mean 'BACKEND'?",
        "ANARCHON['BACKEND']: (anarchon.E003) BACKEND is missing",
        "ANARCHON['LEASE']: (anarchon.E004) lease must be a duration",
        "System check identified 3 issues",
    ):
        assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("command", ["jobs", "worker", "runserver"])
def test_no_command_begins_while_the_settings_are_wrong(attempts: Attempts, command: str) -> None:
    done = attempts[command]
    assert done.returncode == 1
    assert "(anarchon.E003) BACKEND is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_web_server_does_not_serve_a_site_whose_settings_are_wrong(attempts: Attempts) -> None:
    done = attempts["server"]
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "django.core.exceptions.ImproperlyConfigured: ANARCHON['BACKND']: Nobody reads this setting."
    )
    assert "ANARCHON['LEASE']: lease must be a duration" in last
    assert "secret" not in done.stderr


def test_a_jobs_module_that_cannot_be_imported_shows_its_own_traceback(make_site: MakeSite) -> None:
    site = make_site()
    app = site.folder / "broken"
    app.mkdir()
    app.joinpath("__init__.py").touch()
    app.joinpath("jobs.py").write_text("import no_such_driver\n")
    site.settings["INSTALLED_APPS"] = ["anarchon.contrib.django", "broken"]
    site.environment["PYTHONPATH"] = f"{site._environment()['PYTHONPATH']}:{site.folder}"
    for done in (site.manage("check", check=False), serve(site)):
        assert done.returncode == 1
        assert 'broken/jobs.py", line 1, in <module>' in done.stderr
        assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_driver'"


def test_jobs_are_found_in_the_module_that_the_settings_name_or_nowhere(make_site: MakeSite) -> None:
    site = make_site()
    told = [site.manage("anarchon_jobs").stdout]
    for module in ("no_jobs", None):
        site.settings["ANARCHON"]["JOBS_MODULE"] = module
        done = site.manage("anarchon_jobs")
        told.append(done.stdout)
        assert done.stderr == "site_settings has no jobs.\n"
    assert "tick" in told[0]
    assert told[1:] == ["", ""]


class TestWarnings:
    @pytest.fixture
    def jobless(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(scheduler._wrapped, "_jobs", {})
        yield

    def told(self, **given: Any) -> list[str | None]:
        with override_settings(ANARCHON={"BACKEND": "memory://", **given}):
            return [message.id for message in run_checks(tags=["anarchon"], include_deployment_checks=True)]

    def test_web_processes_that_are_to_run_jobs_and_have_none(self, jobless: None) -> None:
        assert self.told(AUTOSTART=True) == ["anarchon.W001", "anarchon.W002"]
        assert self.told(AUTOSTART=False) == ["anarchon.W002"]

    def test_a_store_that_no_other_process_shares(self) -> None:
        assert isinstance(site.scheduler.backend, MemoryBackend)
        assert self.told(AUTOSTART=True) == ["anarchon.W002"]
        with override_settings(ANARCHON={"BACKEND": "memory://"}):
            assert run_checks(tags=["anarchon"]) == []
