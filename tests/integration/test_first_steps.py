"""What a newcomer tries first: the README's lines, as they stand there, and ``anarchon demo``.

The demo shows what it says, says so when it does not, and leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stage import Stage

Process = subprocess.Popen[str]

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 4

# -- the README


def examples() -> list[str]:
    """The Python examples of the README, in order."""
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text)
    return [textwrap.dedent(block) for block in blocks]


def python(*arguments: str, cwd: Path) -> Process:
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module", autouse=True)
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Process], Path]]:
    """Two processes with the first lines of the README, in a directory. They begin before all others."""
    directory = tmp_path_factory.mktemp("readme")
    (directory / "jobs.py").write_text(examples()[0], encoding="utf-8")
    workers = [python("jobs.py", cwd=directory) for _ in range(2)]
    yield workers, directory
    for worker in workers:
        worker.kill()
        worker.communicate()


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


# -- the demo


def start(directory: Path) -> Process:
    """A demo whose temporary directory is in that one."""
    return subprocess.Popen(
        [sys.executable, "-m", "anarchon", "demo"],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Process]:
    """A demo that has just started. Whatever happens, none of it is left."""
    process = start(tmp_path)
    yield process
    process.kill()
    process.communicate()


def read_until(process: Process, pattern: str) -> list[str]:
    """What the demo tells, up to the line that matches."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"The demo ended without {pattern!r}:\n" + "\n".join(lines))


def pids(lines: list[str]) -> list[int]:
    found = [int(match[1]) for line in lines if (match := re.search(r"starts, process (\d+)$", line))]
    assert len(found) == 2
    return found


def assert_nothing_is_left(process: Process, workers: list[int], directory: Path) -> str:
    """Returns what the demo said on its standard error, which its workers share: it ends when the last of them has."""
    _, err = process.communicate(timeout=100)
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(directory.iterdir()) == []
    return err


def test_a_demo_without_its_takeover_says_so_and_ends_with_one(demo: Process, tmp_path: Path) -> None:
    lines = read_until(demo, "both are ready")
    workers = pids(lines)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    lines += read_until(demo, "^This is not as it should be:$")
    assert demo.stdout is not None
    assert demo.stdout.readline() == "- No worker was killed in the middle of billing.\n"
    assert_nothing_is_left(demo, workers, tmp_path)
    assert demo.returncode == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_interrupted_leaves_nothing(
    number: signal.Signals, code: int, demo: Process, tmp_path: Path
) -> None:
    workers = pids(read_until(demo, "runs tick"))
    demo.send_signal(number)
    assert assert_nothing_is_left(demo, workers, tmp_path) == ""
    assert demo.returncode == code


def test_a_demo_whose_reader_leaves_leaves_nothing(demo: Process, tmp_path: Path) -> None:
    workers = pids(read_until(demo, "both are ready"))
    assert demo.stdout is not None
    demo.stdout.close()
    assert assert_nothing_is_left(demo, workers, tmp_path) == ""
    assert demo.returncode == 141


def test_the_workers_of_a_demo_that_is_killed_end_by_themselves(demo: Process) -> None:
    workers = pids(read_until(demo, "runs tick"))
    demo.kill()
    demo.communicate(timeout=100)  # it ends when the last one that could write to it has
    assert len(workers) == 2


def show_a_takeover(stage: Stage) -> None:
    """A demo that nobody disturbs. It takes its time."""
    directory = stage.directory()
    directory.mkdir()
    demo = start(directory)
    try:
        assert_as_it_should_be(demo, directory)
    finally:
        demo.kill()
        demo.communicate()


def assert_as_it_should_be(demo: Process, directory: Path) -> None:
    lines = read_until(demo, "^As it should be: ")
    last = demo.stdout.read() if demo.stdout is not None else ""
    assert assert_nothing_is_left(demo, pids(lines), directory) == ""
    assert demo.returncode == 0

    def the(pattern: str) -> re.Match[str]:
        (match,) = [match for line in lines if (match := re.search(pattern, line))]
        return match

    killed = the(r"s  (worker-\d) is killed \(kill -9\) in the middle of billing$")[1]
    takeover = the(r"s  (worker-\d) takes over billing \S+, attempt 2(?:, (\S+) s after the last heartbeat of (\S+))?$")
    assert takeover[1] != killed
    if takeover[2] is not None:  # where the host stood still, the lease was over before it could be looked at
        assert killed == takeover[3]
        assert 4.0 <= float(takeover[2]) < 30
    lost = the(rf" 1 +scheduled +lost .* {killed} +(\d+)$")
    success = the(rf" 2 +takeover +success .* {takeover[1]} +(\d+)$")
    assert int(lost[1]) < int(success[1])
    told = r"none of the \d+ slots of tick and \d+ slots of report was lost( but \d+ .*)?, and no slot ran twice"
    assert re.search(told, last)


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=show_a_takeover)
def test_the_demo_shows_the_takeover_and_judges_itself(played: Callable[[], None]) -> None:
    played()


# -- the README's two workers, which have had their time by now


def test_the_twenty_lines_run_each_second_in_one_of_two_processes(two_workers: tuple[list[Process], Path]) -> None:
    workers, directory = two_workers
    watch(workers)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    ended = [worker.communicate(timeout=100) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended

    reader = python("-c", examples()[1], cwd=directory)
    told, complaints = reader.communicate(timeout=100)
    assert reader.returncode == 0, complaints
    assert "job='tick'" in told
    assert "status='success'" in told


def watch(workers: list[Process]) -> None:
    """Reads what the workers print until enough seconds have been run, and checks that none was run twice.

    Each has run one by then, so that it has come to where it takes a signal for what it is.
    """
    told = dict.fromkeys(workers, "")
    slots: Counter[str] = Counter()
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        while len(slots) < SLOTS or not all("\n" in text for text in told.values()):
            ready = selector.select(timeout=100)
            assert ready, "Nothing is run any more."
            for key, _ in ready:
                # Past the stream's own buffer, in which lines would lie that nobody is told of.
                told[key.data] += os.read(key.fd, 65_536).decode()
            # A line may come in two parts, and the second one is not here yet.
            lines = [line for text in told.values() for line in text.rpartition("\n")[0].splitlines()]
            matches = [re.fullmatch(r"(\d\d:\d\d:\d\d) attempt 1 fence \d+", line) for line in lines]
            assert all(matches), lines
            slots = Counter(match[1] for match in matches if match)
    assert max(slots.values()) == 1, slots
