"""What the handlers write down themselves: every beginning, every end, from any thread and process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from anarchon import ConfigurationError, MemoryBackend, RunContext, Scheduler
from anarchon.testing import ManualClock, RunLog


def test_a_run_is_written_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    log = RunLog(tmp_path / "runs.jsonl", clock)
    seen = []

    def handler(ctx: RunContext) -> None:
        seen.extend(log.read())
        clock.advance("3s")

    scheduler = Scheduler(MemoryBackend(), instance_id="here", around_run=log.around_run).every("sync", "10s", handler)
    record = scheduler.run_now("sync")
    scheduler.stop()
    (ran,) = log.read()
    assert (ran.job, ran.slot, ran.attempt, ran.trigger) == ("sync", record.slot, 1, "manual")
    assert (ran.fence, ran.instance_id, ran.told) == (record.fence, "here", None)
    assert ran.ended_at is not None and ran.ended_at - ran.started_at == timedelta(seconds=3)
    assert [one.ended_at for one in seen] == [None]


def test_a_run_that_raises_has_ended_too(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs.jsonl")

    def fails() -> None:
        raise ValueError("no")

    scheduler = Scheduler(MemoryBackend(), around_run=log.around_run).every("sync", "10s", fails)
    assert scheduler.run_now("sync").status == "failed"
    scheduler.stop()
    assert [ran.ended_at is None for ran in log.read()] == [False]


def test_why_a_run_was_told_to_stop_is_written_with_its_end(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs.jsonl")
    begun = threading.Event()

    def waits(ctx: RunContext) -> None:
        begun.set()
        ctx.signal.wait(30)

    scheduler = Scheduler(MemoryBackend(), around_run=log.around_run, jitter=0).every("sync", "100ms", waits)
    with scheduler:
        assert begun.wait(30)
    assert log.read()[0].told == "stop"


def test_a_run_that_cannot_be_written_down_does_not_run(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "no such folder" / "runs.jsonl")
    ran = []
    scheduler = Scheduler(MemoryBackend(), around_run=log.around_run).every("sync", "10s", lambda: ran.append(1))
    record = scheduler.run_now("sync")
    scheduler.stop()
    assert (record.status, ran) == ("failed", [])
    assert "FileNotFoundError" in (record.error or "")


def test_threads_and_processes_write_to_one_file_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    program = (
        "import sys, threading\n"
        "from anarchon import MemoryBackend, Scheduler\n"
        "from anarchon.testing import RunLog\n"
        "log = RunLog(sys.argv[1])\n"
        "scheduler = Scheduler(MemoryBackend(), instance_id=sys.argv[2], around_run=log.around_run)\n"
        "for number in range(4):\n"
        "    scheduler.every(f'job{number}', '1h', lambda: None)\n"
        "def run(number):\n"
        "    for _ in range(25):\n"
        "        scheduler.run_now(f'job{number}')\n"
        "threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "scheduler.stop()\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in ("a", "b")]
    assert [process.wait(60) for process in processes] == [0, 0]
    ran = RunLog(path).read()
    assert len(ran) == 200 and all(one.ended_at for one in ran)
    assert {one.instance_id for one in ran} == {"a", "b"}


def test_a_fence_that_was_granted_twice_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    begin = {"what": "begin", "at_ms": 1, "job": "sync", "slot_ms": 0, "fence": 7, "instance_id": "a", "attempt": 1}
    begin["trigger"] = "scheduled"
    path.write_text(2 * (json.dumps(begin) + "\n"), encoding="utf-8")
    assert [ran.fence for ran in RunLog(path).read()] == [7, 7]


_FAR = {"what": "begin", "at_ms": 1e99, "job": "sync", "slot_ms": 0, "fence": 7, "instance_id": "a", "attempt": 1}


@pytest.mark.parametrize(
    "line",
    [
        *("half a li", "[]", "{}", '{"what": "rest", "at_ms": 1}', '"begin"'),
        json.dumps({**_FAR, "trigger": "scheduled"}),
        "[" * 100_000,
        "\udcff\udcfe",
    ],
    ids=["half", "list", "nothing", "rest", "text", "far", "deep", "bytes"],
)
def test_a_line_of_somebody_else_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(ConfigurationError, match=r"runs.jsonl:1 is no line of a run log"):
        RunLog(path).read()


def test_a_log_that_is_not_there_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunLog(tmp_path / "none").read()
