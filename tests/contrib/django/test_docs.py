"""The page on Django: its files are written and its commands run as they stand there, in order, from nothing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "django.rst").read_text(encoding="utf-8")

#: What stands on the page, in order: a command, or a file (its name) with what is added to it.
STEPS = re.compile(
    r"^    \$ (?P<command>.+)$"
    r"|^\.\. code-block:: python\n    :caption: (?P<file>.+)\n\n(?P<text>(?:    .*\n|\n)+)",
    re.MULTILINE,
)

ASK = 'from django.test import Client; print(*Client(HTTP_HOST="localhost").get("/cron/jobs"))'

pytestmark = pytest.mark.timeout(240)


def test_every_file_and_every_command_of_the_page_does_what_it_says(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.code = site.folder / "project"
    site.code.mkdir()
    # The site of the page has settings of its own.
    site.environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "yes"}
    bin = Path(sys.executable).parent
    site.environment["PATH"] = f"{bin}:/usr/bin:/bin"
    ran = []
    for step in STEPS.finditer(PAGE):
        if step["file"]:
            path = site.code / step["file"]
            with path.open("a", encoding="utf-8") as file:
                # The reader has ten seconds; the test has not.
                file.write("\n" + textwrap.dedent(step["text"]).replace('"10s"', '"1s"'))
            continue
        command = step["command"]
        ran.append(command)
        if command.startswith("pip install"):
            assert command == "pip install 'anarchon[django]'"
        elif command.startswith("gunicorn"):
            serve(site, f"{command} --bind 127.0.0.1:0")
        elif command == "python manage.py anarchon_worker":
            work(site, command)
        else:
            run(site, command)
    assert len(ran) >= 12
    told = run(site, f"python manage.py shell -v 0 -c '{ASK}'")
    assert "forbidden" in told


def run(site: Any, command: str) -> str:
    done = subprocess.run(
        ["sh", "-c", command.replace("python ", f"{sys.executable} ", 1)],
        cwd=site.code,
        env=site._environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def work(site: Any, command: str) -> None:
    """Starts two, until a slot has been run, and stops them."""
    workers = [site.start("sh", "-c", f"exec {command.replace('python', sys.executable, 1)}") for _ in range(2)]
    workers[0].until(lambda: any("customers are in sync" in worker.told for worker in workers))
    for worker in workers:
        stop(worker)
    assert [worker.wait() for worker in workers] == [0, 0]


def stop(worker: Any) -> None:
    """Not before it has set up what a SIGTERM does to it."""
    worker.until(lambda: catches(worker.pid, signal.SIGTERM))
    worker.send(signal.SIGTERM)


def catches(pid: int, number: signal.Signals) -> bool:
    [mask] = re.findall(r"^SigCgt:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def serve(site: Any, command: str) -> None:
    """Starts the web workers, until a slot has been run and a page has been asked for."""
    server = site.start("sh", "-c", f"exec {sys.executable} -m {command}")
    server.until(lambda: "customers are in sync" in server.told)
    [address] = re.findall(r"Listening at: (\S+)", server.told)
    with urllib.request.urlopen(f"{address}/", timeout=60) as page:
        assert page.status == 200
    server.kill()


def test_the_extra_that_the_page_installs_is_there() -> None:
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    assert "Django" in declared["options.extras_require"]["django"]


def test_every_setting_and_every_check_stands_on_the_page() -> None:
    from anarchon.contrib.django.settings import SETTINGS
    from anarchon.options import option_names

    of_jobs = {name.upper() for name in option_names()}
    assert [name for name in SETTINGS if name not in of_jobs and f"``{name}``" not in PAGE] == []
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "anarchon/contrib/django").glob("*.py"))
    assert set(re.findall(r'"(anarchon\.[EW]\d+)"', source)) == set(re.findall(r"^``(anarchon\.[EW]\d+)``", PAGE, re.M))


def test_every_command_stands_on_the_page() -> None:
    found = (ROOT / "anarchon/contrib/django/management/commands").glob("anarchon_*.py")
    assert {path.stem for path in found} == set(re.findall(r"^``(anarchon_\w+)", PAGE, re.MULTILINE))
