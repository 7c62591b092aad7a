"""One worker of the demo: ``python -m anarchon.demo.worker NAME FILE``. It does what any worker process does.

Its standard input is its parent's hold on it: a line says when ``billing`` is due, and its end says stop, so that no
worker outlives the demo, however that ends. Its standard output is the log that the parent judges by.
"""

from __future__ import annotations

import os
import sys
import threading

from anarchon import Event, RunContext, Scheduler, SQLiteBackend
from anarchon.clock import SystemClock
from anarchon.demo.lines import Line, write_line
from anarchon.demo.plan import BILLING_LEASE_MS, BILLING_STEPS, EVERY_MS, LONGEST_MS, STEP_MS
from anarchon.durations import to_ms
from anarchon.threads import Threads

__all__ = ["main"]

_clock = SystemClock()


class Worker:
    """The handlers, and what is told of them."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._scheduler = Scheduler(SQLiteBackend(path), instance_id=name)
        for event in ("success", "failure", "interrupted"):
            self._scheduler.on(event, lambda event: self._tell_run("stored", event))
        self._scheduler.on("skip", self._skipped)
        self._scheduler.on("error", self._failed)

    def live(self) -> None:
        self._tell("ready")
        due = sys.stdin.readline().strip()
        if not due:
            return
        # A tick that the store keeps waiting must not be in the way of the next: each slot of it is counted.
        self._scheduler.every("tick", EVERY_MS["tick"] / 1000, self._tick, overlap="allow")
        self._scheduler.every("report", EVERY_MS["report"] / 1000, self._report)
        # A host that is too busy to be in time for it catches up.
        self._scheduler.cron("billing", due, self._billing, seconds=True, lease=BILLING_LEASE_MS / 1000, catch_up="1m")
        stop = _clock.event()
        Threads(_clock).start("anarchon-demo-parent", lambda: self._await_parent(stop))
        with self._scheduler:
            self._tell("started")
            _clock.wait(stop, LONGEST_MS)

    def _await_parent(self, stop: threading.Event) -> None:
        os.read(0, 1)
        stop.set()

    def _tick(self, ctx: RunContext) -> None:
        self._tell_run("begin", ctx)
        self._tell_run("end", ctx)

    def _report(self, ctx: RunContext) -> None:
        self._tell_run("begin", ctx)
        _clock.wait(ctx.signal, 200)
        self._tell_run("end", ctx)

    def _billing(self, ctx: RunContext) -> None:
        self._tell_run("begin", ctx)
        for _ in range(BILLING_STEPS):
            _clock.wait(ctx.signal, STEP_MS)
            ctx.raise_if_cancelled()
            self._tell_run("step", ctx)
        self._tell_run("end", ctx)

    def _skipped(self, event: Event) -> None:
        # "taken" is what the other worker's luck looks like from here.
        if event.reason == "late":
            self._tell_run("late", event)

    def _failed(self, event: Event) -> None:
        self._tell("error", job=event.job or "", text=f"{event.operation}: {event.exception}"[:500])

    def _tell_run(self, what: str, about: RunContext | Event) -> None:
        assert about.job is not None and about.slot is not None
        self._tell(what, about.job, to_ms(about.slot), about.attempt or 0, about.fence or 0)

    def _tell(
        self, what: str, job: str = "", slot_ms: int = 0, attempt: int = 0, fence: int = 0, text: str = ""
    ) -> None:
        write_line(1, Line(self._name, what, _clock.now_ms(), job, slot_ms, attempt, fence, text))


def main(name: str, path: str) -> None:
    Worker(name, path).live()


if __name__ == "__main__":
    main(*sys.argv[1:])
