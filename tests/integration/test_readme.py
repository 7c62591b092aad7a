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
    jobs, read = examples()
    (tmp_path / "jobs.py").write_text(jobs, encoding="utf-8")
    workers = [python("jobs.py", cwd=tmp_path) for _ in range(2)]
    try:
        watch(workers)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        ended = [worker.communicate(timeout=30) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended

    reader = python("-c", read, cwd=tmp_path)
    told, complaints = reader.communicate(timeout=30)
    assert reader.returncode == 0, complaints
    assert "job='tick'" in told
    assert "status='success'" in told


def test_the_twenty_lines_are_about_twenty() -> None:
    lines = [line for line in examples()[0].splitlines() if line.strip()]
    assert len(lines) <= 20


def watch(workers: list[subprocess.Popen[str]]) -> None:
    """Reads what the workers print until enough seconds have been run, and checks that none was run twice."""
    slots: Counter[str] = Counter()
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ)
        while len(slots) < SLOTS:
            ready = selector.select(timeout=30)
            assert ready, "Nothing was run for half a minute."
            for key, _ in ready:
                line = key.fileobj.readline()
                match = re.fullmatch(r"(\d\d:\d\d:\d\d) attempt 1 fence \d+\n", line)
                assert match, line
                slots[match[1]] += 1
    assert max(slots.values()) == 1, slots
