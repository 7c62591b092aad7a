"""uWSGI's real processes: its workers start the scheduler; its master, mules and spoolers never do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]
Served = dict[str, list[Any]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

# A worker that is told to end before it can hear is killed after this mercy, a minute unless told otherwise.
UWSGI = (
    "uwsgi",
    "--http-socket",
    "{socket}",
    "--module",
    "bare_site",
    "--enable-threads",
    "--worker-reload-mercy",
    "9",
)
# With it uWSGI 2.0.30 tells Python of a fork, and aborts on Python 3.13.
AFTERFORK = ("--py-call-osafterfork",) if sys.version_info < (3, 13) else ()
MASTER = (*UWSGI, "--master", "--die-on-term")
OFTEN = ("--max-requests", "5", "--min-worker-lifetime", "1")

#: What else of a site wants to be told of forks.
WISHES = [("decorated",), ("decorated-later",), ("own",), ("own", "decorated-later")]


@pytest.fixture(scope="module")
def served(serve: Serve) -> Served:
    """The servers of each test. They begin together, and a test finds its own at work when its turn comes."""
    both = [(), ("--lazy-apps",)]
    return {
        "workers": [
            serve("sqlite", *MASTER, "--processes", "3"),
            serve("redis", *MASTER, "--processes", "3"),
            serve("redis", *MASTER, "--processes", "3", "--lazy-apps", "--threads", "2"),
            serve("sqlite", *MASTER, "--processes", "3", *AFTERFORK),
        ],
        "reloaded": [serve("redis", *MASTER, "--processes", "2", *lazy) for lazy in both],
        "recycled": [serve("redis", *MASTER, "--processes", "2", *OFTEN, *lazy) for lazy in both],
        "heeding": [serve("redis", *MASTER, "--processes", "1", job="waits") for _ in range(2)],
        "no master": [
            serve("sqlite", *UWSGI),
            serve("redis", *UWSGI, "--processes", "2"),
            serve("sqlite", *UWSGI, "--lazy-apps"),
        ],
        "no threads": [serve("sqlite", *(option for option in MASTER if option != "--enable-threads"))],
        "hooks": [serve("sqlite", *MASTER, "--processes", "2", hooks=hooks) for hooks in WISHES],
        "hooks, no master": [serve("sqlite", *UWSGI, "--processes", "2", hooks=("own",))],
        "mules": [serve("sqlite", *MASTER, "--mule", "--spooler", "{directory}", hooks=("own",))],
    }


def test_every_slot_runs_once_in_the_workers_and_never_in_the_master(served: Served) -> None:
    servers = served["workers"]
    for server in servers:
        server.wait_for("start", 3)
        server.wait_until_all_hear(1 + 3)
        assert server.get() in server.pids("start")
    for server, runs in [(server, len(server.lines("begin"))) for server in servers]:
        server.wait_for("begin", runs + 2)
        assert server.get() in server.pids("start")
    for server in servers:
        server.tell(signal.SIGINT)
    for server in servers:
        assert server.end(signal.SIGINT) == 0
        assert server.faults(3) == []
        assert server.missing() == []
        assert server.untrue() == []
    one, two, lazy, other = servers
    assert sorted(lazy.pids("imported")) == sorted(lazy.pids("start"))
    for server in (one, two, other):
        assert server.pids("imported") == [server.process.pid]
        assert [line["sentence"] for line in server.lines("told")] == [
            "This is uWSGI's master, which serves no requests; its workers start."
        ]


def test_workers_that_are_recycled_or_reloaded_have_successors_that_start(served: Served) -> None:
    # One thing at a time: told to reload or to end while a worker is being replaced, uWSGI 2.0.30 can miss the new one,
    # and waits for its end for ever. So what is recycled is not told to reload, and nothing is told to end.
    reloaded, recycled = served["reloaded"], served["recycled"]
    servers = [*reloaded, *recycled]
    for server in servers:
        server.wait_for("start", 2)
        server.wait_until_all_hear(1 + 2)
    for server in reloaded:
        server.process.send_signal(signal.SIGHUP)

    def all_recycled() -> bool:
        answered = [server.get() for server in recycled]
        return all(answered) and all(len(server.pids("start")) >= 4 for server in recycled)

    recycled[0].wait_until(all_recycled, "as many successors as there were workers")
    for server in reloaded:
        server.wait_for("start", 4)
    for server in servers:
        server.wait_until(lambda server=server: server.has_run_after(first=2), "a run of a successor")
    for server in servers:
        server.kill()
        starts = server.pids("start")
        assert len({line["instance"] for line in server.lines("start")}) == len(set(starts)) == len(starts)
        slots = [record.slot for record in server.history() if record.status == "success"]
        assert len(slots) == len(set(slots)) > 0


def test_a_run_that_heeds_the_stop_gives_its_lease_back_when_its_worker_ends(served: Served) -> None:
    ended, reloaded = served["heeding"]
    for server in (ended, reloaded):
        server.wait_for("begin", 1)
        server.wait_until_all_hear(1 + 1)
    reloaded.process.send_signal(signal.SIGHUP)
    ended.tell()
    reloaded.wait_for("begin", 2)
    reloaded.wait_until_all_hear(1 + 1)
    reloaded.tell()
    for server in (ended, reloaded):
        assert server.end() == 0
        record = server.history()[-1]
        assert (record.status, record.instance_id) == ("interrupted", server.lines("begin")[0]["name"])
        assert server.leases() == []


def test_without_a_master_the_processes_that_serve_start_the_first_one_included(served: Served) -> None:
    one, two, lazy = servers = served["no master"]
    two.wait_for("start", 2)
    for server in servers:
        server.wait_for("begin", 1)
        assert server.get() in server.pids("start")
        assert server.process.pid in server.pids("start")
        assert {line["sentence"] for line in server.lines("told")} == {None}
    for server, count in [(one, 1), (two, 2), (lazy, 1)]:
        server.kill()
        assert len(server.pids("start")) == len(set(server.pids("start"))) == count
        assert len({line["instance"] for line in server.lines("start")}) == count


def test_without_enable_threads_jobs_run_all_the_same_or_the_log_says_what_to_set(served: Served) -> None:
    """Newer releases have threads whatever they are told; 2.0.21 does as it is told."""
    [server] = served["no threads"]
    [told] = server.wait_for("told", 1)
    if "enable-threads" in told["sentence"]:
        assert server.wait_until(server.get, "an answer") != 0
        assert "ERROR uWSGI runs no threads here" in server.output
        assert server.lines("start") == server.lines("begin") == []
    else:
        server.wait_for("begin", 1)


def test_the_hooks_of_others_are_called_beside_ours(served: Served) -> None:
    for server, hooks in zip(served["hooks"], WISHES, strict=True):
        server.wait_for("start", 2)
        server.wait_for("forked", 2 * len(hooks))
        server.kill()
        assert server.faults(2) == []
        wanted = {"own" if hook == "own" else "decorated" for hook in hooks}
        for pid in server.pids("start"):
            assert {line["by"] for line in server.lines("forked") if line["pid"] == pid} == wanted
    [without] = served["hooks, no master"]
    without.wait_for("start", 2)
    assert sorted(without.pids("forked")) == sorted(without.pids("start"))


def test_mules_and_spoolers_start_nothing(served: Served) -> None:
    [server] = served["mules"]
    forked = {line["pid"] for line in server.wait_for("forked", 3)}
    [worker] = server.wait_for("start", 1)
    server.wait_for("begin", 2)
    server.kill()
    assert len(forked) == 3
    assert worker["pid"] in forked
    assert server.faults(1) == []
