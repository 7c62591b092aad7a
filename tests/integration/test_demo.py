"""``anarchon demo`` from the outside: it shows what it says, says so when it does not, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

Process = subprocess.Popen[str]


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


@pytest.fixture(scope="module", autouse=True)
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Path]]:
    """A demo that nobody disturbs, and its directory. It takes its time, so it begins before all the others."""
    directory = tmp_path_factory.mktemp("whole")
    process = start(directory)
    yield process, directory
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


def test_the_demo_shows_the_takeover_and_judges_itself(whole: tuple[Process, Path]) -> None:
    demo, directory = whole
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
