"""schedule: one thread, in memory."""

from __future__ import annotations

import datetime
import sys
import time
from pathlib import Path
from threading import Thread

# This file has the library's name, and stands first on the path.
here = sys.path.pop(0)
import schedule  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Fired, read_plan  # noqa: E402


def main() -> None:
    plan = read_plan()
    fired = Fired(plan)
    begin = datetime.datetime.now().replace(microsecond=0) + datetime.timedelta(seconds=2)
    for number in range(plan.jobs):
        job = schedule.every(1).seconds.do(fired.handler, number)
        job.next_run = begin + datetime.timedelta(milliseconds=plan.phase_ms(number))

    def keep_time() -> None:
        while True:
            schedule.run_pending()
            time.sleep(max(0, schedule.idle_seconds()))

    Thread(target=keep_time, daemon=True).start()
    fired.measure()


main()
