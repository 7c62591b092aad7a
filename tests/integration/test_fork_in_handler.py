"""Handlers and listeners that fork: the child ends where their code ends, and never speaks for its parent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# One run, asked for by hand, whose handler forks at the place named by argv. The child's status is printed by the
# parent, which works on for a while after the child has ended.
SCRIPT = """
import contextlib, json, os, sys, time
from anarchon import Scheduler

where, ending, store = sys.argv[1:]
home = os.getpid()
children = []
told = []

def leave():
    pid = os.fork()
    if pid:
        children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        return False
    if ending == "raises":
        raise ValueError("in the child")
    if ending == "exits":
        sys.exit(3)
    print("said by the child")
    return True

@contextlib.contextmanager
def around(ctx):
    if where == "around" and leave():
        pass
    yield
    if os.getpid() != home:
        os.write(2, b"the child left what is its parent's")

def handler(ctx):
    if where == "handler" and leave():
        return
    time.sleep(0.2)

def told_of_start(event):
    if where == "listener":
        leave()

scheduler = Scheduler(store, around_run=around).every("x", "1h", handler, timeout="20s" if where == "raced" else None)
if where == "raced":
    where = "handler"
scheduler.on("start", told_of_start)
scheduler.on("success", lambda event: told.append(os.getpid() == home))
record = scheduler.run_now("x")
print(json.dumps({
    "children": children, "told": told, "status": record.status, "duration": record.duration,
    "history": [kept.status for kept in scheduler.history("x")], "active": len(scheduler.active("x")),
    "stopped": scheduler.stop("10s"),
}))
"""


def run(where: str, ending: str, store: str) -> tuple[dict[str, Any], list[str], str]:
    ended = subprocess.run(
        # A fork beside threads is what is asked about here.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT, where, ending, store],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    *said, last = ended.stdout.splitlines()
    return json.loads(last), said, ended.stderr


@pytest.mark.parametrize("where", ["handler", "raced", "listener", "around"])
def test_a_child_that_comes_back_ends_and_leaves_the_run_to_its_parent(where: str, tmp_path: Path) -> None:
    """
    1. the handler forks; parent and child come back into the library, on copies of one thread
    2. the child ends there, with 0: it neither finishes the run nor goes on to another part of it
    3. the parent works on, and stores how its own handler ended
    """
    seen, said, complained = run(where, "returns", f"sqlite:///{tmp_path}/jobs.db")
    assert seen["children"] == [0]
    assert seen["told"] == [True]
    assert seen["status"] == "success" and seen["duration"] >= 0.2
    assert seen["history"] == ["success"] and seen["active"] == 0 and seen["stopped"] is True
    assert said == ["said by the child"], "what the child has printed is not lost, nor said twice"
    assert "its parent's" not in complained


@pytest.mark.parametrize("where", ["handler", "raced", "listener"])
@pytest.mark.parametrize(("ending", "code"), [("raises", 1), ("exits", 3)])
def test_a_child_that_raises_ends_with_its_code(where: str, ending: str, code: int, tmp_path: Path) -> None:
    seen, _, complained = run(where, ending, f"sqlite:///{tmp_path}/jobs.db")
    assert seen["children"] == [code]
    assert seen["history"] == ["success"] and seen["duration"] >= 0.2
    assert ("ValueError: in the child" in complained) is (ending == "raises")


def test_a_child_that_comes_back_says_nothing_to_redis(redis_url: str, prefix: str) -> None:
    script = SCRIPT.replace("Scheduler(store,", f"Scheduler(open_backend(store, prefix={prefix!r}),")
    script = script.replace("from anarchon import Scheduler", "from anarchon import Scheduler, open_backend")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, "handler", "returns", redis_url],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["children"] == [0]
    assert seen["history"] == ["success"] and seen["duration"] >= 0.2


POOL = """
import logging, multiprocessing, os, sys, threading
from anarchon import Scheduler

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
done = threading.Event()

def handler():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert sorted(pool.map(abs, [-1, -2])) == [1, 2]
    done.set()

with Scheduler(sys.argv[1]).every("x", "1s", handler) as scheduler:
    assert done.wait(60)
print([record.status for record in scheduler.history("x")][-1])
"""


def test_a_pool_of_a_handlers_own_works_and_is_not_told_that_it_runs_no_jobs(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", POOL, f"sqlite:///{tmp_path}/jobs.db"],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert ended.stdout == "success\n"
    assert "forked" not in ended.stderr
