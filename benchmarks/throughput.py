"""How many runs that do nothing go through a second, from one process and from four, on each backend.

    python benchmarks/throughput.py [--json] [--rounds 5] [--seconds 5] [--processes 1,4] [--tasks 2000]

Each process has two dozen jobs that are due every ten milliseconds, more than can be run, so that each job is run one
after the other as fast as the store lets it be; with several processes they share the jobs. Beside it, on Redis:

bare
    One thread makes three EVALSHAs a run, as the plainest lock with a heartbeat and a record would.
celery, dramatiq, huey, rq
    Their own worker, as it starts without options, takes tasks that do nothing from a queue that was filled before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import redis
from harness import Row, new_redis, show
from peers import python_of

SUBJECTS = Path(__file__).resolve().parent / "subjects"
BACKENDS = ("memory", "sqlite", "redis")

#: How each peer's worker is started, from the folder of its tasks.
WORKERS = {
    "celery": ["-m", "celery", "-A", "tasks_celery", "worker", "--loglevel", "error"],
    "dramatiq": ["-m", "dramatiq", "tasks_dramatiq"],
    "huey": ["-m", "huey.bin.huey_consumer", "tasks_huey.huey", "--quiet"],
    "rq": ["-m", "rq.cli", "worker", "--quiet", "--burst", "--url"],
}


@contextmanager
def new_store(backend: str) -> Iterator[str]:
    if backend == "redis":
        with new_redis() as url:
            yield url
    elif backend == "sqlite":
        with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
            yield f"sqlite:///{directory}/jobs.db"
    else:
        yield "memory://"


def of_schedulers(program: str, url: str, processes: int, seconds: int) -> float:
    """Runs a second, of all processes together."""
    command = [sys.executable, str(SUBJECTS / f"{program}.py"), json.dumps({"url": url, "seconds": seconds})]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    reports = [json.loads(process.communicate()[0]) for process in started]
    return sum(report["runs"] / report["seconds"] for report in reports)


def of_tasks(peer: str, tasks: int) -> float | None:
    """Tasks a second, from the first that was taken to an empty queue; None where the peer is missing."""
    python = python_of(peer)
    if python is None:
        return None
    with new_redis() as url:
        client = redis.Redis.from_url(url)
        surroundings = {**os.environ, "BENCHMARK_URL": url}
        filling = f"import tasks_{peer} as tasks; tasks.fill({tasks}); print(tasks.QUEUE)"
        told = subprocess.run(
            [python, "-c", filling], cwd=SUBJECTS, env=surroundings, stdout=subprocess.PIPE, check=True, text=True
        )
        queue = told.stdout.split()[-1]
        arguments = [*WORKERS[peer], url] if peer == "rq" else WORKERS[peer]
        worker = subprocess.Popen(
            [python, *arguments], cwd=SUBJECTS, env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            # A tenth is left out at the beginning, while the worker starts.
            first = waited_for(client, queue, tasks * 9 // 10, worker)
            last = waited_for(client, queue, 0, worker)
        finally:
            worker.terminate()
            worker.wait()
            client.close()
    return (first[0] - last[0]) / (last[1] - first[1])


def waited_for(client: redis.Redis, queue: str, left: int, worker: subprocess.Popen[bytes]) -> tuple[int, float]:
    """How many tasks were left, and when, at the first look that found no more than so many."""
    while (found := int(client.execute_command("LLEN", queue))) > left:
        if worker.poll() is not None:
            raise RuntimeError(f"The worker ended with {found} tasks left.")
        time.sleep(0.002)
    return found, time.monotonic()


def measure(arguments: argparse.Namespace) -> list[Row]:
    counts = [int(count) for count in arguments.processes.split(",")]
    rounds: list[dict[str, float | None]] = []
    for _ in range(arguments.rounds):
        found: dict[str, float | None] = {}
        for backend in BACKENDS:
            for processes in counts if backend != "memory" else [1]:
                with new_store(backend) as url:
                    name = f"anarchon on {backend}, processes: {processes}"
                    found[name] = of_schedulers("runs_anarchon", url, processes, arguments.seconds)
        with new_redis() as url:
            found["bare"] = of_schedulers("runs_bare", url, 1, arguments.seconds)
        for peer in WORKERS:
            found[peer] = of_tasks(peer, arguments.tasks)
        rounds.append(found)
    return [row(name, rounds) for name in rounds[0]]


def row(name: str, rounds: list[dict[str, float | None]]) -> Row:
    figures = [figure for each in rounds if (figure := each[name]) is not None]
    if not figures:
        return {"who": f"{name} is missing"}
    bare = [figure for each in rounds if (figure := each["bare"]) is not None]
    ratio = median(mine / theirs for mine, theirs in zip(figures, bare, strict=True))
    return {"who": name, "runs a second": median(figures), "of bare": ratio, "rounds": figures}


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        rounds={"type": int, "default": 5, "help": "how often each has its turn"},
        seconds={"type": int, "default": 5, "help": "how long a turn of a scheduler is"},
        processes={"default": "1,4", "help": "how many processes of ours, with commas between"},
        tasks={"type": int, "default": 2000, "help": "how many tasks a peer's worker takes"},
    )
