"""The page on gunicorn and uWSGI: its files are written as they stand there, and its commands are run, every one."""

from __future__ import annotations

import re
import shlex
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anarchon import RunRecord, Scheduler

Serve = Callable[..., Any]
Served = dict[str, list[tuple[Any, Path]]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

PAGE = (Path(__file__).parents[3] / "docs/gunicorn_uwsgi.rst").read_text(encoding="utf-8")

FILES = {
    name: textwrap.dedent(text)
    for name, text in re.findall(r"\.\. code-block:: \w+\n    :caption: (\S+)\n\n((?:    .*\n|\n)+)", PAGE)
}

COMMANDS = re.findall(r"^    \$ (.*)$", PAGE, re.MULTILINE)

#: Those whose workers wait for runs that go on for longer than two seconds.
PATIENT = [
    "gunicorn shop:application --workers 3 --preload --max-requests 1000 --max-requests-jitter 200",
    "uwsgi --ini uwsgi.ini --module patient_shop",
]

BY_HAND = [
    "gunicorn shop:application --workers 3 --config gunicorn_by_hand.conf.py",
    "uwsgi --ini uwsgi.ini --module shop_by_hand",
]

PLAIN = ["gunicorn shop:application --workers 3", "uwsgi --ini uwsgi.ini"]


def start(serve: Serve, home: Path, command: str, **changes: str) -> Any:
    """Starts a command of the page in a folder with its files; it listens on a socket of the test's."""
    home.mkdir()
    program, *arguments = shlex.split(command)
    for name, text in FILES.items():
        for old, new in changes.items():
            text = text.replace(OLD[old], new)
        # gunicorn reads a file of this name wherever it finds one.
        if name != "gunicorn.conf.py" or command in PATIENT:
            (home / name).write_text(text.replace(":8000", "{socket}"))
    if program == "gunicorn":
        arguments += ["--bind", "unix:{socket}", "--no-control-socket"]
    return serve("none", program, *arguments, cwd=home)


#: What a test changes in the page's files.
OLD = {"work": 'print("tick of", ctx.instance_id, flush=True)', "automatic": "when_serving(scheduler.start)\n"}


def history(home: Path) -> list[RunRecord]:
    reader = Scheduler(f"sqlite:///{home}/jobs.db")
    try:
        return reader.history("tick", 200)
    finally:
        reader.stop()


def runs(server: Any, home: Path) -> bool:
    return len(history(home)) < server.output.count("begun")


def test_every_command_of_the_page_is_run() -> None:
    assert sorted(COMMANDS) == sorted([*PLAIN, *PATIENT, *BY_HAND])


@pytest.fixture(scope="module")
def served(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The servers of each test, and their homes; they begin together."""
    # For longer than the two seconds that a run has where nobody waits.
    work = 'print("begun", flush=True); __import__("time").sleep(3)'

    def begin(command: str, **changes: str) -> tuple[Any, Path]:
        home = tmp_path_factory.mktemp("site") / "home"
        return start(serve, home, command, **changes), home

    return {
        "patient": [begin(command, work=work) for command in PATIENT],
        "plain": [begin(command) for command in PLAIN] + [begin(command, automatic="") for command in BY_HAND],
    }


def test_three_workers_share_the_slots_started_by_themselves_or_by_hand(
    served: Served,
) -> None:
    for server, _ in served["plain"]:
        server.wait_until(lambda server=server: server.output.count("tick of") >= 3, "three runs")
        server.wait_until_all_hear(1 + 3)
        server.tell()
    for server, home in served["plain"]:
        assert server.end(signal.SIGTERM) == 0
        records = history(home)
        slots = [record.slot for record in records if record.status == "success"]
        assert len(set(slots)) == len(slots) >= 3
        # One that met the end of its process may not have begun.
        assert {record.status for record in records} <= {"success", "interrupted"}
        assert all(f"-{server.process.pid}-" not in record.instance_id for record in records)


def test_a_server_that_is_told_to_wait_ends_when_its_runs_have(served: Served) -> None:
    for server, home in served["patient"]:
        server.wait_until_all_hear(1 + 3)
        server.wait_until(lambda server=server, home=home: runs(server, home), "a run that goes on")
        server.tell()
    for server, home in served["patient"]:
        assert server.end(signal.SIGTERM) == 0
        statuses = [record.status for record in history(home)]
        assert statuses.count("success") == server.output.count("begun") > 0
        assert set(statuses) <= {"success", "interrupted"}
