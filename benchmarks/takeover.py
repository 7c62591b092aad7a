"""How long after a ``kill -9`` inside a run the next attempt begins elsewhere, beside other schedulers and task queues.

    python benchmarks/takeover.py [--json] [--rounds 1] [--sides NAME,...] [--patience 100] [--defaults]

One instance begins a run that does not end; a second one starts; a while later, at a random instant, the first is
killed with all its processes. From then until the second begins the run again is measured. All sides are measured at
once, each with a Redis server of its own, for they do little but wait.

With their defaults the peers take from minutes to an hour, so each is measured with its shortest sensible settings, and
told as a multiple of the one that says how long a silent holder is trusted. ``by default`` is computed from the
defaults in its installed source; ``--defaults`` measures with these, for as long as an hour and a half.

anarchon
    With its default lease, and with one of three seconds.
redbeat
    Celery's beat alone, which holds a lock: the first task that the second beat sends.
celery
    With ``acks_late``. Its time-out runs from when a message was taken, not from the kill, and is never renewed: a task
    that takes longer is run twice while its worker lives.
rq
    With a retry; without one nothing that a dead worker had is tried again.
dramatiq, huey, apscheduler3
    As they are. Whoever does not try again within ``--patience`` seconds is taken to never do so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness import Row, new_redis, show
from peers import python_of

SUBJECTS = Path(__file__).resolve().parent / "subjects"

#: How long the second instance has to come up before the first is killed, and how much longer at random: one
#: heartbeat of the longest lease, so that the kill comes anywhere between two.
UP_S, SPREAD_S = 6.0, 6.0
#: What an instance may take until its run begins, on a busy machine.
BEGIN_S = 60


class Side(NamedTuple):
    """One way to be taken over from.

    Attributes:
        program: ``subjects/takeover_<program>.py``.
        peer: whose environment it needs.
        settings: the shortest sensible ones; None: it has none.
    """

    program: str
    peer: str
    settings: dict[str, Any] | None


SIDES = {
    "anarchon": Side("anarchon", "anarchon", {}),
    "anarchon-3s": Side("anarchon", "anarchon", {"lease": "3s"}),
    "redbeat": Side("redbeat", "celery", {"beat_max_loop_interval": 2}),
    "celery": Side(
        "celery",
        "celery",
        {"visibility_timeout": 30, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
    ),
    "rq": Side("rq", "rq", {"job_monitoring_interval": 1, "maintenance_interval": 2, "worker_ttl": 16}),
    "dramatiq": Side("dramatiq", "dramatiq", {"heartbeat_timeout": 10_000, "maintenance_chance": 1_000_000}),
    "huey": Side("huey", "huey", None),
    "apscheduler3": Side("apscheduler3", "apscheduler3", None),
}


class Taken(NamedTuple):
    """What came of one kill: what the subject says of its settings, and seconds; None: nobody tried again."""

    about: dict[str, Any]
    seconds: float | None


def measure(arguments: argparse.Namespace) -> list[Row]:
    names = arguments.sides.split(",") if arguments.sides else list(SIDES)
    if arguments.defaults:
        names = [name for name in names if name != "anarchon-3s"]

    def take(name: str) -> Taken | None:
        return takeover(SIDES[name], arguments.defaults, arguments.patience)

    with ThreadPoolExecutor(len(names)) as at_once:
        rounds = [dict(zip(names, at_once.map(take, names))) for _ in range(arguments.rounds)]
    return [row(name, [taken for each in rounds if (taken := each[name]) is not None]) for name in names]


def takeover(side: Side, defaults: bool, patience_s: float) -> Taken | None:
    """Kills one holder; None where the side is missing."""
    python = python_of(side.peer)
    if python is None:
        return None
    with new_redis() as url, tempfile.TemporaryDirectory(prefix="benchmark-") as folder, contextlib.ExitStack() as ends:
        log = Path(folder) / "log"
        log.touch()
        settings = json.dumps({} if defaults else side.settings or {})
        surroundings = os.environ | {"BENCHMARK_URL": url, "BENCHMARK_LOG": str(log), "BENCHMARK_SETTINGS": settings}

        def call(*functions: str) -> list[str]:
            calls = "; ".join(f"subject.{function}" for function in functions)
            return [python, "-c", f"import json, takeover_{side.program} as subject; {calls}"]

        def instance() -> subprocess.Popen[bytes]:
            return ends.enter_context(session(call("work()"), surroundings))

        asking = [*call("send()")[:-1], call("send()")[-1] + "; print(json.dumps(subject.about()))"]
        told = subprocess.run(
            asking, cwd=SUBJECTS, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
        about = json.loads(told.stdout.splitlines()[-1])
        holder = instance()
        if next_run(log, holder, since=0, within_s=BEGIN_S) is None:
            raise RuntimeError(f"{side.program}: no run began.")
        other = instance()
        time.sleep(UP_S + random.uniform(0, SPREAD_S))
        kill(holder.pid)
        killed = time.monotonic()
        begun = next_run(log, other, since=killed, within_s=patience_s)
    return Taken(about, None if begun is None else begun - killed)


@contextlib.contextmanager
def session(command: list[str], surroundings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session, which its children belong to as well."""
    with subprocess.Popen(
        command,
        cwd=SUBJECTS,
        env=surroundings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            kill(process.pid)


def kill(leader: int) -> None:
    """Kills all of a session; RQ's work horse, for one, leads a group of its own in it."""
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def next_run(log: Path, instance: subprocess.Popen[bytes], since: float, within_s: float) -> float | None:
    """When the instance first began a run after this instant; None: it did not within this time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            session, at = line.split()
            if int(session) == instance.pid and float(at) > since:
                return float(at)
        if instance.poll() is not None:
            raise RuntimeError(f"An instance ended by itself: {instance.args!r}")
        time.sleep(0.02)
    return None


def row(name: str, taken: list[Taken]) -> Row:
    if not taken:
        return {"who": f"{name} is missing"}
    about = taken[0].about
    seconds = [each.seconds for each in taken if each.seconds is not None]
    set_s = about.get("set_s")
    return {
        "who": name,
        "setting": about.get("setting"),
        "set, s": set_s,
        "median, s": median(seconds) if seconds else None,
        "longest, s": max(seconds) if seconds else None,
        "of the setting": max(seconds) / set_s if seconds and set_s else None,
        "not again": len(taken) - len(seconds),
        "default, s": about.get("default_s"),
        "by default, s": about.get("by_default_s"),
        "how": about["how"],
        "rounds": seconds,
    }


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        rounds={"type": int, "default": 1, "help": "how often each is killed"},
        sides={"help": "who is measured, with commas between; by default all"},
        patience={"type": float, "default": 100, "help": "how many seconds a next attempt is waited for"},
        defaults={"action": "store_true", "help": "with everybody's defaults; give it a patience of 5000"},
    )
