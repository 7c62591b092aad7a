"""How late handlers begin, beside the bare design and other schedulers.

    python benchmarks/lateness.py [--json] [--jobs 1,100,1000] [--rounds 5] [--seconds 10] [--busy] [--sides NAME,...]

So many jobs are due each second, their instants spread over the second, and then all at its start, without jitter. From
the due instant to the handler's first line is measured by the handler. The sides take turns in each round, each in a
process of its own with a Redis server of its own:

bare
    A thread a job waits on an Event and makes one EVALSHA (SET NX) before the handler; nothing is recorded.
apscheduler3
    With its Redis job store, which claims nothing and records nothing.
apscheduler4, schedule
    In memory: they have no store that several processes could share without a broker, or none at all.
huey
    On Redis. Its periodic tasks know minutes alone, so each task gives itself its next instant; its scheduler looks for
    what is due each second.
redbeat
    Celery's beat with an entry of one second each job, and a worker beside it. An entry is due a second after it was
    sent last, so its instants drift by what they are late; its lateness is counted from there.

``--busy`` keeps every core of the machine busy meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from harness import Row, new_redis, percentile, show
from peers import python_of

SUBJECTS = Path(__file__).resolve().parent / "subjects"
#: Whose environment each side needs.
SIDES = {name: name for name in ("bare", "anarchon", "apscheduler3", "apscheduler4", "schedule", "huey")}
SIDES["redbeat"] = "celery"
#: A program must not have the name of a package that it imports.
PROGRAMS = {"huey": "lateness_huey", "redbeat": "lateness_redbeat"}

Report = dict[str, Any]


def run(side: str, jobs: int, spread: bool, seconds: int) -> Report | None:
    """What one side reports of one turn; None where it is missing."""
    python = python_of(SIDES[side])
    if python is None:
        return None
    with new_redis() as url:
        plan = {"jobs": jobs, "spread": spread, "seconds": seconds, "url": url, "prefix": f"{uuid.uuid4().hex}:"}
        command = [python, str(SUBJECTS / f"{PROGRAMS.get(side, side)}.py"), json.dumps(plan)]
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    report: Report = json.loads(told.stdout.splitlines()[-1])
    return report


@contextlib.contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keeps so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(arguments: argparse.Namespace) -> list[Row]:
    sides = arguments.sides.split(",")
    rows = []
    with busy(os.cpu_count() or 1) if arguments.busy else contextlib.nullcontext():
        for jobs in map(int, arguments.jobs.split(",")):
            for spread in (True, False) if jobs > 1 else (True,):
                rounds = [
                    {side: run(side, jobs, spread, arguments.seconds) for side in sides}
                    for _ in range(arguments.rounds)
                ]
                rows += [row(side, jobs, spread, rounds) for side in sides]
    return rows


def row(side: str, jobs: int, spread: bool, rounds: list[dict[str, Report | None]]) -> Row:
    due = f"{jobs} a second, " + ("spread" if spread else "at once")
    reports = [report for each in rounds if (report := each[side]) is not None]
    if not reports:
        return {"due": due, "side": f"{side} is missing"}
    return {
        "due": due,
        "side": side,
        "fired, %": 100 * sum(report["fired"] for report in reports) / sum(report["due"] for report in reports),
        "median, ms": median(map(late(0.5), reports)),
        "of bare": against("bare", late(0.5), side, rounds),
        "99 %, ms": median(map(late(0.99), reports)),
        "of apscheduler3": against("apscheduler3", late(0.99), side, rounds),
        "last, ms": median(map(late(1), reports)),
        "last of apscheduler3": against("apscheduler3", late(1), side, rounds),
        "CPU a run, ms": median(report["cpu_ms"] for report in reports),
        "CPU of apscheduler3": against("apscheduler3", lambda report: float(report["cpu_ms"]), side, rounds),
        "threads": reports[-1]["threads"],
        "rounds": reports,
    }


def late(share: float) -> Any:
    return lambda report: percentile(report["late_ms"], share) if report["late_ms"] else float("nan")


def against(other: str, figure: Any, side: str, rounds: list[dict[str, Report | None]]) -> float | None:
    """The median of the rounds' ratios to another side; None where that is missing."""
    pairs = [(each[side], each.get(other)) for each in rounds]
    ratios = [figure(mine) / figure(theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return median(ratios) if ratios else None


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        jobs={"default": "1,100,1000", "help": "how many are due each second, with commas between"},
        rounds={"type": int, "default": 5, "help": "how often each side has its turn"},
        seconds={"type": int, "default": 10, "help": "how long a turn is"},
        busy={"action": "store_true", "help": "with every core kept busy"},
        sides={"default": ",".join(SIDES), "help": "who is measured, with commas between"},
    )
