"""Celery beat with redbeat, and a worker as it starts without options: an entry of redbeat's each job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from common import Fired, Used, read_plan

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")

WORKER = ["worker", "--loglevel", "ERROR"]
BEAT = ["beat", "--scheduler", "tasks_redbeat.TellingScheduler", "--pidfile", "", "--loglevel", "ERROR"]


class LoggedFired(Fired):
    """The handlers run in the worker's processes, which write to a file."""

    def read_late(self) -> None:
        lines = (line.split() for line in Path(os.environ["BENCHMARK_LOG"]).read_text().splitlines())
        self.begun = [(int(job), float(at), float(due)) for job, at, due in lines if float(due)]


@contextmanager
def celery(arguments: list[str]) -> Iterator[int]:
    """One of its programs, with its children in a session of its own."""
    command = [sys.executable, "-m", "celery", "-A", "tasks_redbeat", *arguments]
    with subprocess.Popen(command, cwd=HERE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def used_by(sessions: list[int]) -> Used:
    """By all processes of these sessions. One that ends meanwhile takes its figures with it; none does."""
    cpu_s, switches, threads = 0.0, 0, 0
    for process in Path("/proc").glob("[0-9]*"):
        if os.getsid(int(process.name)) in sessions:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / TICKS
            for thread in (process / "task").iterdir():
                threads += 1
                lines = (thread / "status").read_text().splitlines()
                switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return Used(cpu_s, switches, threads)


def main() -> None:
    plan = read_plan()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, ExitStack() as ends:
        os.environ |= {"BENCHMARK_URL": plan.url, "BENCHMARK_LOG": f"{folder}/log"}
        from celery.schedules import schedule
        from redbeat import RedBeatSchedulerEntry
        from redbeat.schedulers import get_redis
        from tasks_redbeat import app, run

        sessions = [ends.enter_context(celery(WORKER)), ends.enter_context(celery(BEAT))]
        run.delay(0, 0)
        while not os.path.getsize(f"{folder}/log") or not get_redis(app).exists(app.redbeat_conf.lock_key):
            time.sleep(0.1)  # until both run
        begin = int(time.time()) + 1
        for job in range(plan.jobs):
            # It is due a second after it was given to redbeat, which it therefore is at its phase.
            time.sleep(max(0, begin + plan.phase_ms(job) / 1000 - time.time()))
            entry = RedBeatSchedulerEntry(f"{job}", "run", schedule(1, app=app), args=(job,), app=app)
            entry.last_run_at = datetime.now(timezone.utc)
            entry.save()
        LoggedFired(plan).measure(lambda: used_by(sessions))


main()
