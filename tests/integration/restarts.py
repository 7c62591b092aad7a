"""All processes are gone, with runs unfinished and no newer slot due: the first that is back takes them over."""

from __future__ import annotations

import time

from fleet import Fleet, Line, cron_at, only

__all__ = ["restart_after_a_kill", "restart_after_a_stop"]

# What a busy machine may add.
SLACK_MS = 30_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def jobs_due_soon(**leases: str) -> list[Line]:
    """Jobs with one slot each, two seconds from now. The first attempt lasts, the second is done at once."""
    slot = cron_at(now_ms() + 2000)
    return [
        {"name": name, "cron": slot, "jitter": "100ms", "lasts": [60, 0], "lease": lease}
        for name, lease in leases.items()
    ]


def register(fleet: Fleet, names: list[str], jobs: list[Line]) -> list[Line]:
    """The workers register the jobs, late or not; returns when all have begun."""
    for name in names:
        for each in jobs:
            fleet.workers[name].ask("add", **each, catch_up="1m")
    return fleet.wait_for(len(jobs), what="begin")


def restart_after_a_kill(fleet: Fleet) -> None:
    names = ["one", "two", "three"]
    fleet.start_all(names)
    jobs = jobs_due_soon(over="4s", live="9s")
    begun = register(fleet, names, jobs)
    for worker in list(fleet.workers.values()):
        worker.kill()
    killed_ms = now_ms()
    fleet.wait_until(lambda: now_ms() - killed_ms > 4500, "the shorter lease is over")
    fleet.start_all(["back"], jobs)
    ready_ms = only(fleet.lines(what="ready", worker="back"))["wall_ms"]
    # The lease that is over is no longer anybody's; the live one is waited for, no longer than it lasts.
    over = fleet.wait_for(2, what="begin", job="over")[1]
    fleet.start_all(["back-later"], jobs)
    assert (over["worker"], over["attempt"], over["trigger"]) == ("back", 2, "takeover")
    assert over["wall_ms"] - ready_ms < SLACK_MS
    live = fleet.wait_for(2, what="begin", job="live")[1]
    assert (live["attempt"], live["trigger"]) == (2, "takeover")
    assert live["wall_ms"] - killed_ms < 9000 + 9000 // 5 + SLACK_MS
    fleet.wait_for(2, what="success")
    fleet.stop()
    assert len(fleet.lines(what="begin")) == 4
    print(f"{fleet!r}: over: {over['wall_ms'] - ready_ms} ms after the start")
    print(f"{fleet!r}: live: {live['wall_ms'] - killed_ms} ms after the kill")
    assert_taken_over(fleet, begun, "lost")


def restart_after_a_stop(fleet: Fleet) -> None:
    fleet.start_all(["alone"])
    jobs = jobs_due_soon(released="60s")
    begun = register(fleet, ["alone"], jobs)
    fleet.stop()
    fleet.start_all(["back"], jobs)
    ready_ms = only(fleet.lines(what="ready", worker="back"))["wall_ms"]
    taken = fleet.wait_for(2, what="begin", job="released")[1]
    assert taken["wall_ms"] - ready_ms < SLACK_MS
    fleet.wait_for(what="success")
    fleet.stop()
    assert_taken_over(fleet, begun, "interrupted")


def assert_taken_over(fleet: Fleet, begun: list[Line], status: str) -> None:
    """The history of each job: an attempt that ended so, and its successor."""
    reader = fleet.reader()
    try:
        for first in begun:
            success, before = reader.history(first["job"])
            assert (before.attempt, before.status, before.instance_id) == (1, status, first["worker"])
            assert (success.attempt, success.status) == (2, "success")
            assert success.fence > before.fence == first["fence"]
            assert reader.active(first["job"]) == []
    finally:
        reader.stop()
