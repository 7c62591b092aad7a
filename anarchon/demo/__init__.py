"""``anarchon demo``: two workers on one SQLite file, and one of them is killed in the middle of a run.

It waits for facts and not for times, so that it is no less true on a busy host, and takes about fifteen seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timezone
from pathlib import Path

from anarchon.backends.sqlite import SQLiteBackend
from anarchon.demo.judge import Facts, expected, judge, passed_over
from anarchon.demo.plan import EVERY_MS, JOBS
from anarchon.demo.processes import Workers
from anarchon.demo.watcher import Watcher
from anarchon.scheduler import Scheduler
from anarchon.tables import history_table

__all__ = ["play"]


def play(tell: Callable[[str], object]) -> bool:
    """Plays the demo, telling what happens as it does, by lines; returns whether it has shown what it says."""
    with tempfile.TemporaryDirectory(prefix="anarchon-demo-") as folder:
        path = str(Path(folder, "jobs.db"))
        reader = Scheduler(SQLiteBackend(path))
        try:
            with Workers(folder, path) as workers:
                facts = Watcher(workers, reader, path, tell).watch()
            return _conclude(facts, tell)
        finally:
            reader.stop()


def _conclude(facts: Facts, tell: Callable[[str], object]) -> bool:
    for job in JOBS:
        records = [record for record in facts.history if record.job == job]
        tell(f"\nThe history of {job}:\n")
        tell(history_table(records, timezone.utc))
    faults = judge(facts)
    tell("")
    if faults:
        tell("This is not as it should be:")
        tell("\n".join(f"- {fault}" for fault in faults))
        return False
    slots = list(expected(facts.since_ms, facts.until_ms))
    lost, success = sorted((r for r in facts.history if r.job == "billing"), key=lambda r: r.attempt)
    counts = " and ".join(f"{sum(job == name for name, _ in slots)} slots of {job}" for job in EVERY_MS)
    excused = len(passed_over(facts))
    but = f" but {excused} that passed while this host stood still" if excused else ""
    tell(
        f"As it should be: attempt 1 of billing was lost with {lost.instance_id}, attempt 2 is a success of"
        f" {success.instance_id} with a greater fence;\nnone of the {counts} was lost{but}, and no slot ran twice."
    )
    return True
