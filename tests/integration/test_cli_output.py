"""The command line where standard output is closed, full, left by its reader, or wanted by others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from textwrap import dedent

import pytest

JOBS = """
    import atexit, os, subprocess, sys, threading
    from anarchon import Scheduler

    print("the module prints")
    scheduler = Scheduler(backend="sqlite:///jobs.db")

    @scheduler.every("loud", "1d")
    def loud():
        print("the handler prints")
        os.write(1, b"so does what it calls\\n")
        subprocess.run([sys.executable, "-c", "print('so does a child')"], check=True)

    scheduler.every("chatty", "1d", lambda: print("the handler prints"))

    @scheduler.every("late", "1d", timeout="50ms")
    def late(ctx):
        atexit.register(print, "printed at the end")
        ctx.signal.wait(30)

    def stop(event):
        # It is told on the run's own thread, which the stop would wait for.
        threading.Thread(target=worker.stop).start()

    worker = Scheduler(backend="memory://").every("quick", "20ms", lambda: None).on("success", stop)
"""

#: What becomes of standard output, and in the last two of standard error.
SHELL = {
    "closed": 'exec "$@" >&-',
    "full": 'exec "$@" >/dev/full',
    "open": 'exec "$@"',
    "stderr full": 'exec "$@" 2>/dev/full',
    "stderr closed": 'exec "$@" 2>&-',
}

Anarchon = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def after_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``jobs.py``, and the file that one run of ``loud`` has left."""
    directory = tmp_path_factory.mktemp("after-a-run")
    (directory / "jobs.py").write_text(dedent(JOBS), encoding="utf-8")
    command = [sys.executable, "-m", "anarchon", "run", "jobs:scheduler", "loud"]
    subprocess.run(command, cwd=directory, capture_output=True, timeout=100, check=True)
    return directory


def run(directory: Path, streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``anarchon`` beside ``jobs.py``, the streams as named."""
    command = ["sh", "-c", SHELL[streams], "sh", sys.executable, "-m", "anarchon", *arguments]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=100)


@pytest.fixture
def anarchon(tmp_path: Path) -> Anarchon:
    """Runs ``anarchon`` in a directory of the test's own."""
    (tmp_path / "jobs.py").write_text(dedent(JOBS), encoding="utf-8")
    return partial(run, tmp_path)


COMMANDS = [
    ["run", "jobs:scheduler", "chatty"],
    ["run", "jobs:scheduler", "loud", "--json"],
    ["jobs", "jobs:scheduler"],
    ["jobs", "jobs:scheduler", "--json"],
    ["history", "sqlite:///jobs.db", "loud"],
    ["active", "sqlite:///jobs.db", "loud", "--json"],
    ["next", "@daily"],
    ["next", "@daily", "--json"],
    ["demo"],
    ["--version"],
    ["run", "--help"],
]


WHY = {"closed": "standard output is closed", "full": "No space left on device"}

Key = tuple[str, int]


@pytest.fixture(scope="module")
def answers(after_a_run: Path) -> Iterator[dict[Key, Future[subprocess.CompletedProcess[str]]]]:
    """What becomes of each command, two at a time."""

    def answer(streams: str, number: int) -> subprocess.CompletedProcess[str]:
        directory = after_a_run.with_name(f"{streams}-{number}")
        shutil.copytree(after_a_run, directory)
        return run(directory, streams, *COMMANDS[number])

    with ThreadPoolExecutor(2) as pool:
        yield {key: pool.submit(answer, *key) for key in product(WHY, range(len(COMMANDS)))}


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(command) for command in COMMANDS])
@pytest.mark.parametrize("stdout", WHY)
def test_an_answer_that_cannot_be_printed_has_a_code_of_its_own(
    stdout: str, number: int, answers: dict[Key, Future[subprocess.CompletedProcess[str]]]
) -> None:
    done = answers[stdout, number].result()
    assert done.returncode == 7
    assert done.stderr.splitlines()[-1] == f"anarchon: The answer could not be printed: {WHY[stdout]}."
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("stdout", ["closed", "full"])
def test_a_run_whose_record_cannot_be_printed_is_done(stdout: str, anarchon: Anarchon) -> None:
    assert anarchon(stdout, "run", "jobs:scheduler", "loud", "--json").returncode == 7
    (record,) = json.loads(anarchon("open", "history", "sqlite:///jobs.db", "loud", "--json").stdout)
    assert record["status"] == "success"


def test_a_worker_has_no_answer_and_needs_no_standard_output(anarchon: Anarchon) -> None:
    done = anarchon("closed", "worker", "jobs:worker")
    assert done.returncode == 0
    assert done.stderr.endswith("Stopped: every run has ended.\n")


def test_a_command_that_is_refused_says_so_whatever_becomes_of_the_output(anarchon: Anarchon) -> None:
    done = anarchon("full", "run", "jobs:scheduler", "nothing")
    assert done.returncode == 6
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("stderr", ["stderr full", "stderr closed"])
def test_what_cannot_be_said_beside_the_answer_changes_nothing(stderr: str, anarchon: Anarchon) -> None:
    done = anarchon(stderr, "history", "memory://", "nothing", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    done = anarchon(stderr, "history", "memory://", "nothing")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_run_as_json_is_one_document_whatever_else_is_printed(anarchon: Anarchon) -> None:
    done = anarchon("open", "run", "jobs:scheduler", "loud", "--json")
    assert json.loads(done.stdout)["status"] == "success"
    assert done.stderr.splitlines() == [
        "the module prints",
        "the handler prints",
        "so does what it calls",
        "so does a child",
    ]


def test_what_is_printed_after_the_record_is_no_part_of_the_document(anarchon: Anarchon) -> None:
    done = anarchon("open", "run", "jobs:scheduler", "late", "--json")
    assert json.loads(done.stdout)["status"] == "failed"
    assert done.stderr.endswith("printed at the end\n")


@pytest.mark.parametrize("command", [["run", "jobs:scheduler", "loud", "--json"], ["--help"], ["next", "@daily"]])
def test_a_reader_that_has_left_is_no_error(command: list[str], tmp_path: Path, anarchon: Anarchon) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "anarchon", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 141
    assert "anarchon: " not in err
    assert "Exception ignored" not in err
