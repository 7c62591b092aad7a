"""APScheduler 3 with its Redis job store, and its defaults but that a late run is not dropped."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from common import Fired, read_plan

plan = read_plan()
fired = Fired(plan)


def handler(job: int) -> None:
    fired.handler(job)


def main() -> None:
    url = urlsplit(plan.url)
    store = RedisJobStore(
        host=url.hostname, port=url.port, jobs_key=f"{plan.prefix}jobs", run_times_key=f"{plan.prefix}run_times"
    )
    scheduler = BackgroundScheduler(jobstores={"default": store}, timezone=timezone.utc)
    begin = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=2)
    scheduler.start(paused=True)
    for job in range(plan.jobs):
        trigger = IntervalTrigger(seconds=1, start_date=begin + timedelta(milliseconds=plan.phase_ms(job)))
        scheduler.add_job(handler, trigger, args=(job,), id=f"{job}", misfire_grace_time=None, coalesce=True)
    scheduler.resume()
    fired.measure()
    scheduler.pause()
    scheduler.shutdown()


if __name__ == "__main__":
    import apscheduler3  # the store finds the handler by its module's name

    apscheduler3.main()
