"""A worker whose clock its test sets while it runs; otherwise as ``worker.py``, with the same log.

``step`` on standard input steps the host's clock by so many milliseconds: this clock's offset changes, and nobody is
told. Where the store is a file it keeps the host's time, as it does outside of tests. Every handler call says what the
store's clock said when it granted the run.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from worker import Log

from anarchon import Event, LeaseBackend, RunContext, Scheduler, SQLiteBackend, open_backend
from anarchon.clock import SystemClock
from anarchon.durations import to_ms
from anarchon.records import ClaimReply, ClaimRequest
from anarchon.sources import Sources


class SteppedClock(SystemClock):
    """A host whose wall clock somebody sets."""

    offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class ClockedWorker:
    def __init__(self, given: dict[str, Any]) -> None:
        self._log = Log(given["log"], given["name"])
        self._clock = SteppedClock()
        self._backend = self._open(given["url"], given["prefix"])
        self._granted_ms: dict[tuple[str, int], int] = {}
        self._backend.claim = self._noting(self._backend.claim)  # type: ignore[method-assign]
        self._scheduler = Scheduler(
            self._backend, instance_id=given["name"], jitter=0, sources=Sources(clock=self._clock), log=True
        )
        self._scheduler.every("half", "500ms", self._handler)
        self._scheduler.cron("second", "* * * * * *", self._handler, seconds=True)
        for type in ("skip", "error"):
            self._scheduler.on(type, self._tell)

    def work(self) -> None:
        threading.Thread(target=self._obey, name="wishes", daemon=True).start()
        self._scheduler.start()
        self._log.write("ready")
        self._scheduler.run_forever("20s")

    def _open(self, url: str, prefix: str | None) -> LeaseBackend:
        if url.startswith("sqlite:///"):
            return SQLiteBackend(url.removeprefix("sqlite:///"), clock=self._clock)
        return open_backend(url, prefix=prefix)

    def _noting(self, claim: Callable[[ClaimRequest], ClaimReply]) -> Callable[[ClaimRequest], ClaimReply]:
        """Keeps the store's time of each answer: the handler comes a little later, and may find the clock set back."""

        def noting(request: ClaimRequest) -> ClaimReply:
            reply = claim(request)
            self._granted_ms[request.job, request.slot_ms] = reply.store_time_ms
            return reply

        return noting

    def _handler(self, ctx: RunContext) -> None:
        slot_ms = to_ms(ctx.slot)
        self._log.write("begin", job=ctx.job, slot_ms=slot_ms, store_ms=self._granted_ms[ctx.job, slot_ms])

    def _tell(self, event: Event) -> None:
        slot_ms = event.slot and to_ms(event.slot)
        error = event.exception and repr(event.exception)
        self._log.write(
            event.type, job=event.job, slot_ms=slot_ms, reason=event.reason, count=event.count, error=error
        )  # fmt: skip

    def _obey(self) -> None:
        buffered = b""
        while received := os.read(0, 65536):
            *lines, buffered = (buffered + received).split(b"\n")
            for line in lines:
                self._clock.offset_ms += json.loads(line)["ms"]
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # for whoever wonders why one does not end: kill -USR1
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    ClockedWorker(json.loads(sys.argv[1])).work()
