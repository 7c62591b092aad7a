"""APScheduler 4 (a pre-release), with its data in memory."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from apscheduler import Scheduler
from apscheduler.triggers.interval import IntervalTrigger
from common import Fired, read_plan

plan = read_plan()
fired = Fired(plan)


def handler(job: int) -> None:
    fired.handler(job)


def main() -> None:
    begin = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=2)
    with Scheduler() as scheduler:
        for job in range(plan.jobs):
            trigger = IntervalTrigger(seconds=1, start_time=begin + timedelta(milliseconds=plan.phase_ms(job)))
            scheduler.add_schedule(handler, trigger, args=(job,), id=f"{job}", misfire_grace_time=None)
        scheduler.start_in_background()
        fired.measure()
        scheduler.stop()


if __name__ == "__main__":
    import apscheduler4  # tasks are found by their module's name

    apscheduler4.main()
