"""The command line in processes of its own: signals, exit codes, pipes, and real stores."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import redis

from anarchon import RedisBackend, Scheduler

JOBS = """
    import threading
    from anarchon import Scheduler

    scheduler = Scheduler(backend="sqlite:///jobs.db", timezone="Europe/Athens")

    @scheduler.every("long", "1s", lease="30s")
    def long(ctx):
        print("long is running", flush=True)
        ctx.signal.wait(60)
        ctx.raise_if_cancelled()

    @scheduler.every("deaf", "1d")
    def deaf(ctx):
        print("deaf is running", flush=True)
        ctx.signal.wait(60)
        print("deaf goes on", flush=True)
        threading.Event().wait(60)

    @scheduler.every("quick", "1d")
    def quick():
        pass

    @scheduler.every("foreign", "1d")
    def foreign():
        raise ValueError("日本")

    deaf_worker = Scheduler(backend="memory://").every("deaf", "1s", deaf)
"""

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``anarchon`` with arguments in a directory that has ``jobs.py``; whatever happens, none is left."""
    (tmp_path / "jobs.py").write_text(dedent(JOBS), encoding="utf-8")
    processes: list[Process] = []

    def start(*arguments: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "anarchon", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def run(start: Start, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    process = start(*arguments)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def end(process: Process, number: signal.Signals) -> tuple[int, str]:
    """Exit code and standard error of a process that is sent a signal."""
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    return process.returncode, err


def wait_for(process: Process, line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def history(start: Start, job: str) -> list[dict[str, object]]:
    code, out, _ = run(start, "history", "jobs:scheduler", job, "--json")
    assert code == 0
    records: list[dict[str, object]] = json.loads(out)
    return records


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_stop_releases_its_run_and_ends_with_zero(number: signal.Signals, start: Start) -> None:
    worker = start("worker", "jobs:scheduler")
    wait_for(worker, "long is running")
    code, out, err = run(start, "run", "jobs:scheduler", "long")
    assert (code, out) == (4, "")
    assert re.fullmatch(r"anarchon: Job 'long' is already running on '.+', and its overlap rule is 'skip'\.\n", err)

    code, err = end(worker, number)
    assert code == 0
    assert "runs 4 jobs of jobs:scheduler until SIGTERM or SIGINT." in err
    assert "long start slot=" in err
    assert "long interrupted (stop)" in err
    assert err.endswith("Stopped: every run has ended.\n")
    (record,) = history(start, "long")
    assert (record["status"], record["attempt"]) == ("interrupted", 1)
    code, out, _ = run(start, "active", "jobs:scheduler", "long", "--json")
    assert [run["lease_left"] for run in json.loads(out)] == [0.0]


def test_a_worker_whose_run_does_not_end_in_time_ends_with_one(start: Start) -> None:
    worker = start("worker", "jobs:deaf_worker", "--stop-timeout", "200ms")
    wait_for(worker, "deaf is running")
    code, err = end(worker, signal.SIGTERM)
    assert code == 1
    assert err.endswith("Stopped: not every run ended in time.\n")


def test_a_second_ctrl_c_ends_a_worker_whose_run_is_deaf(start: Start) -> None:
    worker = start("worker", "jobs:deaf_worker", "--stop-timeout", "50s")
    wait_for(worker, "deaf is running")
    worker.send_signal(signal.SIGINT)
    # Before the first is answered a second one would be taken for the same.
    wait_for(worker, "deaf goes on")
    assert end(worker, signal.SIGINT)[0] == 130


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_told_to_stop_is_recorded_as_interrupted(number: signal.Signals, code: int, start: Start) -> None:
    process = start("run", "jobs:scheduler", "long")
    wait_for(process, "long is running")
    got, err = end(process, number)
    assert got == code
    assert err.endswith("anarchon: long was told to stop, and is recorded as interrupted if it heeded that.\n")
    assert "Traceback" not in err
    (record,) = history(start, "long")
    assert (record["status"], record["trigger"]) == ("interrupted", "manual")


def test_a_run_and_its_history_go_through_the_file(start: Start) -> None:
    code, out, _ = run(start, "run", "jobs:scheduler", "quick", "--json")
    assert code == 0
    assert history(start, "quick") == [json.loads(out)]
    code, out, err = run(start, "history", "sqlite:///jobs.db", "quick")
    assert (code, err) == (0, "")
    assert " manual " in out


def test_a_reader_of_the_output_that_leaves_early_is_no_error(start: Start) -> None:
    assert run(start, "run", "jobs:scheduler", "quick")[0] == 0
    process = start("history", "jobs:scheduler", "quick")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=100)
    assert err == ""
    assert process.returncode == 141


def test_a_screen_that_cannot_show_a_sign_shows_its_number(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out, _ = run(start, "run", "jobs:scheduler", "foreign")
    assert code == 1
    assert r"error     ValueError: \u65e5\u672c" in out


def test_a_history_is_read_from_redis_by_url_and_prefix(start: Start, redis_url: str, prefix: str) -> None:
    scheduler = Scheduler(RedisBackend(redis_url, prefix=prefix)).every("sync", "1d", lambda: None)
    record = scheduler.run_now("sync")
    scheduler.stop()
    try:
        code, out, err = run(start, "history", redis_url, "sync", "--prefix", prefix, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == [record.to_dict()]
        code, out, _ = run(start, "history", redis_url, "sync", "--prefix", f"{prefix}other:", "--json")
        assert (code, json.loads(out)) == (0, [])
        assert run(start, "forget", redis_url, "sync", "--prefix", prefix, "--yes")[0] == 0
        code, out, _ = run(start, "history", redis_url, "sync", "--prefix", prefix, "--json")
        assert (code, json.loads(out)) == (0, [])
    finally:
        with redis.Redis.from_url(redis_url) as client:
            for key in client.scan_iter(match=f"{prefix}*"):
                client.delete(key)


def test_the_installed_command_finds_the_current_directory(tmp_path: Path, start: Start) -> None:
    """The script's own directory is first on its path, and the current one is not on it at all."""
    command = Path(sys.executable).parent / "anarchon"
    done = subprocess.run(
        [command, "jobs", "jobs:scheduler"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("JOB")
