"""The page on HTTP: its commands are run as they stand there, and its tables are what the code says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "http.rst").read_text(encoding="utf-8")
PATIENCE_S = 60


def blocks(language: str) -> list[str]:
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", PAGE)
    return [textwrap.dedent(block) for block in found]


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a terminal, and what the page shows of its answer."""
    return [
        (command, shown.strip()) for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    ]


class Terminal:
    """Runs commands in a directory, with the worker's port in place of the page's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self._environ.pop("ANARCHON_TOKEN", None)
        self._worker: subprocess.Popen[bytes] | None = None
        self.place = "127.0.0.1:9100"

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"umask 077; {command.replace('127.0.0.1:9100', self.place)}"],
            cwd=self._directory,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, command: str) -> None:
        """Starts the worker, on a port that is free; returns when it answers."""
        assert " --http :9100 " in command
        with open(self._directory / "log", "wb") as log:
            self._worker = subprocess.Popen(
                command.replace(":9100", ":0").split(),
                cwd=self._directory,
                env=self._environ,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(r" at http://(\S+[0-9])\.\n", (self._directory / "log").read_text())):
            assert self._worker.poll() is None and time.monotonic() < until, (self._directory / "log").read_text()
            time.sleep(0.02)
        self.place = found[1]

    def close(self) -> int | None:
        if self._worker is None:
            return None
        self._worker.send_signal(signal.SIGTERM)
        try:
            return self._worker.wait(PATIENCE_S)
        finally:
            if self._worker.poll() is None:
                os.killpg(self._worker.pid, signal.SIGKILL)
                self._worker.wait(PATIENCE_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    assert terminal.close() in (0, None)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands use curl")
def test_the_page_leads_from_nothing_to_a_run(tmp_path: Path, terminal: Terminal) -> None:
    jobs, ask, _ = blocks("python")
    (tmp_path / "jobs.py").write_text(jobs, encoding="utf-8")
    ran = 0
    for block in blocks("console"):
        for command, shown in commands(block):
            if command.startswith("anarchon worker"):
                terminal.start(command)
                continue
            answer = terminal.run(command)
            if command.startswith("curl"):
                assert_alike(json.loads(answer), json.loads(shown))
                ran += 1
    assert ran == PAGE.count("$ curl") == 5
    told = terminal.run(f"python3 -c '{ask}'")
    assert told == "success on worker-1\n"
    assert ((tmp_path / "token").stat().st_mode & 0o077, (tmp_path / "header").stat().st_mode & 0o077) == (0, 0)


def assert_alike(answer: object, shown: object) -> None:
    """The page shows what is answered, but for the instants and numbers of that one run."""
    if not isinstance(answer, dict) or not isinstance(shown, dict):
        assert answer == shown
        return
    assert list(answer) == list(shown)
    for name, value in shown.items():
        assert type(answer[name]) is type(value)
        if name in ("job", "trigger", "status", "instance_id", "attempt", "error", "message", "nearest"):
            assert answer[name] == value


def test_the_page_has_every_status_and_word_that_the_code_has() -> None:
    web = ROOT / "anarchon" / "web"
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(web.glob("*.py")))
    said = set(re.findall(r'refusal\(\s*(\d{3}), "([a-z-]+)"', code))
    own = re.search(r"_OWN_ERRORS = \{(.*)\}", code)
    assert own is not None
    said |= set(re.findall(r'(\d{3}): "([a-z-]+)"', own[1]))
    assert set(re.findall(r"^(\d{3})     ``([a-z-]+)``", PAGE, re.MULTILINE)) == said
