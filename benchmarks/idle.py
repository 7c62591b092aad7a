"""What jobs cost that are not due, beside a bare waiting thread a job.

    python benchmarks/idle.py [--json] [--jobs 1000,10000] [--seconds 60]

So many hourly jobs on a Redis server of their own, in a process of their own, through a window in which none is due:
all of them are at the full hour, and where that is too near it is let pass first. A job is looked at once a minute, so
a window should be whole minutes.

registered, running
    Resident memory a job, in KiB: after the jobs were registered, and in the window. Before, it was measured when the
    libraries were loaded and a first connection stood.
CPU, wake-ups
    Of one core, and voluntary switches a second, of the whole process.
commands
    What the store was asked a minute, by the difference of its ``INFO commandstats``, and what that was.
start
    Until the store falls silent: a job is armed when the store has answered for it. Of the threads: until all run.
stop
    Until ``stop()`` returned; whether it returned True; and how many threads were left, the main one included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis
from harness import Row, new_redis, show

SUBJECT = Path(__file__).resolve().parent / "subjects" / "idle.py"

#: The store has fallen silent when it was asked nothing for so long.
SILENT_S = 2.0
#: What starting and stopping may take, of ten thousand jobs on a busy machine.
AROUND_S = 60


def measure(arguments: argparse.Namespace) -> list[Row]:
    rows = []
    for jobs in map(int, arguments.jobs.split(",")):
        for side in ("anarchon", "bare"):
            keep_away_from_the_hour(arguments.seconds + AROUND_S)
            with new_redis() as url:
                rows.append(row(side, jobs, url, arguments.seconds))
    return rows


def keep_away_from_the_hour(seconds: float) -> None:
    left_s = 3600 - time.time() % 3600
    if left_s < seconds:
        print(f"Waiting {left_s:.0f} s for the full hour to pass.", file=sys.stderr)
        time.sleep(left_s + 2)


def row(side: str, jobs: int, url: str, seconds: float) -> Row:
    command = [sys.executable, str(SUBJECT), side, str(jobs), url]
    with (
        redis.Redis.from_url(url) as client,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None and process.stdout is not None

        def told() -> dict[str, Any]:
            figures: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return figures

        def ask() -> dict[str, Any]:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            return told()

        try:
            loaded, registered, started = told(), told(), told()
            armed = max(silent_since(client), started["at"])
            asked, before = calls(client), ask()
            time.sleep(seconds)
            after = ask()
            asked = difference(calls(client), asked)
            process.stdin.close()
            stopped = told()
        finally:
            process.kill()
    took = after["at"] - before["at"]
    return {
        "jobs": jobs,
        "side": side,
        "registered, KiB": (registered["kib"] - loaded["kib"]) / jobs,
        "running, KiB": (after["kib"] - loaded["kib"]) / jobs,
        "CPU, %": 100 * (after["cpu_s"] - before["cpu_s"]) / took,
        "wake-ups": (after["switches"] - before["switches"]) / took,
        "threads": after["threads"],
        "commands": sum(asked.values()) * 60 / took,
        "which": ", ".join(f"{count} {name}" for name, count in asked.items()) or "-",
        "start, s": armed - started["begun"],
        "stop, s": stopped["at"] - stopped["begun"],
        "True": stopped["stopped"],
        "left": stopped["threads"],
        "figures": [loaded, registered, started, before, after, stopped],
    }


def silent_since(client: redis.Redis) -> float:
    """Waits until the store has been asked nothing for a while; when it was asked last."""
    known, last = calls(client), time.monotonic()
    while time.monotonic() - last < SILENT_S:
        time.sleep(0.05)
        now = calls(client)
        if now != known:
            known, last = now, time.monotonic()
    return last


def calls(client: redis.Redis) -> dict[str, int]:
    """How often the server was asked for each command, scripts' own ones included, but for this question."""
    told: Any = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in told.items() if name != "cmdstat_info"}


def difference(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: more for name, count in now.items() if (more := count - before.get(name, 0))}


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        jobs={"default": "1000,10000", "help": "how many there are, with commas between"},
        seconds={"type": float, "default": 60, "help": "how long the window is"},
    )
