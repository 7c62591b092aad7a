"""huey: its periodic tasks know minutes, so each task gives itself its next instant. It looks for them each second."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone

from common import Fired, read_plan
from huey import RedisHuey

plan = read_plan()
fired = Fired(plan)
huey = RedisHuey("benchmark", url=plan.url, results=False)


@huey.task()
def run(job: int, due: float) -> None:
    fired.handler(job, due)
    give(job, due + 1)


def give(job: int, due: float) -> None:
    # A naive instant would lose its fraction of a second.
    run.schedule((job, due), eta=datetime.fromtimestamp(due, timezone.utc))


def main() -> None:
    # Its scheduler looks each second, which is the finest there is; one thread runs the tasks.
    huey.create_consumer().start()
    begin = int(time.time()) + 2
    for job in range(plan.jobs):
        give(job, begin + plan.phase_ms(job) / 1000)
    fired.measure()
    os._exit(0)  # its threads are no daemons, and this is their end


main()
