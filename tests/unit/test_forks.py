"""Forks that Python is not told of, as uWSGI makes them, are met all the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

#: ``fork`` as a server written in C calls it: with Python's lock held, and without a word to Python. Where a script
#: forks so it has no other thread: one that waits for Python's lock just then leaves it unusable in the child.
BEGINNING = """
import ctypes, os, sys, threading, warnings
from anarchon import MemoryBackend, Scheduler, open_backend
from anarchon.forks import in_child, meet_fork

def forked(be_child, fork=ctypes.PyDLL(None).fork):
    child = fork()
    if not child:
        try:
            be_child()
            sys.stdout.flush()
        except BaseException as error:
            print("failed:", repr(error), flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""


def run(script: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c"]
    ended = subprocess.run([*command, BEGINNING + textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return [*ended.stdout.splitlines(), *ended.stderr.splitlines()]


@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_what_is_to_be_done_in_a_child_is_done_once_in_each_in_the_order_it_was_given(fork: str) -> None:
    lines = run(f"""
        in_child(lambda: print("first"))
        in_child(lambda: print("second"))

        def child():
            meet_fork()
            meet_fork()
            forked(meet_fork)
            print("grandchild ended")

        forked(child, {fork})
        meet_fork()
        print("parent")
    """)
    assert lines == ["first", "second", "first", "second", "grandchild ended", "parent"]


def test_one_call_that_fails_keeps_none_of_the_others_back() -> None:
    lines = run("""
        in_child(lambda: 1 / 0)
        in_child(lambda: print("second"))
        forked(meet_fork)
    """)
    assert lines[0] == "second"
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_threads_of_a_child_that_meet_the_fork_together_wait_until_all_is_done() -> None:
    lines = run("""
        done, seen = [], []
        barrier = threading.Barrier(4)
        in_child(lambda: (print("once"), done.append(1)))

        def meet():
            barrier.wait()
            meet_fork()
            seen.append(sum(done))

        def child():
            threads = [threading.Thread(target=meet) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(seen)

        forked(child)
    """)
    assert lines == ["once", "[1, 1, 1, 1]"]


def test_a_scheduler_that_is_asked_anything_in_such_a_child_has_a_name_and_parts_of_its_own() -> None:
    lines = run("""
        scheduler = Scheduler(MemoryBackend(), instance_id="web").every("job", "1h", lambda: None)
        store = scheduler._store

        def after(ask):
            def child():
                ask()
                print(scheduler._instance_id == f"web.{os.getpid()}" and scheduler._store is not store)
            return child

        forked(after(lambda: scheduler.instance_id))
        forked(after(lambda: scheduler.start()))
        forked(after(lambda: scheduler.stop()))
        forked(after(lambda: scheduler.next_run("job")))
        forked(after(lambda: scheduler.run_now("job")))
        forked(after(lambda: scheduler.history("job")))
        forked(after(lambda: scheduler.active("job")))
        forked(after(lambda: scheduler.forget("gone")))
        print(scheduler.instance_id)
    """)
    assert lines == [*["True"] * 8, "web"]


def test_the_end_of_such_a_child_is_not_taken_for_the_end_of_its_parents_runs() -> None:
    lines = run("""
        import atexit
        from anarchon.process import guard

        class Guarded:
            def _forked(self): print("forked")
            def _begin_exit(self): print("begins to end")
            def _end_exit(self, end_ms): print("ends")

        guarded = Guarded()
        guard(guarded)
        forked(atexit._run_exitfuncs)
        print("parent")
    """)
    assert lines == ["forked", "begins to end", "ends", "parent", "begins to end", "ends"]


def test_such_a_child_opens_connections_of_its_own(redis_url: str, prefix: str) -> None:
    lines = run(f"""
        scheduler = Scheduler(open_backend({redis_url!r}, prefix={prefix!r}))
        backend = scheduler.backend

        def connection():
            scheduler.history("job")
            return backend._source.ask(lambda client: client.client_id())

        parents = connection()
        forked(lambda: print(connection() == parents))
        print(connection() == parents)
        scheduler.stop()
    """)
    assert lines == ["False", "True"]
