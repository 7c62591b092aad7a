"""RQ: a job that its worker has abandoned is found by the maintenance of another, and retried where it may be."""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue, Retry, Worker
from rq.defaults import (
    DEFAULT_JOB_MONITORING_INTERVAL,
    DEFAULT_MAINTENANCE_TASK_INTERVAL,
    DEFAULT_WORKER_TTL,
)
from takeover_common import SETTINGS, URL, run_for_ever

#: What the worker adds to its interval when it says how long its job is trusted; no setting.
GRACE_S = 60
#: What it takes off its own time to live, and then sleeps on an empty queue; no setting.
SLACK_S = 15

queue = Queue(connection=Redis.from_url(URL))


def run() -> None:
    run_for_ever()


def send() -> None:
    # Without a retry it would be moved to the failed ones.
    queue.enqueue(run, retry=Retry(max=1))


def work() -> None:
    Worker([queue], connection=queue.connection, **SETTINGS).work(logging_level="ERROR")


def about() -> dict[str, Any]:
    asleep_s = DEFAULT_WORKER_TTL - SLACK_S
    return {
        "setting": "job_monitoring_interval + 60 s",
        "set_s": SETTINGS.get("job_monitoring_interval", DEFAULT_JOB_MONITORING_INTERVAL) + GRACE_S,
        "default_s": DEFAULT_JOB_MONITORING_INTERVAL + GRACE_S,
        "by_default_s": DEFAULT_JOB_MONITORING_INTERVAL + GRACE_S + DEFAULT_MAINTENANCE_TASK_INTERVAL + asleep_s,
        "how": f"at most: looked for every {DEFAULT_MAINTENANCE_TASK_INTERVAL} s, by an idle worker every {asleep_s} s",
    }
