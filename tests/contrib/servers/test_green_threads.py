"""gunicorn's gevent workers: jobs that wait for something run as anywhere; one that computes holds up its own lease."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]
Served = dict[str, list[Any]]

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(300)

GUNICORN = ("gunicorn", "bare_site:application", "--bind", "unix:{socket}", "--no-control-socket", "-k", "gevent")

WARNING = "WARNING gevent has put green threads in the place of real ones"


@pytest.fixture(scope="module", autouse=True)
def gevent_is_there() -> None:
    if importlib.util.find_spec("gevent") is None:
        assert "CI" not in os.environ, "There is no gevent."
        pytest.skip("gevent is not installed")


# One slot, which is due at once: a newer one would take the place of a run that is taken over.
ONCE = {"every": "365d", "options": {"catch_up": "366d", "lease": "4s"}}


@pytest.fixture(scope="module")
def served(gevent_is_there: None, serve: Serve) -> Served:
    """The servers of each test. They begin together, and a test finds its own at work when its turn comes."""
    return {
        # gunicorn kills a gevent worker that computes for longer than its time-out.
        "computing": [serve("redis", *GUNICORN, "-w", "2", "--timeout", "0", job="computes", **ONCE)],
        "workers": [serve("sqlite", *GUNICORN, "-w", "2"), serve("redis", *GUNICORN, "-w", "2", "--preload")],
        "heeding": [
            serve("sqlite", *GUNICORN, "-w", "1", job="waits"),
            serve("redis", *GUNICORN, "-w", "1", "--preload", job="waits"),
        ],
    }


def test_every_slot_runs_once_and_each_worker_says_that_its_threads_are_green(served: Served) -> None:
    servers = served["workers"]
    for server in servers:
        server.wait_for("start", 2)
        server.wait_for("begin", 3)
        assert server.get() in server.pids("start")
        server.tell()
    for server in servers:
        assert server.end() == 0
        assert server.faults(2) == []
        assert server.missing() == []
        assert server.untrue() == []
        assert server.output.count(WARNING) == 2


def test_a_run_that_heeds_the_stop_gives_its_lease_back_when_the_server_ends(served: Served) -> None:
    servers = served["heeding"]
    for server in servers:
        server.wait_for("begin", 1)
        server.tell()
    for server in servers:
        assert server.end() == 0
        assert [record.status for record in server.history()] == ["interrupted"]
        assert server.leases() == []


def test_a_job_that_computes_for_longer_than_its_lease_is_taken_over_and_its_word_counts_no_more(
    served: Served,
) -> None:
    """
    1. the first attempt computes; its heartbeat is a green thread of that process, and does not come to its turn
    2. the lease is over, and the other worker takes the run over: two attempts of one run at one time
    3. the first has done, and hears at last that its lease was lost; the run is the second's, with the higher fence
    """
    [server] = served["computing"]
    first, second = server.wait_for("begin", 2)
    [computed] = server.wait_for("computed", 1)
    assert (second["slot"], second["attempt"]) == (first["slot"], 2)
    assert second["pid"] != first["pid"] and second["fence"] > first["fence"]
    assert computed["pid"] == first["pid"]

    def heard() -> Any:
        records = server.history()
        return records if len(records) == 2 and records[1].lease_lost else None

    succeeded, lost = server.wait_until(heard, "the first attempt's own word")
    assert (succeeded.attempt, succeeded.status, lost.attempt) == (2, "success", 1)
