"""The page on Flask: its files are written as they stand there, and its commands are run, every one."""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from servers import free_port

ROOT = Path(__file__).resolve().parents[3]

PAGE = (ROOT / "docs/flask.rst").read_text(encoding="utf-8")

FILES = dict(re.findall(r"\.\. code-block:: python\n\n    # (\S+)\n((?:    .*\n|\n)+)", PAGE))

COMMANDS = [
    line.strip()
    for block in re.findall(r"::\n\n((?:    .*\n)+)", re.sub(r"\.\. code-block::.*", "", PAGE))
    for line in block.splitlines()
]

#: What a command that goes on until it is told to stop prints when it works.
SERVES = {
    "flask --app hello anarchon worker": "customers are in sync as of",
    "FLASK_ANARCHON_AUTOSTART=true gunicorn --workers 4 'shop:create_app()'": "in sync",
    "flask --app shop anarchon worker": "in sync",
    "flask --app shop run --debug": "Running on",
}

#: What one that ends prints.
ENDS = {
    "flask --app hello anarchon jobs": "digest",
    "flask --app hello anarchon run digest": "the digest is sent",
    "flask --app shop anarchon run sync --json": '"status": "success"',
    "flask --app shop anarchon history sync --limit 3": "success",
    "flask --app shop anarchon active sync": "",
    "pytest test_shop.py": "3 passed",
}

AFTER_OTHERS = {"flask --app shop anarchon history sync --limit 3"}

NOT_RUN_HERE = {
    "pip install 'anarchon[flask]'",
    # What it asks for is asked below.
    "curl -H 'X-Role: operator' http://127.0.0.1:5000/cron/jobs/sync/runs?limit=3",
}


@pytest.fixture
def page(site: Any) -> Any:
    """A site with the files of the page; what is due every ten seconds there is due every second here."""
    (site.home / "shop").mkdir()
    for name, source in FILES.items():
        site.write(name, textwrap.dedent(source).replace('"10s"', '"1s"'))
    return site


def start(site: Any, command: str) -> subprocess.Popen[str]:
    words = shlex.split(command)
    environment = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    program, *arguments = words[len(environment) :]
    if program == "gunicorn":
        process: subprocess.Popen[str] = site.gunicorn(*arguments, **environment)
        return process
    if arguments[-2:] == ["run", "--debug"]:
        arguments += ["--port", str(free_port())]
    return site.start("-m", program, *arguments, **environment)


def test_every_command_of_the_page_is_run() -> None:
    assert set(FILES) == {"hello.py", "shop/__init__.py", "shop/jobs.py", "test_shop.py"}
    assert set(COMMANDS) == {*SERVES, *ENDS, *NOT_RUN_HERE}


def test_commands_that_end_do_what_the_page_says(page: Any) -> None:
    for commands in (set(ENDS) - AFTER_OTHERS, AFTER_OTHERS):
        for command, process in {command: start(page, command) for command in commands}.items():
            assert process.wait(60) == 0, page.printed(process)
            assert ENDS[command] in page.printed(process)


@pytest.mark.parametrize("command", SERVES)
def test_command_that_serves_does_what_the_page_says(page: Any, command: str) -> None:
    process = start(page, command)
    page.until(lambda: SERVES[command] in page.printed(process))
    assert process.poll() is None


def test_page_of_the_first_app_and_json_of_the_second_are_as_told(page: Any) -> None:
    asked = """
        from hello import app as hello
        from shop import create_app

        with hello.app_context():
            assert hello.test_client().get("/").text == "Nothing has been synced yet."
            hello.extensions["anarchon"].run_now("sync")
            assert hello.test_client().get("/").text.startswith("The last sync was at 20")
        shop = create_app().test_client()
        path = "/cron/jobs/sync/runs?limit=3"
        assert shop.get(path).status_code == 403
        answer = shop.get(path, headers={"X-Role": "operator"})
        assert [run["status"] for run in answer.json] == ["success"], answer.json
    """
    page.write("asked.py", asked)
    process = page.start("-W", "error", "asked.py")
    assert process.wait(60) == 0, page.printed(process)
