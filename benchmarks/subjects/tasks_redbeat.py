"""The tasks of Celery beat with redbeat, and a scheduler that tells each task when it was due."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from redbeat.schedulers import RedBeatScheduler

URL = os.environ["BENCHMARK_URL"]
LOG = os.open(os.environ["BENCHMARK_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

app = Celery("tasks_redbeat", broker=URL)
# An idle beat looks for new entries each second, and not after five minutes.
app.conf.update(task_ignore_result=True, redbeat_redis_url=URL, beat_max_loop_interval=1)


@app.task(name="run")
def run(job: int, due: float) -> None:
    os.write(LOG, b"%d %.6f %.6f\n" % (job, time.time(), due))


class TellingScheduler(RedBeatScheduler):  # type: ignore[misc]
    """A task is due an interval after it was sent last: so redbeat computes it, and so it is told to the task."""

    def maybe_due(self, entry: Any, **options: Any) -> Any:
        due = entry.last_run_at + entry.schedule.run_every
        entry.args = (*entry.args, due.timestamp())
        return super().maybe_due(entry, **options)
