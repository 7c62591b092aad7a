"""gunicorn's real processes: its workers start the scheduler, whatever becomes of them, and its master never does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Serve = Callable[..., Any]
Served = dict[str, list[Any]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

#: Its control socket would be one for all gunicorns of this user.
GUNICORN = ("gunicorn", "bare_site:application", "--bind", "unix:{socket}", "--no-control-socket")

# A configuration of the site's own, with the hooks that a server's user may have set.
CONFIGURATION = """
import os

def post_fork(server, worker):
    with open("{directory}/hooks", "a") as file:
        print("post_fork", os.getpid(), file=file, flush=True)

def post_worker_init(worker):
    import bare_site
    bare_site.write("set-up", booted=worker.booted)
"""


#: Gracefully, and at once.
ENDS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration, and with what its hooks tell."""
    folder = tmp_path_factory.mktemp("configured")
    (folder / "gunicorn.conf.py").write_text(CONFIGURATION.replace("{directory}", str(folder)))
    return folder


@pytest.fixture(scope="module")
def served(serve: Serve, configured: Path) -> Served:
    """The servers of each test. They begin together, and a test finds its own at work when its turn comes."""
    ways = [(), ("--preload",)]
    hooks = ("-c", str(configured / "gunicorn.conf.py"))
    return {
        "workers": [
            serve("sqlite", *GUNICORN, "-w", "3"),
            serve("redis", *GUNICORN, "-w", "3", "--preload"),
            serve("redis", *GUNICORN, "-w", "3", "--worker-class", "gthread", "--threads", "2"),
            serve("sqlite", *GUNICORN, "-w", "3", "--worker-class", "gthread", "--threads", "2", "--preload"),
        ],
        "recycled": [serve("redis", *GUNICORN, "-w", "3", "--max-requests", "5", *way) for way in ways],
        "reloaded": [serve("redis", *GUNICORN, "-w", "3", *way) for way in ways],
        "heeding": [serve("redis", *GUNICORN, "-w", "2", "--preload", job="waits") for _ in ENDS],
        "configured": [serve("sqlite", *GUNICORN, "-w", "2", *hooks, *way) for way in ways],
        "forking": [serve("sqlite", *GUNICORN, "-w", "1", "--preload")],
        "checked": [serve("sqlite", *GUNICORN, "--check-config")],
    }


def test_every_slot_runs_once_in_the_workers_and_never_in_the_master(served: Served) -> None:
    servers = served["workers"]
    for server in servers:
        server.wait_for("start", 3)
        assert server.get() in server.pids("start")
    for server, runs in [(server, len(server.lines("begin"))) for server in servers]:
        server.wait_for("begin", runs + 2)
        assert server.get() in server.pids("start")
    for server in servers:
        server.tell()
    for server in servers:
        assert server.end() == 0
        assert server.faults(3) == []
        assert server.missing() == []
        assert server.untrue() == []
    for server in (servers[0], servers[2]):
        assert sorted(server.pids("imported")) == sorted(server.pids("start"))
        assert {line["sentence"] for line in server.lines("told")} == {None}
    for server in (servers[1], servers[3]):
        assert server.pids("imported") == [server.process.pid]
        assert [line["sentence"] for line in server.lines("told")] == [
            "This is gunicorn's master, which serves no requests; its workers start."
        ]


def test_workers_that_are_recycled_reloaded_and_killed_have_successors_that_start(served: Served) -> None:
    """Never two of these at once in one server: a worker that ends anyway has no successor for being killed."""
    recycled, reloaded = served["recycled"], served["reloaded"]
    servers = [*recycled, *reloaded]
    for server in servers:
        server.wait_for("start", 3)
    for server in reloaded:
        server.process.send_signal(signal.SIGHUP)
    for server in servers:
        # Visitors come all the while.
        server.wait_until(lambda server=server: server.get() and len(server.pids("start")) >= 6, "three successors")
    for server in reloaded:
        kill_one_that_serves(server, among=set(server.pids("start")[3:]))
    for server in reloaded:
        server.wait_for("start", 7)
    for server in servers:
        server.wait_until(lambda server=server: server.has_run_after(first=3), "a run of a successor")
    for server in servers:
        # A worker that has just been forked, in the place of another, may not hear of the end for half a minute.
        server.kill()
        assert [fault for fault in server.faults() if "has run" not in fault] == []
        assert_no_slot_has_succeeded_twice(server)


def kill_one_that_serves(server: Any, among: set[int]) -> None:
    answered = server.wait_until(lambda: among & {server.get()}, "an answer of one of them")
    os.kill(answered.pop(), signal.SIGKILL)


def assert_no_slot_has_succeeded_twice(server: Any) -> None:
    """A run whose worker was killed in it is taken over, so it may begin again; it ends well once."""
    slots = [record.slot for record in server.history() if record.status == "success"]
    assert len(slots) == len(set(slots)) > 0


def test_the_users_own_hooks_are_called_and_come_before_the_start(served: Served, configured: Path) -> None:
    for server in served["configured"]:
        server.wait_for("start", 2)
        server.kill()
        assert sorted(server.pids("set-up")) == sorted(server.pids("start"))
        for pid in server.pids("start"):
            order = [line["what"] for line in server.all_lines() if line["pid"] == pid]
            assert order.index("set-up") < order.index("start")
        assert server.faults(2) == []
    forked = {int(line.split()[1]) for line in (configured / "hooks").read_text().splitlines()}
    assert forked == {pid for server in served["configured"] for pid in server.pids("start")}


def test_a_child_that_a_view_forks_starts_nothing(served: Served) -> None:
    [server] = served["forking"]
    [worker] = server.wait_for("start", 1)
    assert server.get("/fork") == worker["pid"]
    assert server.get("/fork") == worker["pid"]
    assert [line["started"] for line in server.lines("child")] == [False, False]
    assert server.faults(1) == []


def test_a_run_that_heeds_the_stop_gives_its_lease_back_when_the_server_ends(served: Served) -> None:
    servers = served["heeding"]
    for server, number in zip(servers, ENDS, strict=True):
        server.wait_for("start", 2)
        server.wait_for("begin", 1)
        server.tell(number)
    for server, number in zip(servers, ENDS, strict=True):
        assert server.end(number) == 0
        # The other worker takes the run over if it hears of the end later than that.
        assert [fault for fault in server.faults(2) if "has run" not in fault] == []
        record = server.history()[-1]
        assert (record.status, record.instance_id) == ("interrupted", server.lines("begin")[0]["name"])
        assert server.leases() == []


def test_a_look_at_the_configuration_starts_nothing(served: Served) -> None:
    [server] = served["checked"]
    assert server.process.wait(90) == 0
    assert server.lines("told")[0]["sentence"] is not None
    assert server.lines("start") == []
