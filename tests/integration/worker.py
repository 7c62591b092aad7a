"""One worker process of a fleet (``fleet.py``): a scheduler, its jobs, and a log of what really happened.

What it is comes as JSON in the first argument, further wishes as lines of JSON on standard input. Every handler call
and every event is one line, appended to a file that is no part of the store: a fleet is judged by what its handlers
did, not by what the store believes. SIGTERM stops it, and so does the end of its input, so that no worker outlives its
test.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from anarchon import Event, LeaseBackend, RunContext, RunRefused, Scheduler, open_backend
from anarchon.clock import SystemClock
from anarchon.durations import to_ms
from anarchon.records import Verdict
from anarchon.sources import Sources
from anarchon.testing import RunLog

# What a lease's margin is not meant for.
_STANDSTILL_S = 0.2


class SkewedClock(SystemClock):
    """A host whose wall clock is wrong."""

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms


class Log:
    """Lines that are whole whoever writes them: one write each, to a file that is open for appending."""

    def __init__(self, path: str, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._worker = worker

    def write(self, what: str, **more: Any) -> None:
        # The wall clock of the host, which is the store's here, whatever this worker believes.
        line = {"what": what, "worker": self._worker, "wall_ms": time.time_ns() // 1_000_000, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class _Scheduler(Scheduler):
    """Tells when it has been started, and a SIGTERM will stop it."""

    def __init__(self, started: Callable[[], None], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._started = started

    def start(self) -> _Scheduler:
        super().start()
        self._started()
        return self


class Worker:
    """The scheduler of this process, and what may be asked of it."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._log = Log(given["log"], given["name"])
        self._stop_timeout = given["stop_timeout"]
        backend = open_backend(given["url"], prefix=given["prefix"])
        if given["renewals"]:
            self._log_renewals(backend)
        self._scheduler = _Scheduler(
            lambda: self._log.write("ready"),
            backend,
            instance_id=given["name"],
            sources=Sources(clock=SkewedClock(given["skew_ms"])),
            log=True,
            around_run=RunLog(given["runs"]).around_run if "runs" in given else None,
        )
        for type in ("start", "success", "failure", "interrupted", "skip", "error"):
            self._scheduler.on(type, self._tell)
        for job in given["jobs"]:
            self.add(**job)

    def work(self) -> None:
        threading.Thread(target=self._obey, name="wishes", daemon=True).start()
        threading.Thread(target=self._watch_for_standstills, name="standstills", daemon=True).start()
        in_time = self._scheduler.run_forever(self._stop_timeout)
        self._log.write("stopped", in_time=in_time, threads=self._threads())

    def add(
        self,
        name: str,
        *,
        every: str | None = None,
        cron: str | None = None,
        lasts: list[float] | None = None,
        error: str | None = None,
        copies: int | None = None,
        **options: Any,
    ) -> None:
        """Registers a job, or so many, numbered.

        Its first attempt lasts as long as the first of ``lasts`` says, and so on; any further one as long as the last.
        Then it raises ``error``, if there is one.
        """

        def handler(ctx: RunContext) -> None:
            about = {"job": ctx.job, "slot_ms": to_ms(ctx.slot), "attempt": ctx.attempt, "fence": ctx.fence}
            self._log.write("begin", **about, trigger=ctx.trigger)
            seconds = (lasts or [0])[min(ctx.attempt, len(lasts or [0])) - 1]
            if seconds and ctx.signal.wait(seconds):
                self._log.write("told", **about, reason=ctx.reason)
                ctx.raise_if_cancelled()
            self._log.write("end", **about)
            if error is not None:
                raise ValueError(error)

        for each in [name] if copies is None else [f"{name}-{number}" for number in range(copies)]:
            if every is not None:
                self._scheduler.every(each, every, handler, **options)
            else:
                self._scheduler.cron(each, str(cron), handler, seconds=True, **options)

    def run_now(self, name: str, times: int) -> None:
        """Runs a job so often, one run after the other."""
        for _ in range(times):
            try:
                self._scheduler.run_now(name)
            except RunRefused as refusal:
                self._log.write("refused", job=name, holder=refusal.holder)
        self._log.write("ran", job=name, times=times)

    def threads(self, label: str) -> None:
        """Tells every thread of this process but the main one and this file's."""
        self._log.write("threads", label=label, threads=self._threads())

    def most_threads(self, label: str, least: int, seconds: float) -> None:
        """Tells how many threads this process has at most in the time after it had the least that it must have.

        The main one and this file's are not counted.
        """
        most = self._threads()
        while len(most) < least:
            time.sleep(0.05)
            most = self._threads()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            most = max(most, self._threads(), key=len)
            time.sleep(0.05)
        others = [name for name, _ in most if name != "anarchon-timers"]
        self._log.write("most_threads", label=label, count=len(most), others=others)

    def memory(self, label: str) -> None:
        """Tells how much memory this process holds now."""
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
        self._log.write("memory", label=label, kib=pages * resource.getpagesize() // 1024)

    def _log_renewals(self, backend: LeaseBackend) -> None:
        """Logs each renewal of a lease, and when it was asked for: from then on at the earliest the lease counts."""
        renew = backend.heartbeat

        def heartbeat(job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
            asked_ms = time.time_ns() // 1_000_000
            verdict = renew(job, run_id, token, lease_ms)
            if verdict is Verdict.OK:
                self._log.write("renewed", job=job, slot_ms=int(run_id), asked_ms=asked_ms)
            return verdict

        backend.heartbeat = heartbeat  # type: ignore[method-assign]

    def _threads(self) -> list[tuple[str, int | None]]:
        return [
            (thread.name, thread.ident)
            for thread in threading.enumerate()
            if thread.name not in ("MainThread", "wishes", "standstills")
        ]

    def _tell(self, event: Event) -> None:
        self._log.write(
            event.type,
            job=event.job,
            slot_ms=event.slot and to_ms(event.slot),
            attempt=event.attempt,
            fence=event.fence,
            reason=event.reason,
            holder=event.holder,
            count=event.count,
            operation=event.operation,
            error=None if event.exception is None else str(event.exception),
            cause=None if event.exception is None else type(event.exception.__cause__ or event.exception).__name__,
        )

    def _watch_for_standstills(self) -> None:
        """Tells when this process has not been given the processor for a while, whoever is to blame for that."""
        seen = time.monotonic()
        while True:
            time.sleep(_STANDSTILL_S / 2)
            before, seen = seen, time.monotonic()
            if seen - before > _STANDSTILL_S:
                now_ms = time.time_ns() // 1_000_000
                self._log.write("stood still", from_ms=now_ms - round(1000 * (seen - before)))

    def _obey(self) -> None:
        # Not sys.stdin: a daemon thread inside its lock would be in the way of the interpreter's end.
        buffered = b""
        while received := os.read(0, 65536):
            *lines, buffered = (buffered + received).split(b"\n")
            for line in lines:
                wish = json.loads(line)
                getattr(self, wish.pop("do"))(**wish)
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # for whoever wonders why one does not end: kill -USR1
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    Worker(json.loads(sys.argv[1])).work()
