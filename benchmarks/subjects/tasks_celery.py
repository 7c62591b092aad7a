from __future__ import annotations

import os

from celery import Celery

app = Celery("tasks", broker=os.environ["BENCHMARK_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
QUEUE = "celery"


@app.task
def nothing() -> None:
    pass


def fill(count: int) -> None:
    for _ in range(count):
        nothing.delay()
