"""Servers that are known by their serving alone: a reloader's child starts, its parent never does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Serve = Callable[..., Any]
Served = dict[str, list[Any]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

FLASK = """
from flask import Flask
import bare_site
app = Flask(__name__)
app.wsgi_app = bare_site.application
"""


@pytest.fixture(scope="module")
def touched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the reloaders look at."""
    path = tmp_path_factory.mktemp("touched") / "file"
    path.touch()
    return path


@pytest.fixture(scope="module")
def served(serve: Serve, touched: Path) -> Served:
    """The programs of each test, in a folder with theirs; they begin together."""
    home = touched.parent
    (home / "flask_site.py").write_text(FLASK)
    (home / "test_site.py").write_text("def test_site():\n    import bare_site\n")
    flask = ("flask", "--app", str(home / "flask_site.py"))
    return {
        "reloading": [
            serve("sqlite", "python", "bare_site.py", str(touched), "--reload"),
            serve("redis", *flask, "run", "--debug", "--port=0", f"--extra-files={touched}"),
        ],
        "serving": [
            serve("sqlite", "python", "bare_site.py"),
            serve("sqlite", "waitress-serve", "--port=0", "--host=127.0.0.1", "bare_site:application"),
            serve("sqlite", *flask, "run", "--port", "0"),
        ],
        "importing": [
            serve("sqlite", *flask, "routes"),
            serve("sqlite", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(home / "test_site.py")),
            serve("sqlite", "python", "-c", "import bare_site"),
            serve("sqlite", "python", "-m", "unittest", "bare_site"),
        ],
    }


def test_of_a_reloader_the_child_starts_and_its_successor_but_never_the_parent(served: Served, touched: Path) -> None:
    servers = served["reloading"]
    for server in servers:
        server.wait_for("begin", 1)
    touched_at = float("-inf")

    def all_reloaded() -> bool:
        nonlocal touched_at
        # Now and then: a reloader that has not begun to look yet takes the file for what it found.
        if time.monotonic() > touched_at + 5:
            os.utime(touched)
            touched_at = time.monotonic()
        return all(len(server.pids("start")) >= 2 for server in servers)

    servers[0].wait_until(all_reloaded, "a successor of each")
    for server in servers:
        # It watches all that it has imported: whoever edits that meanwhile makes for more than one successor.
        server.wait_until(
            lambda server=server: set(server.pids("start")[1:]) & set(server.pids("begin")), "a run of a successor"
        )
    for server in servers:
        server.kill()
        assert server.process.pid in server.pids("imported")
        assert server.faults() == []


def test_a_script_that_serves_starts_when_it_does_and_so_does_what_serves_it(served: Served) -> None:
    for server in served["serving"]:
        server.wait_for("begin", 2)
        assert server.pids("start") == [server.process.pid]
        assert server.faults(1) == []
        assert server.lines("told")[0]["sentence"] is None


def test_commands_and_programs_that_only_import_the_application_start_nothing(served: Served) -> None:
    begun = served["importing"]
    for server in begun:
        server.process.wait(90)
        assert server.lines("start") == []
    assert [server.lines("told")[0]["sentence"] for server in begun] == [
        "The command 'flask' serves no requests.",
        "pytest imports the application, and serves no requests.",
        "No server has been recognised: call scheduler.start() where requests are served.",
        "unittest imports the application, and serves no requests.",
    ]
