"""What outlives a stop: handlers left behind, manual runs whose answers were lost, and the exits of several."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from world import World

from anarchon import BackendError, RunContext, RunRefused


def test_a_handler_left_behind_blocks_its_job_after_a_restart_too(world: World) -> None:
    """
    1. a handler goes on after its timeout; the scheduler is stopped, in vain, and started again
    2. the slots that follow are skips, overlap: the handler is still at work in this process
    3. it ends, and the next slot is run
    """
    let_go = world.clock.event()
    running: list[RunContext] = []

    def handler(ctx: RunContext) -> None:
        running.append(ctx)
        let_go.wait()

    a = world.scheduler().every("x", "10s", handler, timeout="1s")
    a.start()
    world.pass_time("12s")
    assert world.run(lambda: a.stop("1s")) is False
    a.start()
    world.pass_time("20s")
    assert len(running) == 1
    assert a.heard.words()[-1] == "skip overlap"
    with pytest.raises(RunRefused, match="a handler is still at work here after its timeout"):
        world.run(lambda: a.run_now("x"))
    let_go.set()
    world.pass_time("11s")
    assert len(running) == 2
    assert world.run(lambda: a.stop("10s")) is True


def test_a_manual_run_whose_answers_were_lost_is_ended_and_in_nobodys_way(world: World) -> None:
    """
    1. run_now claims; the store grants it, and every answer is lost
    2. the caller is told that the store could not be asked
    3. the run is ended with its own token, so that the job's next slot is not refused for a lease that nobody holds
    """
    a = world.scheduler().every("x", "10s", lambda: None)
    a.start()
    world.pass_time("1s")
    world.script.next("claim", "lose", "lose", "lose")
    with pytest.raises(BackendError):
        world.run(lambda: a.run_now("x"))
    world.pass_time("10s")
    assert a.active("x") == []
    assert a.heard.words("error") == ["start", "success"]
    assert [(record.trigger, record.status) for record in a.history("x")] == [
        ("scheduled", "success"),
        ("manual", "interrupted"),
    ]


def test_a_manual_run_that_was_never_granted_leaves_no_trace(world: World) -> None:
    a = world.scheduler().every("x", "10s", lambda: None)
    world.script.next("claim", "fail", "fail", "fail")
    with pytest.raises(BackendError):
        world.run(lambda: a.run_now("x"))
    world.pass_time("5s")
    assert a.history("x") == [] and a.active("x") == []


EXITS = """
import threading, time
from anarchon import MemoryBackend, Scheduler

began = threading.Semaphore(0)

def deaf():
    began.release()
    time.sleep(60)

schedulers = [Scheduler(MemoryBackend()).every("x", "100ms", deaf, jitter=0).start() for _ in range(20)]
for _ in schedulers:
    assert began.acquire(timeout=60)
print(time.monotonic())
"""


def test_the_exit_of_many_schedulers_takes_no_longer_than_that_of_one() -> None:
    done = subprocess.run([sys.executable, "-c", EXITS], check=True, stdout=subprocess.PIPE, timeout=100)
    # From when it began to end, on the one clock that all processes of a host have: two seconds for all of them; forty
    # were they waited for one after another.
    assert time.monotonic() - float(done.stdout) < 40
