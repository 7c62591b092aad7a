"""Apps for the tests, each with a store of its own in memory, and sites: apps in processes of their own."""

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
from textwrap import dedent
from typing import Any

import pytest
from flask import Flask

from anarchon.contrib.flask import Anarchon

ROOT = Path(__file__).resolve().parents[3]

MakeApp = Callable[..., Flask]

#: No process waits this long for anything unless something is wrong.
LONGEST_S = 90


@pytest.fixture
def make_app() -> Iterator[MakeApp]:
    """Makes an app with config of the given names, ``ANARCHON_`` left out; it is not given to any extension."""
    apps: list[Flask] = []

    def make(name: str = "shop", **config: Any) -> Flask:
        app = Flask(name)
        for key, value in {"BACKEND": "memory://", **config}.items():
            app.config[f"ANARCHON_{key}"] = value
        apps.append(app)
        return app

    yield make
    for app in apps:
        if "anarchon" in app.extensions:
            assert app.extensions["anarchon"].stop("60s")


@pytest.fixture
def cron() -> Anarchon:
    return Anarchon()


@pytest.fixture
def app(make_app: MakeApp, cron: Anarchon) -> Flask:
    """One app, given to ``cron``."""
    app = make_app()
    cron.init_app(app)
    return app


class Site:
    """A directory with the files of an app, and the processes that were started there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, file: str, source: str) -> None:
        """Writes a file in one step, so that a reloader never reads half of it."""
        new = self.home / f"{file}.new"
        new.write_text(dedent(source), encoding="utf-8")
        new.replace(self.home / file)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a Python module (``-m`` is put before it) in a process group of its own; what it prints is kept."""
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("FLASK_", "ANARCHON_"))}
        ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with open(self.home / f"printed-{len(self.processes)}", "w", encoding="utf-8") as printed:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.home,
                env={**theirs, **ours, **environment},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def flask(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return self.start("-W", "error", "-m", "flask", *arguments, **environment)

    def gunicorn(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return self.start("-m", "gunicorn", "--no-control-socket", "--bind", "127.0.0.1:0", *arguments, **environment)

    def printed(self, process: subprocess.Popen[str]) -> str:
        """What it has printed, to either stream."""
        return (self.home / f"printed-{self.processes.index(process)}").read_text(encoding="utf-8", errors="replace")

    def told(self) -> list[dict[str, Any]]:
        """What the handlers have told, a line of JSON each, in the file ``told``."""
        with suppress(FileNotFoundError):
            whole = (self.home / "told").read_text(encoding="utf-8").rpartition("\n")[0]
            return [json.loads(line) for line in whole.splitlines()]
        return []

    def until(self, what: Callable[[], Any]) -> Any:
        """Waits for something to be true, and returns it."""
        end = time.monotonic() + LONGEST_S
        while not (found := what()):
            if time.monotonic() > end:
                told = "\n".join(f"--- {process.args}\n{self.printed(process)}" for process in self.processes)
                raise AssertionError(f"It did not come to pass in {LONGEST_S} s. {self.told()}\n{told}")
            time.sleep(0.02)
        return found

    def end(self, process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
        """Sends it the signal; returns its exit code."""
        process.send_signal(number)
        return process.wait(LONGEST_S)

    def close(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture(scope="session")
def site_type() -> type[Site]:
    """For a fixture that outlives a test; close what is made of it."""
    return Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site without files; whatever happens, no process of it is left."""
    site = Site(tmp_path)
    yield site
    site.close()
