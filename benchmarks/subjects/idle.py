"""So many hourly jobs, or as many bare waiting threads, and nothing to do: ``idle.py {anarchon,bare} JOBS URL``.

It writes a line of JSON with its figures when all is registered, when it was started, and for each line that it reads;
and when there is no more to read, it stops and writes how that went.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

# The folder of this file has one of the package's name, and stands first on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from anarchon import RedisBackend, Scheduler

PAGE_KIB = resource.getpagesize() // 1024


class Jobs:
    """Hourly jobs of one scheduler."""

    def __init__(self, url: str) -> None:
        self._scheduler = Scheduler(RedisBackend(url, prefix="idle:"))
        self._scheduler.active("warm-up")  # the client and its first connection are no job's

    def register(self, jobs: int) -> None:
        for job in range(jobs):
            self._scheduler.every(f"job-{job}", "1h", lambda: None)

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> bool:
        return self._scheduler.stop("60s")


class Waiting:
    """The bare design: a thread a job waits on an Event for the next hour."""

    def __init__(self, url: str) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def register(self, jobs: int) -> None:
        self._threads = [threading.Thread(target=self._over.wait, args=(3600,), daemon=True) for _ in range(jobs)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        self._over.set()
        for thread in self._threads:
            thread.join()
        return True


def tell(**more: Any) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "at": time.monotonic(),
        "kib": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB,
        "cpu_s": used.ru_utime + used.ru_stime,
        "switches": used.ru_nvcsw,
        "threads": len(os.listdir("/proc/self/task")),
    }
    print(json.dumps({**figures, **more}), flush=True)


def main() -> None:
    side, jobs, url = sys.argv[1:]
    subject = (Jobs if side == "anarchon" else Waiting)(url)
    tell()
    subject.register(int(jobs))
    tell()
    begun = time.monotonic()
    subject.start()
    tell(begun=begun)
    for _ in sys.stdin:
        tell()
    begun = time.monotonic()
    stopped = subject.stop()
    tell(begun=begun, stopped=stopped)


main()
