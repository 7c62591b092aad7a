"""anarchon, its jobs with the default options but for the jitter."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

# This file has the package's name, and stands first on the path.
sys.path[0] = str(Path(__file__).resolve().parents[2])
sys.path.append(str(Path(__file__).resolve().parent))

from common import Fired, read_plan  # noqa: E402
from phased import Phased  # noqa: E402

from anarchon import RedisBackend, Scheduler  # noqa: E402


def main() -> None:
    plan = read_plan()
    fired = Fired(plan)
    scheduler = Scheduler(RedisBackend(plan.url, prefix=plan.prefix))
    for job in range(plan.jobs):
        schedule = Phased("1s", 1000, phase_ms=plan.phase_ms(job))
        scheduler._register_or_decorate(f"job-{job}", schedule, partial(fired.handler, job), {"jitter": 0})
    with scheduler:
        fired.measure()


main()
