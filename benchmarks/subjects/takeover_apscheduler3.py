"""APScheduler 3 with its Redis job store: a job's next run is written down before one begins, and no run ever is."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.blocking import BlockingScheduler
from takeover_common import URL, run_for_ever

logging.basicConfig(level=logging.ERROR)


def run() -> None:
    run_for_ever()


def store() -> RedisJobStore:
    url = urlsplit(URL)
    return RedisJobStore(host=url.hostname, port=url.port)


def send() -> None:
    scheduler = BackgroundScheduler(jobstores={"default": store()}, timezone=timezone.utc)
    scheduler.start(paused=True)
    at = datetime.now(timezone.utc)
    scheduler.add_job("takeover_apscheduler3:run", "date", run_date=at, misfire_grace_time=None)
    scheduler.shutdown()


def work() -> None:
    BlockingScheduler(jobstores={"default": store()}, timezone=timezone.utc).start()


def about() -> dict[str, Any]:
    return {"how": "never: the job has its next time before it is run, and no run is written down"}
