"""One process on a cache (``tests/caches.py``): it races others for slots, or runs a job; its log is as a worker's.

What it is comes as JSON in the first argument. It begins when a line comes on standard input, and ends with that.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from caches import ALIAS, DATABASE_ALIAS, Router, new_backend, set_up_django
from worker import Log

from anarchon import BackendError, CacheBackend, RunContext, Scheduler
from anarchon.durations import to_ms


def make_backend(given: dict[str, Any]) -> CacheBackend:
    if given["cache"]:
        databases = {"default": {}, DATABASE_ALIAS: given["database"]} if given["database"] else {}
        routers = [Router()] if given["database"] else []
        set_up_django(CACHES={ALIAS: given["cache"]}, DATABASES=databases, DATABASE_ROUTERS=routers)
    return new_backend(given["address"], prefix=given["prefix"])


def race(backend: CacheBackend, log: Log, given: dict[str, Any]) -> None:
    """Claims every slot as fast as it can; says which it has won, and how many claims failed and were repeated.

    So does a child that it forks, after it has asked the cache itself.
    """
    assert backend.history("race", 1) == []
    child = os.fork()
    won, failed = [], 0
    for slot in range(1, given["slots"] + 1):
        while True:
            try:
                if backend.claim("race", slot * 1_000, f"{given['name']} {child == 0}"):
                    won.append(slot)
                break
            except BackendError:
                failed += 1
    log.write("raced", won=won, failed=failed)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    while os.read(0, 1):
        pass


def run(backend: CacheBackend, log: Log, given: dict[str, Any]) -> None:
    """Runs a job each second; the first run that it wins goes on until it is told to end, if it ``hangs``."""
    scheduler = Scheduler(backend, instance_id=given["name"])

    @scheduler.every("tick", "1s")
    def tick(ctx: RunContext) -> None:
        log.write("begin", slot_ms=to_ms(ctx.slot))
        if given["hangs"]:
            ctx.signal.wait()
        log.write("end", slot_ms=to_ms(ctx.slot))

    scheduler.run_forever()


def main() -> None:
    given = json.loads(sys.argv[1])
    log = Log(given["log"], given["name"])
    backend = make_backend(given)
    log.write("ready")
    os.read(0, 1)
    {"race": race, "run": run}[given["does"]](backend, log, given)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # for whoever wonders why one does not end: kill -USR1
    main()
