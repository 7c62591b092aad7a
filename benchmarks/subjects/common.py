"""What every subject of a measurement shares: which jobs there are, what it writes down, and its report.

A subject is a program of its own: it gets a plan as JSON, runs the plan's jobs for the plan's time, and prints one line
of JSON. It imports nothing of the others, so that each runs in an environment of its own.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Plan(NamedTuple):
    """How many jobs are due each second, and for how long.

    Attributes:
        jobs: each is due once a second.
        spread: whether their instants lie evenly over the second; else all are due at its start.
        seconds: for how long is measured.
        url, prefix: the Redis store.
    """

    jobs: int
    spread: bool
    seconds: int
    url: str
    prefix: str

    def phase_ms(self, job: int) -> int:
        """How long after the start of each second a job is due."""
        return job * 1000 // self.jobs if self.spread else 0


def read_plan() -> Plan:
    return Plan(**json.loads(sys.argv[1]))


class Used(NamedTuple):
    """What a subject has used of the machine since it began."""

    cpu_s: float
    switches: int
    threads: int


def used_by_this() -> Used:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_nvcsw + usage.ru_nivcsw, threading.active_count())


class Fired:
    """When each handler began, written by the handlers; the report is made when all is over."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.begun: list[tuple[int, float, float | None]] = []

    def handler(self, job: int, due: float | None = None) -> None:
        """The first line of a handler.

        Args:
            due: when it should have begun; None: at the newest instant at which its job was due.
        """
        self.begun.append((job, time.time(), due))

    def measure(self, used: Callable[[], Used] = used_by_this) -> None:
        """Blocks for the plan's time, whole seconds, after two to warm up; then prints the report."""
        first_s = int(time.time()) + 3
        _sleep_until(first_s - 0.05)
        before = used()
        _sleep_until(first_s + self.plan.seconds + 0.95)
        after = used()
        self.read_late()
        print(json.dumps(self._report(first_s, before, after)), flush=True)

    def read_late(self) -> None:
        """Where the handlers run in other processes, they are asked here what they wrote down."""

    def _report(self, first_s: int, before: Used, after: Used) -> dict[str, Any]:
        late_ms, slots = [], set()
        for job, at, due in self.begun:
            if due is None:
                phase_s = self.plan.phase_ms(job) / 1000
                due = int(at - phase_s) + phase_s
            if first_s <= due < first_s + self.plan.seconds:
                late_ms.append((at - due) * 1000)
                slots.add((job, due))
        runs = max(1, len(late_ms))
        return {
            "due": self.plan.jobs * self.plan.seconds,
            "fired": len(slots),
            "late_ms": late_ms,
            "cpu_ms": (after.cpu_s - before.cpu_s) * 1000 / runs,
            "switches": (after.switches - before.switches) / runs,
            "threads": after.threads,
        }


def _sleep_until(instant: float) -> None:
    time.sleep(max(0, instant - time.time()))
