"""Whether the demo has shown what it says. Facts in, faults out; no clock, process or store.

The judge goes by what the handlers wrote down the pipe, so that the store is no witness in its own case; the history is
then compared with that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anarchon.demo.lines import Line
from anarchon.demo.plan import EVERY_MS
from anarchon.durations import from_ms, to_ms
from anarchon.records import RunRecord

__all__ = ["Facts", "clock_time", "expected", "judge", "passed_over"]


@dataclass(frozen=True)
class Facts:
    """All that is known when the demo is over.

    Attributes:
        lines: everything the workers told, in that order.
        history: the records of all jobs.
        killed: the worker that was killed in the middle of billing; None if that did not come to pass.
        exit_codes: how each worker's process ended.
        since_ms, until_ms: every slot after the first and up to the second instant must have been run.
    """

    lines: Sequence[Line]
    history: Sequence[RunRecord]
    killed: str | None
    exit_codes: Mapping[str, int | None]
    since_ms: int
    until_ms: int


def judge(facts: Facts) -> list[str]:
    """What is wrong, one sentence each; nothing where all is well."""
    return [*_takeover(facts), *_twice(facts), *_missing(facts), *_history(facts), *_ends(facts)]


def _takeover(facts: Facts) -> Iterator[str]:
    """Attempt 1 was begun by the worker that was killed, and attempt 2 finished by another with a greater fence."""
    if facts.killed is None:
        yield "No worker was killed in the middle of billing."
        return
    begun = {line.attempt: line for line in facts.lines if line.job == "billing" and line.what == "begin"}
    ended = {line.attempt for line in facts.lines if line.job == "billing" and line.what == "end"}
    if 1 not in begun or begun[1].worker != facts.killed or 1 in ended:
        yield f"Attempt 1 of billing was not cut short on {facts.killed}."
    elif 2 not in begun or begun[2].worker == facts.killed:
        yield f"Nobody took billing over from {facts.killed}."
    elif 2 not in ended:
        yield f"{begun[2].worker} took billing over and did not finish it."
    elif begun[2].fence <= begun[1].fence:
        yield f"The fence of attempt 2 ({begun[2].fence}) is not greater than that of attempt 1 ({begun[1].fence})."


def _twice(facts: Facts) -> Iterator[str]:
    """A slot begins again only where the one who had begun it was killed before it ended."""
    begun: dict[tuple[str, int], list[Line]] = defaultdict(list)
    ended = {(line.job, line.slot_ms, line.attempt) for line in facts.lines if line.what == "end"}
    for line in facts.lines:
        if line.what == "begin":
            begun[line.job, line.slot_ms].append(line)
    for (job, slot_ms), attempts in begun.items():
        for before, after in pairwise(attempts):
            cut_short = before.worker == facts.killed and (job, slot_ms, before.attempt) not in ended
            if not cut_short or after.attempt != before.attempt + 1:
                yield f"The slot {clock_time(slot_ms)} of {job} ran twice: {before.worker}, then {after.worker}."


def _missing(facts: Facts) -> Iterator[str]:
    """Each slot has a run that ended, but for some that passed while the host stood still."""
    ended = {(line.job, line.slot_ms) for line in facts.lines if line.what == "end"}
    late = {(line.job, line.slot_ms): line.worker for line in facts.lines if line.what == "late"}
    slots, excused = list(expected(facts.since_ms, facts.until_ms)), passed_over(facts)
    for job, slot_ms in slots:
        if (job, slot_ms) not in ended and (job, slot_ms) not in excused:
            who = late.get((job, slot_ms))
            why = f"{who} came too late for it" if who else "nobody says why"
            yield f"The slot {clock_time(slot_ms)} of {job} was not run: {why}."
    if 2 * len(excused) > len(slots):
        yield f"{len(excused)} of {len(slots)} slots were not run: all workers came too late for them."


def _history(facts: Facts) -> Iterator[str]:
    """The store's account agrees with the handlers': one success a slot that ended, and the lost attempt before one."""
    successes = [(r.job, to_ms(r.slot), r.attempt) for r in facts.history if r.status == "success"]
    ended = [(line.job, line.slot_ms, line.attempt) for line in facts.lines if line.what == "end"]
    for job, slot_ms, attempt in sorted(set(successes) ^ set(ended)):
        yield f"Log and history disagree on attempt {attempt} of the slot {clock_time(slot_ms)} of {job}."
    billing = sorted((r for r in facts.history if r.job == "billing"), key=lambda r: r.attempt)
    if [(r.attempt, r.status) for r in billing] != [(1, "lost"), (2, "success")]:
        told = ", ".join(f"attempt {r.attempt} {r.status}" for r in billing) or "nothing"
        yield f"The history of billing should have attempt 1 lost and attempt 2 success; it has {told}."
    elif billing[0].instance_id != facts.killed or billing[1].instance_id == facts.killed:
        yield "The history of billing names the wrong workers."
    elif billing[0].fence >= billing[1].fence or billing[0].run_id != billing[1].run_id:
        yield "The attempts of billing in the history are not one run with a growing fence."


def _ends(facts: Facts) -> Iterator[str]:
    """Whoever was not killed stopped in time and in order."""
    for worker, code in facts.exit_codes.items():
        if worker != facts.killed and code != 0:
            yield f"{worker} ended with exit code {code}."


def passed_over(facts: Facts) -> set[tuple[str, int]]:
    """The slots that nobody began since everybody came too late: the next was due before any of them woke up.

    So it is on a host that stands still for longer than a second; a worker that was killed need not have told it.
    """
    begun = {(line.job, line.slot_ms) for line in facts.lines if line.what == "begin"}
    late: dict[tuple[str, int], set[str]] = defaultdict(set)
    for line in facts.lines:
        if line.what == "late":
            late[line.job, line.slot_ms].add(line.worker)
    alive = set(facts.exit_codes) - {facts.killed}
    slots = expected(facts.since_ms, facts.until_ms)
    return {slot for slot in slots if slot not in begun and late[slot] and late[slot] >= alive}


def expected(since_ms: int, until_ms: int) -> Iterator[tuple[str, int]]:
    """Every slot of the jobs that run again and again, after the first instant and up to the second."""
    for job, interval_ms in EVERY_MS.items():
        for slot_ms in range((since_ms // interval_ms + 1) * interval_ms, until_ms + 1, interval_ms):
            yield job, slot_ms


def clock_time(ms: int) -> str:
    """An instant as people read it off a clock, in UTC."""
    return from_ms(ms).strftime("%H:%M:%S")
