"""A holder is killed, stopped or paused in the middle of a run, and another takes over: each is played on one fleet."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing

from fleet import Fleet, Line, Worker, cron_at, only
from kept_of_fleet import changes, kept

from anarchon import RunRecord

__all__ = ["kill_holders", "pause_a_holder", "stop_a_holder"]

NAMES = ("one", "two", "three", "four")

# What a busy machine may add between an instant that the library chose and the first line of a handler.
SLACK_MS = 30_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def slots_in(delay_ms: int, *later_ms: int) -> list[int]:
    """A whole second so far ahead, and some after it, all of one minute."""
    first_ms = (now_ms() + delay_ms + 999) // 1000 * 1000
    if first_ms // 60_000 != (first_ms + max(later_ms, default=0)) // 60_000:
        first_ms = first_ms // 60_000 * 60_000 + 60_000
    return [first_ms, *(first_ms + each_ms for each_ms in later_ms)]


def add(fleet: Fleet, name: str, slots_ms: list[int], **job: object) -> None:
    """Every worker that runs registers the job: one that is so slow that the first slot is past catches up with it."""
    for worker in fleet.workers.values():
        if worker.running:
            worker.ask("add", name=name, cron=cron_at(*slots_ms), jitter="100ms", catch_up="1m", **job)


def holder_of(fleet: Fleet, line: Line) -> Worker:
    return fleet.workers[line["worker"]]


def history(fleet: Fleet, job: str) -> list[RunRecord]:
    """Oldest first."""
    reader = fleet.reader()
    try:
        return reader.history(job)[::-1]
    finally:
        reader.stop()


def kill_holders(fleet: Fleet, lease_s: int, lasts: tuple[float, float], kills: int) -> None:
    """One after the other, each when a new process has taken the place of the one before.

    Args:
        lasts: for how long the first attempt would go on, and the one that takes over, in seconds.
    """
    fleet.start_all(NAMES, renewals=True)
    takeovers = [kill_a_holder(fleet, f"killed-{number}", lease_s, lasts) for number in range(kills)]
    fleet.stop()
    print(f"{fleet!r}: {shown([took_ms for took_ms, _ in takeovers], lease_s)}")
    if kills > 1:
        # Half a second for the machine; what its processes have been without it besides, they have told.
        bound_ms = 1.2 * lease_s * 1000 + 500
        assert [took for took in takeovers if took[0] > bound_ms + took[1]] == []


def kill_a_holder(fleet: Fleet, job: str, lease_s: int, lasts: tuple[float, float]) -> tuple[int, int]:
    """Returns how long after the kill attempt 2 began, and for how long of that a backup stood still."""
    lease_ms, heartbeat_s = lease_s * 1000, lease_s / 5
    for name in NAMES:
        if not fleet.workers[name].running:
            fleet.restart(name, renewals=True)
    add(fleet, job, slots_in(1500), lasts=lasts, lease=f"{lease_s}s")
    first = only(fleet.wait_for(what="begin", job=job))
    fleet.wait_for(2 if lease_s < 10 else 1, what="renewed", job=job)
    # A kill may come at any time between two renewals.
    time.sleep(random.uniform(0, heartbeat_s))
    killed_ms = now_ms()
    holder_of(fleet, first).kill()
    second = fleet.wait_for(2, what="begin", job=job)[1]
    delay_ms = second["wall_ms"] - fleet.lines("renewed", job=job, worker=first["worker"])[-1]["asked_ms"]

    assert second["worker"] != first["worker"]
    assert (second["attempt"], second["trigger"], second["slot_ms"]) == (2, "takeover", first["slot_ms"])
    assert second["fence"] > first["fence"]
    assert lease_ms <= delay_ms <= 1.2 * lease_ms + SLACK_MS
    fleet.wait_for(what="success", job=job)
    lost, success = history(fleet, job)
    assert (lost.attempt, lost.status, lost.instance_id) == (1, "lost", first["worker"])
    assert (success.attempt, success.status, success.instance_id) == (2, "success", second["worker"])
    assert (lost.fence, success.fence) == (first["fence"], second["fence"])
    assert len(fleet.lines(what="begin", job=job)) == 2
    return second["wall_ms"] - killed_ms, still_ms(fleet, killed_ms, second["wall_ms"])


def still_ms(fleet: Fleet, from_ms: int, until_ms: int) -> int:
    """For how much of this time at least one process of the fleet stood still."""
    still, over_ms = 0, from_ms
    for line in sorted(fleet.lines("stood still"), key=lambda line: line["from_ms"]):
        begin_ms, end_ms = max(line["from_ms"], over_ms), min(line["wall_ms"], until_ms)
        still += max(0, end_ms - begin_ms)
        over_ms = max(over_ms, end_ms)
    return still


def shown(took_ms: list[int], lease_s: int) -> str:
    """The distribution of takeovers: in seconds, and in leases."""
    ordered = sorted(took_ms)
    marks = {"min": 0, "median": (len(ordered) - 1) // 2, "p90": (len(ordered) - 1) * 9 // 10, "max": -1}
    told = [f"{name} {ordered[at] / 1000:.2f} s ({ordered[at] / 1000 / lease_s:.2f})" for name, at in marks.items()]
    return f"attempt 2 began after a kill, {len(ordered)} times, lease {lease_s} s (in leases): {', '.join(told)}"


def stop_a_holder(fleet: Fleet) -> None:
    fleet.start_all(NAMES[:3])
    # A lease that nobody waits for in this test: what comes after the stop comes by the release.
    add(fleet, "stopped", slots_in(1500), lasts=[30, 0.5], lease="60s", heartbeat="1s")
    first = only(fleet.wait_for(what="begin", job="stopped"))
    fleet.wait_until(lambda: now_ms() - first["wall_ms"] > 1000, "a second of the run")
    stopped = holder_of(fleet, first)
    stopped.terminate()
    assert stopped.wait() == 0

    told = only(fleet.wait_for(what="interrupted", worker=stopped.name))
    assert (told["job"], told["reason"], told["attempt"]) == ("stopped", "stop", 1)
    assert only(fleet.wait_for(what="stopped", worker=stopped.name))["in_time"] is True
    second = fleet.wait_for(2, what="begin", job="stopped")[1]
    assert second["wall_ms"] - told["wall_ms"] <= 2 * 1000 + SLACK_MS
    assert (second["attempt"], second["trigger"]) == (2, "takeover")
    fleet.wait_for(what="success", job="stopped")
    fleet.stop()
    records = history(fleet, "stopped")
    assert [(record.attempt, record.status) for record in records] == [(1, "interrupted"), (2, "success")]
    assert records[0].fence < records[1].fence
    print(f"{fleet!r}: taken over {second['wall_ms'] - told['wall_ms']} ms after the release")


def pause_a_holder(fleet: Fleet) -> None:
    fleet.start_all(NAMES[:3])
    older_ms, newer_ms = slots_in(1500, 12_000)
    # Its first attempts last, its second one is done at once: so the older slot is over when the newer one is due.
    add(fleet, "paused", [older_ms, newer_ms], lasts=[60, 0], lease="4s")
    first = only(fleet.wait_for(what="begin", job="paused"))
    paused = holder_of(fleet, first)
    fleet.wait_until(lambda: is_paused(fleet, paused), "it is paused, and not in the middle of its own writing")
    fleet.wait_for(what="success", job="paused", slot_ms=older_ms, attempt=2)
    newer = only(fleet.wait_for(what="begin", job="paused", slot_ms=newer_ms))
    assert newer["worker"] != paused.name
    before = kept(fleet)
    paused.resume()

    told = only(fleet.wait_for(what="told", worker=paused.name))
    assert (told["reason"], told["slot_ms"], told["attempt"]) == ("lease-lost", older_ms, 1)
    interrupted = only(fleet.wait_for(what="interrupted", worker=paused.name))
    assert (interrupted["reason"], interrupted["attempt"]) == ("lease-lost", 1)
    # Its timer, too, has woken up: it has asked for the newer slot, and been told that others have it.
    fleet.wait_for(what="skip", worker=paused.name, slot_ms=newer_ms)
    own_record = ("record", str(older_ms), 1)
    renewed_by_its_holder = ("run", str(newer_ms), "lease_until_ms")
    changed = changes(before, kept(fleet))
    assert own_record in changed
    assert changed <= {own_record, renewed_by_its_holder}
    assert fleet.lines(what="told", slot_ms=newer_ms) == []

    fleet.stop()
    # The newer run was released when its holder was stopped; another may have taken it over before its own stop.
    first_record, second_record, newer_record, *_ = history(fleet, "paused")
    assert (first_record.status, first_record.lease_lost, first_record.attempt) == ("interrupted", True, 1)
    assert (second_record.status, second_record.lease_lost, second_record.attempt) == ("success", False, 2)
    assert first_record.fence < second_record.fence < newer_record.fence


def is_paused(fleet: Fleet, worker: Worker) -> bool:
    """Pauses a worker, unless that is in the middle of a transaction: a file would be locked until it goes on.

    1. the holder renews its lease, and so locks the file  2. it is paused  3. nobody can write any more, to take over
    """
    worker.pause()
    if not fleet.url.startswith("sqlite:"):
        return True
    with closing(sqlite3.connect(fleet.url.removeprefix("sqlite:///"), isolation_level=None, timeout=1)) as file:
        try:
            file.executescript("BEGIN IMMEDIATE; ROLLBACK")
        except sqlite3.OperationalError:
            worker.resume()
            return False
    return True
