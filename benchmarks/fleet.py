"""How the store's load and the lateness grow with instances and jobs, and where one Redis stops.

    python benchmarks/fleet.py [--json] [--instances 1,2,4,8,16,32] [--jobs 10,100,1000,10000] [--seconds 60]
                               [--jitter 0ms,500ms] [--lasts 0.001]

Each instance is a process; all share one Redis server and jobs that are due once a minute, spread over it. First so
many instances have a thousand jobs, then four instances have so many jobs; with each jitter. After a quarter of a
minute, so that the first backups have looked, a window is measured.

calls
    Scripts a second, by the instances' own count, and those of each kind a run: claims that win or lose, checks of
    backups, heartbeats, finishes. ``asked`` is what the server counted, as a multiple of that.
server
    Its time on the processor by ``INFO cpu``: as a share of one core, and a call, with what it does when idle.
median, 99 %
    From the due instant to the handler's first line. The jitter is in it, of whichever instance asked first.

Then the server's part of each call is measured by itself (``server_costs.py``), and fleets of any size are calculated
from it. Of N instances one claims and finishes, each other asks once and loses; who finds the run going checks on it
every one to two heartbeats until it is over:

    us a run = win + finish + (N - 1) * (lose + checks * check) + lasts / heartbeat * (us of a heartbeat)
    checks = lasts / (1.5 * heartbeat) + 1
    one core's share = runs a second * us a run / 1,000,000

For runs of no length ``checks`` is as measured with the most instances and the last jitter. One Redis is taken to be
full at 70 % of its one core. A cluster's nodes share the jobs evenly.

With its defaults this takes half an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from harness import Row, new_redis, percentile, show
from server_costs import Costs, cpu_us, measure_costs

SUBJECT = Path(__file__).resolve().parent / "subjects" / "fleet.py"

FEW_INSTANCES, SOME_JOBS = 4, 1000
#: A backup looks for the first time after one to two heartbeats, 12 s by default.
WARM_UP_S = 15
HEARTBEAT_S = 6.0
FULL = 0.7

KINDS = {"win": "wins", "lose": "losses", "check": "checks", "heartbeat": "heartbeats", "finish": "finishes"}

#: Instances, jobs, seconds from one slot of a job to the next, and seconds that a run lasts.
FLEETS = (
    (32, 10_000, 60, 0),
    (100, 10_000, 60, 0),
    (1000, 100_000, 3600, 0),
    (1000, 100_000, 3600, 60),
    (1000, 100_000, 60, 0),
)


def measure(arguments: argparse.Namespace) -> list[Row]:
    alone, costs = measure_costs()
    instances, jobs = (list(map(int, numbers.split(","))) for numbers in (arguments.instances, arguments.jobs))
    points = dict.fromkeys([(count, SOME_JOBS) for count in instances] + [(FEW_INSTANCES, count) for count in jobs])
    rows = [
        of_fleet(*point, jitter, arguments.lasts, arguments.seconds)
        for jitter in arguments.jitter.split(",")
        for point in points
    ]
    # With the last jitter, and the most instances.
    largest = max(rows[-len(points) :], key=lambda row: int(row["instances"]))
    checks = largest["checks a run"] / (largest["losses a run"] or 1)
    each = [
        {"the server's part of a": name, "alone, us": first, "among many, us": second}
        for name, first, second in zip(Costs._fields, alone, costs)
    ]
    return [*rows, *each, *calculated(costs, checks), *stops(costs, checks)]


def of_fleet(instances: int, jobs: int, jitter: str, lasts: float, seconds: float) -> Row:
    with new_redis() as url, redis.Redis.from_url(url) as client, contextlib.ExitStack() as ends:
        plan = {"url": url, "jobs": jobs, "jitter": jitter, "lasts": lasts}
        command = [sys.executable, str(SUBJECT), json.dumps(plan)]
        fleet = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(instances)]
        for process in fleet:
            ends.enter_context(process)
            ends.callback(process.kill)
        for process in fleet:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(WARM_UP_S)
        ask(fleet)
        begun, used_us, asked = time.monotonic(), cpu_us(client), scripts(client)
        time.sleep(seconds)
        told = ask(fleet)
        took, used_us, asked = time.monotonic() - begun, cpu_us(client) - used_us, scripts(client) - asked
    calls: Counter[str] = sum((Counter(each["calls"]) for each in told), Counter())
    late_ms = [late for each in told for late in each["late_ms"]]
    counted, runs = sum(calls.values()), max(1, calls["win"])
    return {
        "instances": instances,
        "jobs": jobs,
        "jitter": jitter,
        "run, %": 100 * calls["win"] * 60 / took / jobs,
        "calls a second": counted / took,
        "asked": asked / max(1, counted),
        **{f"{kinds} a run": calls[kind] / runs for kind, kinds in KINDS.items()},
        "server, % of a core": used_us / took / 10_000,
        "us a call": used_us / max(1, counted),
        "median, ms": percentile(late_ms, 0.5) if late_ms else None,
        "99 %, ms": percentile(late_ms, 0.99) if late_ms else None,
        "CPU an instance, %": 100 * sum(each["cpu_s"] for each in told) / took / instances,
        "told": told,
    }


def ask(fleet: list[subprocess.Popen[bytes]]) -> list[dict[str, Any]]:
    """What each has done since it was asked last; all are asked at one time."""
    for process in fleet:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    return [json.loads(process.stdout.readline()) for process in fleet if process.stdout is not None]


def a_run(costs: Costs, instances: int, checks: float, heartbeats: float = 0) -> float:
    """Microseconds of the server's time; the formula above."""
    losers = (instances - 1) * (costs.lose + checks * costs.check)
    return costs.win + costs.finish + losers + heartbeats * costs.heartbeat


def calculated(costs: Costs, checks: float) -> Iterator[Row]:
    """Fleets that are too large for one machine."""
    for instances, jobs, each_s, lasts_s in FLEETS:
        runs = jobs / each_s
        of_loser = lasts_s / (1.5 * HEARTBEAT_S) + 1 if lasts_s else checks
        heartbeats = lasts_s / HEARTBEAT_S
        calls = runs * (2 + (instances - 1) * (1 + of_loser) + heartbeats)
        share = runs * a_run(costs, instances, of_loser, heartbeats) / 1e6
        yield {
            "fleet of": instances,
            "jobs": jobs,
            "due each, s": each_s,
            "lasting, s": lasts_s,
            "runs a second": runs,
            "calls a second": calls,
            "of an instance": calls / instances,
            "% of one Redis": 100 * share,
            "nodes at 70 %": math.ceil(share / FULL),
        }


def stops(costs: Costs, checks: float) -> Iterator[Row]:
    """How much one Redis holds, and where a cluster must begin."""
    for instances in (1, 4, 32, 100, 1000):
        runs = FULL * 1e6 / a_run(costs, instances, checks)
        yield {
            "one Redis holds, of instances": instances,
            "runs a second": runs,
            "jobs due each minute": int(runs * 60),
            "or each hour": int(runs * 3600),
        }


def scripts(client: redis.Redis) -> int:
    told: Any = client.info("commandstats")
    return sum(figures["calls"] for name, figures in told.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        instances={"default": "1,2,4,8,16,32", "help": f"how many, with commas between; with {SOME_JOBS} jobs"},
        jobs={"default": "10,100,1000,10000", "help": f"how many, with commas between; of {FEW_INSTANCES} instances"},
        seconds={"type": float, "default": 60, "help": "how long a window is"},
        jitter={"default": "0ms,500ms", "help": "as the jobs' option takes it, with commas between"},
        lasts={"type": float, "default": 0.001, "help": "how many seconds a handler sleeps"},
    )
