"""The scheduler of this process: a worker's with the jobs, or a reader without any, which is never started."""

from __future__ import annotations

import logging

from anarchon import Scheduler

from billing.config import CRON, RUN_JOBS

logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")

scheduler = Scheduler(**CRON)

if RUN_JOBS:
    # An API process has no use for the jobs, nor for what they import.
    from billing.jobs import register

    register(scheduler)
