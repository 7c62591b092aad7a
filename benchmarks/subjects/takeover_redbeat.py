"""Celery beat with redbeat: a task that is due each second is sent by whoever holds the lock."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.beat import DEFAULT_MAX_INTERVAL
from celery.signals import before_task_publish
from takeover_common import SETTINGS, URL, tell_begun

app = Celery("takeover_redbeat", broker=URL)
app.conf.update(redbeat_redis_url=URL, beat_schedule={"tick": {"task": "tick", "schedule": 1.0}}, **SETTINGS)


@before_task_publish.connect
def published(**_: Any) -> None:
    tell_begun()


def send() -> None:
    """The schedule is the app's own."""


def work() -> None:
    app.start(["beat", "--scheduler", "redbeat.RedBeatScheduler", "--pidfile", "", "--loglevel", "ERROR"])


def about() -> dict[str, Any]:
    # As RedBeatScheduler computes them: the lock is for five of the beat's longest pauses, with one between two tries.
    interval_s = SETTINGS.get("beat_max_loop_interval", DEFAULT_MAX_INTERVAL)
    return {
        "setting": "redbeat_lock_timeout",
        "set_s": interval_s * 5,
        "default_s": DEFAULT_MAX_INTERVAL * 5,
        "by_default_s": DEFAULT_MAX_INTERVAL * 6,
        "how": "at most: the lock's time, and the pause between two tries to take it",
    }
