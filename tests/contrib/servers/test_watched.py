"""Servers that are known by their serving alone: a reloader's child starts, its parent never does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Serve = Callable[..., Any]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

FLASK = """
from flask import Flask
import bare_site
app = Flask(__name__)
app.wsgi_app = bare_site.application
"""


def test_a_script_that_serves_starts_when_it_does_and_so_does_what_serves_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "flask_site.py").write_text(FLASK)
    servers = [
        serve("sqlite", "python", "bare_site.py"),
        serve("sqlite", "waitress-serve", "--port=0", "--host=127.0.0.1", "bare_site:application"),
        serve("sqlite", "flask", "--app", str(tmp_path / "flask_site.py"), "run", "--port", "0"),
    ]
    for server in servers:
        server.wait_for("begin", 2)
        assert server.pids("start") == [server.process.pid]
        assert server.faults(1) == []
        assert server.lines("told")[0]["sentence"] is None


def test_of_a_reloader_the_child_starts_and_its_successor_but_never_the_parent(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "flask_site.py").write_text(FLASK)
    touched = tmp_path / "touched"
    touched.touch()
    servers = [
        serve("sqlite", "python", "bare_site.py", str(touched), "--reload"),
        serve("redis", "flask", "--app", str(tmp_path / "flask_site.py"), "run", "--debug", "--port=0",
              f"--extra-files={touched}"),
    ]  # fmt: skip
    for server in servers:
        server.wait_for("begin", 1)
    os.utime(touched, (4e9, 4e9))
    for server in servers:
        server.wait_for("start", 2)
        # It watches all that it has imported: whoever edits that meanwhile makes for more than one successor.
        server.wait_until(
            lambda server=server: set(server.pids("start")[1:]) & set(server.pids("begin")), "a run of a successor"
        )
        server.tell(signal.SIGINT, each=True)
    for server in servers:
        server.end(signal.SIGINT, each=True)
        assert server.process.pid in server.pids("imported")
        assert server.faults() == []


def test_commands_and_programs_that_only_import_the_application_start_nothing(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "flask_site.py").write_text(FLASK)
    (tmp_path / "test_site.py").write_text("def test_site():\n    import bare_site\n")
    begun = [
        serve("sqlite", "flask", "--app", str(tmp_path / "flask_site.py"), "routes"),
        serve("sqlite", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(tmp_path / "test_site.py")),
        serve("sqlite", "python", "-c", "import bare_site"),
        serve("sqlite", "python", "-m", "unittest", "bare_site"),
    ]
    for server in begun:
        server.process.wait(90)
        assert server.lines("start") == []
    assert [server.lines("told")[0]["sentence"] for server in begun] == [
        "The command 'flask' serves no requests.",
        "pytest imports the application, and serves no requests.",
        "No server has been recognised: call scheduler.start() where requests are served.",
        "unittest imports the application, and serves no requests.",
    ]
