"""The site in ``tests/contrib/django_site``: set up in this process, and run by ``manage.py`` in others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.core.management import call_command
from django.db import connections

SITE = Path(__file__).parents[1] / "django_site"
ROOT = Path(__file__).parents[3]

#: No process waits this long for anything unless something is wrong.
LONGEST_S = 90

_T = TypeVar("_T")


def _set_up() -> None:
    sys.path.append(str(SITE))
    from site_in_process import set_up_once

    set_up_once()


_set_up()


@pytest.fixture(scope="session")
def tables() -> None:
    """The database of this process has its tables."""
    call_command("migrate", verbosity=0)
    connections.close_all()


@pytest.fixture
def database(tables: None) -> Iterator[None]:
    """The database of this process, empty and with no connection open on this thread afterwards."""
    from shop.models import Sale

    yield
    Sale.objects.all().delete()
    connections.close_all()


class Site:
    """The site in processes of its own.

    Args:
        folder: for its database, its store and what its handlers tell.
        settings: those that are other than in ``site_settings.py``.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.code = SITE
        self.log = folder / "log"
        self.log.touch()
        self.settings: dict[str, Any] = {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "site.db")}},
            "ANARCHON": {"BACKEND": f"sqlite:///{folder / 'jobs.db'}"},
            **settings,
        }
        self.environment: dict[str, str] = {}
        self._processes: list[Process] = []

    def manage(self, *arguments: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command of ``manage.py`` until its end; fails where its exit code is not 0, unless told otherwise."""
        done = subprocess.run(
            [sys.executable, str(self.code / "manage.py"), *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            start_new_session=True,
            **more,
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(self, *command: str) -> Process:
        """Starts a program in the folder of the site, such as ``manage.py`` or a server."""
        process = Process(command, self._environment(), self.code, self.folder / f"process-{len(self._processes)}")
        self._processes.append(process)
        return process

    def start_manage(self, *arguments: str) -> Process:
        return self.start(sys.executable, str(self.code / "manage.py"), *arguments)

    def lines(self, **wanted: Any) -> list[dict[str, Any]]:
        """What the handlers have told so far, as far as it has these values."""
        # A line that is being written may be seen in part.
        lines = map(json.loads, self.log.read_bytes().rpartition(b"\n")[0].splitlines())
        return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]

    def close(self) -> None:
        for process in self._processes:
            process.kill()

    def _environment(self) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **passed_on,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.code)]),
            "PYTHONUNBUFFERED": "yes",
            "PYTHONWARNINGS": "error",
            "SITE": json.dumps(self.settings),
            "LOG": str(self.log),
            **self.environment,
        }


class Process:
    """A process of the site, in a group of its own."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], here: Path, told: Path) -> None:
        self.out, self.err = told.with_suffix(".out"), told.with_suffix(".err")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def told(self) -> str:
        """All that it has printed so far."""
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in (self.out, self.err))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits for its end; returns its exit status."""
        return self._process.wait(LONGEST_S)

    def until(self, found: Callable[[], _T]) -> _T:
        """Waits until something is found, as long as the process lives; returns it."""
        end = time.monotonic() + LONGEST_S
        while True:
            ended = self._process.poll()  # asked first: it may do what is waited for, and then end
            if value := found():
                return value
            if ended is not None or time.monotonic() > end:
                pytest.fail(f"Not in time; the process ended: {ended}.\n{self.told}")
            time.sleep(0.02)

    def kill(self) -> None:
        """``kill -9``, for it and for its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(LONGEST_S)


@pytest.fixture(scope="session")
def site_type() -> type[Site]:
    """For a fixture that outlives a test; close what is made of it."""
    return Site


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites = []

    def make(**settings: Any) -> Site:
        folder = tmp_path / f"site-{len(sites)}"
        folder.mkdir()
        sites.append(Site(folder, **settings))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """The site, with a store and a database in files of this test alone."""
    return make_site()
