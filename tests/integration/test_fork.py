"""A server that forks while its scheduler is at work: no child hangs, runs its parent's jobs or takes its name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from fleet import Fleet, Line, only
from judge import faults_of_early_runs, faults_of_runs, judged_until

# Often, so that a fork meets threads at work.
JOBS, EVERY_MS = 6, 250

# In turn, so that the forks are spread over what the parent's threads are doing.
HOOKS = ["start", "forget", "forget"] * 3


def fork_and_serve(fleet: Fleet) -> None:
    given = {"jobs": JOBS, "every": f"{EVERY_MS}ms", "hooks": HOOKS}
    # Python 3.12 warns of what is tried here.
    server = fleet.launch("server", "preload.py", given, warnings=("error", "ignore:This process:DeprecationWarning"))
    fleet.wait_for(what="forked")
    found = fleet.wait_for(len(HOOKS), what="found")
    workers = {"parent", *(line["worker"] for line in found if line["hook"] == "start")}
    fleet.wait_until(
        lambda: {line["worker"] for line in fleet.lines("begin")} == workers, "the parent and every starter run jobs"
    )
    first_ms = fleet.lines("begin")[-1]["slot_ms"] + EVERY_MS
    names = [f"job-{number}" for number in range(JOBS)]
    last_ms = fleet.wait_for_value(
        lambda: judged_until(fleet.lines(), dict.fromkeys(names, EVERY_MS), workers, first_ms, 2000),
        "two seconds of slots that are decided",
    )
    server.terminate()
    assert server.wait() == 0
    assert only(fleet.lines("stopped"))["children"] == [0] * len(HOOKS)

    lines = fleet.lines()
    for name in names:
        assert faults_of_runs(lines, name, workers, EVERY_MS, first_ms, last_ms) == []
    assert faults_of_early_runs(lines) == []
    assert {line["worker"] for line in fleet.lines("begin")} == workers
    assert_names(found, fleet.lines("begin"))
    warned = re.findall(r"^(\d+) WARNING This process was forked", server.complaints, re.MULTILINE)
    assert len(warned) == len(set(warned)) == len(HOOKS)


@pytest.mark.timeout(600)
@pytest.mark.at_once(scenario=lambda stage: stage.on_each_store(fork_and_serve))
def test_children_of_a_server_run_jobs_where_their_hook_starts_the_scheduler_and_nowhere_else(
    played: Callable[[], None],
) -> None:
    played()


def assert_names(found: list[Line], begun: list[Line]) -> None:
    """Every child has a name of its own, and runs under it."""
    names = {line["worker"]: line["instance"] for line in found} | {"parent": "web"}
    assert len(set(names.values())) == len(HOOKS) + 1
    assert all(re.fullmatch(r"web(\.\d+)?", name) for name in names.values())
    assert all(line["instance"] == names[line["worker"]] for line in begun)


def test_a_fork_cannot_come_in_the_middle_of_the_import_that_the_first_look_up_of_a_name_needs() -> None:
    """1. a thread looks up the first host name, and Python imports what that needs  2. another thread forks
    3. the child looks up a name, and waits for ever for an import whose thread it does not have."""
    look = "import sys, anarchon.backends.redis; sys.exit('encodings.idna' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look]).returncode == 0
