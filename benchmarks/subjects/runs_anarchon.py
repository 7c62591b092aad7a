"""anarchon: two dozen jobs that are due every ten milliseconds; prints how many runs ended a second."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from anarchon import Scheduler, open_backend

JOBS = 24


def main() -> None:
    plan = json.loads(sys.argv[1])
    ended: list[float] = []
    scheduler = Scheduler(open_backend(plan["url"]))
    scheduler.on("success", lambda event: ended.append(time.monotonic()))
    for number in range(JOBS):
        scheduler.every(f"job-{number}", "10ms", lambda: None, jitter=0)
    with scheduler:
        time.sleep(1)  # to warm up
        begun = time.monotonic()
        time.sleep(plan["seconds"])
        over = time.monotonic()
    runs = sum(1 for at in list(ended) if begun <= at < over)
    print(json.dumps({"runs": runs, "seconds": over - begun, "threads": threading.active_count()}))


main()
