"""A server that loads its application before it forks, as gunicorn does with ``--preload``; its log is as a worker's.

The application has started its scheduler in the parent. Each child says in its turn what it finds, then does as its
hook would have it: ``start`` (a ``post_fork`` that starts the scheduler anew) or ``forget`` (there is no such hook).
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
from typing import Any

from worker import Log

from anarchon import Event, RunContext, Scheduler, open_backend
from anarchon.durations import to_ms


class Server:
    def __init__(self, given: dict[str, Any]) -> None:
        self._path = given["log"]
        self._log = Log(self._path, "parent")
        self._scheduler = Scheduler(open_backend(given["url"], prefix=given["prefix"]), instance_id="web")
        for number in range(given["jobs"]):
            self._scheduler.every(f"job-{number}", given["every"], self._handler)
        self._scheduler.on("skip", self._skipped)

    def serve(self, hooks: list[str]) -> None:
        self._scheduler.start()
        children = [self._fork(number, hook) for number, hook in enumerate(hooks)]
        self._log.write("forked", count=len(children))
        self._scheduler.run_forever()
        for child in children:
            os.kill(child, signal.SIGTERM)
        ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        self._log.write("stopped", children=ended)

    def _fork(self, number: int, hook: str) -> int:
        child = os.fork()
        if child:
            return child
        try:
            if hook == "forget":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._log = Log(self._path, f"child-{number}")
            self._be_child(hook)
        except BaseException:
            logging.exception("A child has failed.")
            os._exit(1)
        os._exit(0)

    def _be_child(self, hook: str) -> None:
        scheduler = self._scheduler
        name = scheduler.jobs()[0].name
        # The store can be used at once, whatever the parent's threads were doing to it when it forked.
        self._log.write("found", hook=hook, instance=scheduler.instance_id, records=len(scheduler.history(name)))
        if hook == "start":
            scheduler.run_forever()
        else:
            signal.sigwait({signal.SIGTERM})
            scheduler.stop()

    def _handler(self, ctx: RunContext) -> None:
        about = {"job": ctx.job, "slot_ms": to_ms(ctx.slot), "attempt": ctx.attempt, "fence": ctx.fence}
        self._log.write("begin", **about, instance=ctx.instance_id)
        self._log.write("end", **about)

    def _skipped(self, event: Event) -> None:
        self._log.write("skip", job=event.job, slot_ms=event.slot and to_ms(event.slot), reason=event.reason)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # for whoever wonders why a child hangs: kill -USR1
    logging.basicConfig(level=logging.WARNING, format="%(process)d %(levelname)s %(message)s")
    given = json.loads(sys.argv[1])
    Server(given).serve(given["hooks"])
