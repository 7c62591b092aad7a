"""A process that a job has forked lives on when its worker does not: it keeps neither callers nor the port waiting."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from http_workers import HttpWorkers
from servers import free_port

# Says that it runs once there is a child, which lives as long as its process group is left alone.
FORKS = """
import warnings

@scheduler.cron("forks", "0 0 29 2 *")
def forks(ctx):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        threading.Event().wait(100)
        os._exit(0)
    begun(ctx)
    ctx.signal.wait(100)
"""


def test_callers_and_the_port_of_a_killed_worker_are_free_though_a_child_of_its_job_lives_on(tmp_path: Path) -> None:
    workers = HttpWorkers(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    with (tmp_path / "jobs.py").open("a", encoding="utf-8") as jobs:
        jobs.write(FORKS)
    # Not one that the kernel deals out: it might be anybody's before the following worker comes.
    killed = workers.start("killed", http=f"127.0.0.1:{free_port()}")
    url, remote = killed.url, killed.remote
    try:
        with ThreadPoolExecutor() as caller:
            asked = caller.submit(remote.run_now, "forks")
            killed.wait_until_it_runs("forks")
            assert killed.end(signal.SIGKILL) == -signal.SIGKILL
            told = str(asked.exception())
        assert "The run may have begun" in told and "TimeoutError" not in told
        following = workers.start("following", http=url.removeprefix("http://"))
        assert following.remote.run_now("sync").instance_id == "following"
    finally:
        # The child, which was there until now.
        os.killpg(killed.process.pid, signal.SIGKILL)
        workers.close()
