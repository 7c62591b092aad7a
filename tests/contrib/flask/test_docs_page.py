"""The page on Flask: its files are written as they stand there, and its commands are run, every one."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

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
}

DEVELOPS = "flask --app shop run --debug"

ASKS = "curl -H 'X-Role: operator' 'http://127.0.0.1:5000/cron/jobs/sync/runs?limit=3'"

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

INSTALLS = "pip install 'anarchon[flask]'"


@pytest.fixture(scope="module")
def make_page(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Any]]:
    """Makes sites with the files of the page; what is due every ten seconds there is due every second here."""
    sites = []

    def make() -> Any:
        site = site_type(tmp_path_factory.mktemp("page"))
        sites.append(site)
        (site.home / "shop").mkdir()
        for name, source in FILES.items():
            site.write(name, textwrap.dedent(source).replace('"10s"', '"1s"'))
        return site

    yield make
    for site in sites:
        site.close()


def start(site: Any, command: str) -> subprocess.Popen[str]:
    words = shlex.split(command)
    environment = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    program, *arguments = words[len(environment) :]
    if program == "gunicorn":
        process: subprocess.Popen[str] = site.gunicorn(*arguments, **environment)
        return process
    if command == DEVELOPS:
        arguments += ["--port", "0"]
    return site.start("-m", program, *arguments, **environment)


@pytest.fixture(scope="module")
def begun(make_page: Callable[[], Any]) -> dict[str, tuple[Any, subprocess.Popen[str]]]:
    """The page and the process of each command that needs no other; they begin together.

    Those that go on have pages of their own, and the others one.
    """
    shared = make_page()
    pages = {**{command: make_page() for command in SERVES}, **dict.fromkeys(set(ENDS) - AFTER_OTHERS, shared)}
    return {command: (page, start(page, command)) for command, page in pages.items()}


def test_every_command_of_the_page_is_run() -> None:
    assert set(FILES) == {"hello.py", "shop/__init__.py", "shop/jobs.py", "test_shop.py"}
    assert set(COMMANDS) == {INSTALLS, *SERVES, *ENDS, DEVELOPS, ASKS}


@pytest.mark.parametrize("command", SERVES)
def test_command_that_serves_does_what_the_page_says(
    begun: dict[str, tuple[Any, subprocess.Popen[str]]], command: str
) -> None:
    page, process = begun[command]
    page.until(lambda: SERVES[command] in page.printed(process))
    assert process.poll() is None


def test_commands_that_end_do_what_the_page_says(begun: dict[str, tuple[Any, subprocess.Popen[str]]]) -> None:
    ending = {command: begun[command] for command in set(ENDS) - AFTER_OTHERS}
    for command, (page, process) in ending.items():
        assert process.wait(90) == 0, page.printed(process)
        assert ENDS[command] in page.printed(process)
    for command in AFTER_OTHERS:
        process = start(page, command)
        assert process.wait(90) == 0, page.printed(process)
        assert ENDS[command] in page.printed(process)


def test_json_is_answered_as_the_page_asks_for_it(make_page: Callable[[], Any]) -> None:
    page = make_page()
    server = start(page, DEVELOPS)
    assert start(page, "flask --app shop anarchon run sync").wait(90) == 0
    address = page.until(lambda: re.search(r"Running on (http://\S+)\s", page.printed(server)))[1]
    _, _, header, url = shlex.split(ASKS)
    request = urllib.request.Request(address + urlsplit(url)._replace(scheme="", netloc="").geturl())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value:
        assert (refused.value.code, json.load(refused.value)["error"]) == (403, "forbidden")
    request.add_header(*header.split(": "))
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert [run["status"] for run in json.load(answer)] == ["success"]


def test_first_app_says_when_it_was_in_sync(make_page: Callable[[], Any]) -> None:
    page = make_page()
    asked = """
        from hello import app

        with app.app_context():
            assert app.test_client().get("/").text == "Nothing has been synced yet."
            app.extensions["anarchon"].run_now("sync")
            assert app.test_client().get("/").text.startswith("The last sync was at 20")
    """
    page.write("asked.py", asked)
    process = page.start("-W", "error", "asked.py")
    assert process.wait(90) == 0, page.printed(process)
