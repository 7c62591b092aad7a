"""Celery with acks_late: what was taken and not acknowledged is seen again by the others after a while."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.transport.redis import Channel
from takeover_common import SETTINGS, URL, run_for_ever

app = Celery("takeover_celery", broker=URL)
app.conf.update(task_ignore_result=True, task_acks_late=True, broker_transport_options=SETTINGS)
run = app.task(name="run")(run_for_ever)


def send() -> None:
    run.delay()


def work() -> None:
    app.worker_main(["worker", "--loglevel", "ERROR"])


def about() -> dict[str, Any]:
    default_s = Channel.visibility_timeout
    looked_for_s = Channel.unacked_restore_interval * Channel.unacked_restore_throttle
    return {
        "setting": "visibility_timeout",
        "set_s": SETTINGS.get("visibility_timeout", default_s),
        "default_s": default_s,
        "by_default_s": default_s + looked_for_s,
        "how": f"at most: from when it was taken, and it is looked for every {looked_for_s} s",
    }
