"""An example project as its readers have it: copied, started by the lines of its README, and asked over HTTP."""

from __future__ import annotations

import getopt
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anarchon import Scheduler, SQLiteBackend

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"

#: No test waits this long unless something is wrong.
_LONGEST_S = 90
_LOOK_AGAIN_S = 0.03

_T = TypeVar("_T")


class Example:
    """A copy of an example, with the processes that were started in it.

    Args:
        name: of the folder under ``docs/examples``.
        folder: where the copy is made.
        environment: what the processes have in theirs, beside what every process needs.
    """

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        passed_over = shutil.ignore_patterns(".venv", "var", "instance", "__pycache__")
        shutil.copytree(EXAMPLES / name, folder, ignore=passed_over)
        # Stands for the first command of the README, which makes an environment and installs anarchon into it.
        (folder / ".venv").symlink_to(sys.prefix)
        self.lines = _commands((folder / "README.rst").read_text(encoding="utf-8"))
        passed_on = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        settled = {"HOME": str(folder), "PYTHONPATH": str(ROOT), "BIND": "127.0.0.1:0"}
        self.environment = {**passed_on, **settled, **environment}
        self._log = folder / "log"
        self._log.touch()
        self.address = ""
        #: Asks for JSON of the jobs, such as ``jobs/mail/runs``, as whoever may: the status and the body.
        self.read: Callable[[str], tuple[int, Any]] = self.curl
        self._process: subprocess.Popen[bytes] | None = None

    def line(self, *words: str) -> str:
        """The one command of the README that has all these words; a space after a word means that it ends there."""
        [found] = [line for line in self.lines if all(word in f"{line} " for word in words)]
        return found

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *words: str) -> None:
        """Runs a command of the README that goes on until it is stopped; returns when gunicorn listens."""
        self._log.write_text("")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {self.line(*words)}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.address = self.wait(lambda: re.findall(r"Listening at: http://(\S+)\s", self.told()))[-1]

    def stop(self) -> int:
        """SIGTERM, as a process manager sends it; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_LONGEST_S)

    def close(self) -> None:
        """Whatever is still there of the session that was started is killed."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_LONGEST_S)

    def run(self, *words: str, more: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the README to its end, with ``more`` after it."""
        return self.execute(f"{self.line(*words)} {more}", **environment)

    def execute(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, in the example's folder."""
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )

    def curl(self, *words: str) -> tuple[int, Any]:
        """Asks what a curl line of the README asks; returns the status and the JSON body."""
        line = re.sub(r"\$\(cat (\S+)\)", lambda found: (self.folder / found[1]).read_text(), self.line("curl", *words))
        line = re.sub(r"\$([A-Z_]+)", lambda found: self.environment[found[1]], line)
        options, [url] = getopt.getopt(shlex.split(line)[1:], "H:X:")
        method = dict(options).get("-X", "GET")
        headers = dict(value.split(": ", 1) for option, value in options if option == "-H")
        status, _, body = self.ask(url.removeprefix("http://127.0.0.1:8000"), method, headers)
        return status, json.loads(body)

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, body: str | None = None
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """One request: the status, the headers and the body of the answer."""
        connection = http.client.HTTPConnection(self.address, timeout=_LONGEST_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def records(self, job: str) -> list[dict[str, Any]]:
        """A job's history, newest first."""
        return self._found(f"jobs/{job}/runs")

    def active(self, job: str) -> list[dict[str, Any]]:
        """What has not finished of a job."""
        return self._found(f"jobs/{job}/active")

    def _found(self, what: str) -> list[dict[str, Any]]:
        status, found = self.read(what)
        assert status == 200, found
        assert isinstance(found, list)
        return found

    def check_slots_of_totals(self, rows: Callable[[], list[str]]) -> None:
        """Waits until several processes have run some slots of ``totals``, and checks that no slot ran twice.

        Args:
            rows: the slots of what the job has written, a row a run, such as ``2026-03-02T08:00:00``.
        """
        self.wait(lambda: len({record["instance_id"] for record in self.records("totals")}) > 1)
        self.wait(lambda: len(self.records("totals")) > 3)
        # The rows first: by the time of the history, whatever wrote one of them is in it, but for the newest slot's.
        written = Counter(rows())
        records = self.records("totals")
        attempts = Counter(record["slot"][:19] for record in records)
        judged = {slot: count for slot, count in written.items() if min(attempts) < slot < max(attempts)}
        assert len(judged) > 1, (written, records)
        assert all(count <= attempts[slot] for slot, count in judged.items()), (written, records)
        succeeded = Counter(record["slot"] for record in records if record["status"] == "success")
        assert max(succeeded.values()) == 1, records

    def kill_who_mails(self, add_invoices: str, run_by_hand: Callable[[], str], pid_of: Callable[[str], int]) -> None:
        """Kills the process that runs ``mail`` while it does, and waits until another one has taken that run over.

        Args:
            add_invoices: a word of the command that makes half a minute's work.
            run_by_hand: tries to run ``mail``, too, before that; returns what it is told.
            pid_of: finds the process id of an instance.

        On a machine that stands still, the run may have ended before it was killed, or a newer slot have come due in
        the moment before the takeover; then it is done again.
        """
        for _ in range(10):
            added = self.run(add_invoices)
            assert added.returncode == 0, added.stderr
            run = self.wait(lambda: self.active("mail"))[0]
            told = run_by_hand()
            if run["fence"] in [left["fence"] for left in self.active("mail")]:
                assert run["instance_id"] in told
            with suppress(ProcessLookupError):
                os.kill(pid_of(run["instance_id"]), signal.SIGKILL)
            killed = self.wait(lambda run=run: [one for one in self.records("mail") if one["fence"] == run["fence"]])[0]
            others = [one for one in [*self.active("mail"), *self.records("mail")] if one["run_id"] == run["run_id"]]
            taken = [one for one in others if one["fence"] > run["fence"]]
            if killed["status"] == "lost" and taken:
                break
        assert (killed["status"], killed["instance_id"]) == ("lost", run["instance_id"])
        assert {one["trigger"] for one in taken} == {"takeover"}
        assert run["attempt"] + 1 in [one["attempt"] for one in taken]

    def check_that_it_stops_in_order(self, start: str, store: str) -> None:
        """Stops it, and checks that nobody has to wait for a lease to run out.

        A run that is told to stop then has two seconds, which are too few where the machine stands still for as long;
        then it is started and stopped once more.

        Args:
            start: a word of the command that starts it.
            store: the file of the jobs.
        """
        for _ in range(5):
            self.wait(lambda: self.records("totals"))
            assert self.stop() == 0
            reader = Scheduler(SQLiteBackend(self.folder / store))
            left = [run for job in ("totals", "mail", "digest") for run in reader.active(job) if run.lease_left > 0]
            reader.stop()
            if not left:
                break
            self.start(start)
        assert left == []

    def told(self) -> str:
        """What was started has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, look: Callable[[], _T]) -> _T:
        """Looks again until there is something, and returns it."""
        deadline = time.monotonic() + _LONGEST_S
        while True:
            running = self.running  # asked first: it may do what is waited for, and then end
            if found := look():
                return found
            assert running, f"It ended:\n{self.told()}"
            assert time.monotonic() < deadline, f"It never came:\n{self.told()}"
            time.sleep(_LOOK_AGAIN_S)

    def query(self, database: str, sql: str) -> list[Any]:
        """The rows of an example's own database."""
        connection = sqlite3.connect(self.folder / database, timeout=_LONGEST_S)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


def _commands(readme: str) -> list[str]:
    """The lines of the literal blocks that follow a ``::`` at the end of a paragraph."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", re.sub(r"(?m)^\.\. .*::.*\n", "", readme))
    return [line for block in blocks for line in textwrap.dedent(block).splitlines() if line]


@pytest.fixture(scope="module")
def make_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Example]]:
    """Makes copies of examples; whatever was started in them is gone when the module's tests are over."""
    made: list[Example] = []

    def make(name: str, **environment: str) -> Example:
        made.append(Example(name, tmp_path_factory.mktemp(name) / "copy", environment))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for one in made:
        assert "Traceback" not in one.told(), one.told()
