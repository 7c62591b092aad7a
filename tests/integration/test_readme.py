"""The README's lines are run as they stand there."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 4


def examples() -> list[str]:
    """The Python examples of the README, in order."""
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text)
    return [textwrap.dedent(block) for block in blocks]


def python(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_twenty_lines_run_each_second_in_one_of_two_processes(tmp_path: Path) -> None:
    jobs, read, _, _ = examples()
    (tmp_path / "jobs.py").write_text(jobs, encoding="utf-8")
    workers = [python("jobs.py", cwd=tmp_path) for _ in range(2)]
    try:
        watch(workers)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        ended = [worker.communicate(timeout=100) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended

    reader = python("-c", read, cwd=tmp_path)
    told, complaints = reader.communicate(timeout=100)
    assert reader.returncode == 0, complaints
    assert "job='tick'" in told
    assert "status='success'" in told


def test_the_lines_for_django_give_a_site_its_job(tmp_path: Path) -> None:
    site = (
        "import django\nfrom django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['anarchon.contrib.django', 'billing'], ANARCHON={'BACKEND': 'memory://'})\n"
        "django.setup()\n"
        "from anarchon.contrib.django import scheduler\n"
        "print([job.name for job in scheduler.jobs()])\n"
    )
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "billing" / "jobs.py").write_text(examples()[2], encoding="utf-8")
    told, complaints = python("-c", site, cwd=tmp_path).communicate(timeout=100)
    assert told == "['sync']\n", complaints


def test_the_lines_for_flask_give_an_app_its_job(tmp_path: Path) -> None:
    app = (
        "\nfrom flask import Flask\napp = Flask('billing')\napp.config['ANARCHON_BACKEND'] = 'memory://'\n"
        "cron.init_app(app)\n"
        "with app.app_context():\n    print([job.name for job in cron.scheduler.jobs()])\n"
    )
    told, complaints = python("-c", examples()[3] + app, cwd=tmp_path).communicate(timeout=100)
    assert told == "['sync']\n", complaints


def test_the_twenty_lines_are_about_twenty() -> None:
    lines = [line for line in examples()[0].splitlines() if line.strip()]
    assert len(lines) <= 20


def watch(workers: list[subprocess.Popen[str]]) -> None:
    """Reads what the workers print until enough seconds have been run, and checks that none was run twice.

    Each has run one by then, so that it has come to where it takes a signal for what it is.
    """
    slots: Counter[str] = Counter()
    heard: set[object] = set()
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ)
        while len(slots) < SLOTS or len(heard) < len(workers):
            ready = selector.select(timeout=100)
            assert ready, "Nothing is run any more."
            for key, _ in ready:
                line = key.fileobj.readline()
                match = re.fullmatch(r"(\d\d:\d\d:\d\d) attempt 1 fence \d+\n", line)
                assert match, line
                slots[match[1]] += 1
                heard.add(key.fileobj)
    assert max(slots.values()) == 1, slots
