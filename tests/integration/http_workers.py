"""Real ``anarchon worker --http`` processes on one store, and what they said of themselves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

from anarchon import Scheduler, open_backend
from anarchon.web import RemoteWorkers

__all__ = ["TOKEN", "HttpWorker", "HttpWorkers"]

TOKEN = "correct-horse-battery-staple"

# All but ``tick`` are due once in four years; each that can be waited for says in a file of its own that it runs.
_JOBS = """
    import os, pathlib, threading
    from anarchon import Scheduler, open_backend

    scheduler = Scheduler(
        open_backend(os.environ["STORE"], prefix=os.environ.get("STORE_PREFIX")), instance_id=os.environ["NAME"]
    )

    def begun(ctx):
        pathlib.Path(f"{ctx.job}.{ctx.instance_id}").touch()

    @scheduler.every("tick", "1s")
    def tick():
        pass

    @scheduler.cron("sync", "0 0 29 2 *")
    def sync():
        pass

    @scheduler.cron("long", "0 0 29 2 *")
    def long(ctx):
        begun(ctx)
        ctx.signal.wait(100)
        ctx.raise_if_cancelled()

    @scheduler.cron("deaf", "0 0 29 2 *")
    def deaf(ctx):
        begun(ctx)
        threading.Event().wait(100)
"""

_LOOK_AGAIN_S = 0.02
_PATIENCE_S = 60


class HttpWorker:
    """One worker process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.name = name
        self.process = process
        self._directory = directory

    @property
    def said(self) -> str:
        """What it has written to standard output and standard error."""
        return (self._directory / f"{self.name}.log").read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        """Where it answers; waits until it does."""
        return self.wait_for(r" at (http://\S+[0-9])\.\n")

    @property
    def remote(self) -> RemoteWorkers:
        return RemoteWorkers(self.url, TOKEN, timeout="60s")

    def wait_for(self, pattern: str) -> str:
        """The first group of the pattern in what it says."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.said)
            if found:
                return found[1] if found.groups() else found[0]
            assert not ended and time.monotonic() < until, f"{self.name} did not say {pattern!r}:\n{self.said}"
            time.sleep(_LOOK_AGAIN_S)

    def wait_until_it_runs(self, job: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not (self._directory / f"{job}.{self.name}").exists():
            assert time.monotonic() < until, self.said
            time.sleep(_LOOK_AGAIN_S)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal; returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(_PATIENCE_S)


class HttpWorkers:
    """Worker processes on one store; close it, and they are gone."""

    def __init__(self, directory: Path, url: str, prefix: str | None = None) -> None:
        self._directory = directory
        self._url, self._prefix = url, prefix
        self._started: list[HttpWorker] = []
        (directory / "jobs.py").write_text(dedent(_JOBS), encoding="utf-8")
        self.token_file = directory / "token"
        self.token_file.write_text(f"{TOKEN}\n", encoding="ascii")
        self.token_file.chmod(0o600)

    def start(self, name: str, *options: str, http: str = ":0", token: str | None = None) -> HttpWorker:
        """Starts a worker; its options: those of the command, by default the token file.

        Args:
            token: what stands in the environment.
        """
        if not options and token is None:
            options = ("--token-file", str(self.token_file))
        environ = {**os.environ, "STORE": self._url, "NAME": name}
        environ.pop("ANARCHON_TOKEN", None)
        if self._prefix is not None:
            environ["STORE_PREFIX"] = self._prefix
        if token is not None:
            environ["ANARCHON_TOKEN"] = token
        with open(self._directory / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "anarchon", "worker", "jobs:scheduler", "--http", http, *options],
                cwd=self._directory,
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker = HttpWorker(name, process, self._directory)
        self._started.append(worker)
        return worker

    def reader(self) -> Scheduler:
        """As an API process has it: a scheduler without jobs."""
        return Scheduler(open_backend(self._url, prefix=self._prefix))

    def close(self) -> None:
        for worker in self._started:
            if worker.process.poll() is None:
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait(_PATIENCE_S)
