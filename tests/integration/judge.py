"""What is wrong with what a fleet did: each function returns the faults it finds in the lines, one sentence each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from fleet import Line

from anarchon import RunRecord

__all__ = [
    "faults_of_early_runs",
    "faults_of_records",
    "faults_of_runs",
    "judged_until",
    "passed_over",
]


def faults_of_runs(
    lines: list[Line], job: str, workers: Collection[str], interval_ms: int, first_ms: int, last_ms: int
) -> list[str]:
    """Each slot from the first to the last has one run, of one attempt, that ends; fences grow with the slots.

    On a machine that stands still for longer than the interval a slot may rightly pass without a run, but not in
    silence: then every worker tells of a skip. Nor is that to be the rule: at least half of the slots have a run.
    """
    begins: dict[int, list[Line]] = defaultdict(list)
    ends: Counter[tuple[int, int]] = Counter()
    for line in _of(lines, job):
        if line["what"] == "begin":
            begins[line["slot_ms"]].append(line)
        if line["what"] == "end":
            ends[line["slot_ms"], line["attempt"]] += 1
    faults = []
    slots_ms = [*range(first_ms, last_ms + 1, interval_ms)]
    passed = passed_over(lines, job, workers, slots_ms)
    if 2 * len(passed) > len(slots_ms):
        faults.append(f"{job}: {len(passed)} of {len(slots_ms)} slots have no run: {passed}.")
    slots_ms = [slot_ms for slot_ms in slots_ms if slot_ms not in passed]
    for slot_ms in slots_ms:
        runs = begins[slot_ms]
        if len(runs) != 1:
            faults.append(f"{job} {slot_ms}: {len(runs)} runs, by {[run['worker'] for run in runs]}.")
        elif runs[0]["attempt"] != 1 or ends[slot_ms, 1] != 1:
            faults.append(f"{job} {slot_ms}: attempt {runs[0]['attempt']}, ended {ends[slot_ms, 1]} times.")
    faults += [f"{job} {slot_ms}: no slot of this job." for slot_ms in begins if slot_ms % interval_ms]
    fences = [begins[slot_ms][0]["fence"] for slot_ms in sorted(begins) if begins[slot_ms]]
    if any(newer <= older for older, newer in pairwise(fences)):
        faults.append(f"{job}: the fences do not grow with the slots: {fences}.")
    return faults


def faults_of_early_runs(lines: list[Line]) -> list[str]:
    """No run begins before its slot on the host's clock, which is the store's."""
    return [
        f"{line['job']} {line['slot_ms']}: begun {line['slot_ms'] - line['wall_ms']} ms early by {line['worker']}."
        for line in lines
        if line["what"] == "begin" and line["wall_ms"] < line["slot_ms"]
    ]


def judged_until(
    lines: list[Line], intervals_ms: Mapping[str, int], workers: Collection[str], first_ms: int, least_ms: int
) -> int | None:
    """The last slot of a time that can be judged; None if that is still to come.

    It has lasted so long at least. Of every job each slot of that time is decided, and at least half have a run: one
    in which the machine stood still is made up for by what comes after.
    """
    last_ms = min(max((line["slot_ms"] for line in _begun(lines, job)), default=0) for job in intervals_ms)
    last_ms -= last_ms % max(intervals_ms.values())
    if last_ms < first_ms + least_ms:
        return None
    for job, interval_ms in intervals_ms.items():
        slots_ms = range(first_ms, last_ms + 1, interval_ms)
        ran = {line["slot_ms"] for line in _begun(lines, job)}.intersection(slots_ms)
        passed = passed_over(lines, job, workers, slots_ms)
        if len(ran) + len(passed) < len(slots_ms) or 2 * len(passed) > len(slots_ms):
            return None
    return last_ms


def faults_of_records(lines: list[Line], job: str, records: list[RunRecord]) -> list[str]:
    """The history tells what the handlers did: no success that was not, none that is missing, none twice."""
    status = {(int(record.run_id), record.attempt): record.status for record in records}
    places = {what: {_place(line) for line in _of(lines, job) if line["what"] == what} for what in ("end", "success")}
    faults = [
        f"{job} {place}: recorded as a success, but its handler did not end."
        for place in status
        if status[place] == "success" and place not in places["end"]
    ]
    faults += [
        f"{job} {place}: told as a success, but recorded as {status.get(place)}."
        for place in places["success"]
        if status.get(place) != "success"
    ]
    kept = Counter(int(record.run_id) for record in records if record.status == "success" and not record.lease_lost)
    faults += [f"{job} {slot_ms}: {count} successes with a lease." for slot_ms, count in kept.items() if count > 1]
    begins = _begun(lines, job)
    # The newest may belong to workers that were killed, and wait for the next grant to find their leases over.
    settled_ms = max((line["wall_ms"] for line in begins), default=0) - 10_000
    faults += [
        f"{_told(line)}: begun, and not recorded."
        for line in begins
        if line["wall_ms"] < settled_ms and _place(line) not in status
    ]
    return faults


def passed_over(lines: list[Line], job: str, workers: Collection[str], slots_ms: Iterable[int]) -> list[int]:
    """The slots that nobody may run any more: nobody has begun them, and every worker has told of a skip."""
    begun, skips = {line["slot_ms"] for line in _begun(lines, job)}, _skips(lines, job)
    return [slot_ms for slot_ms in slots_ms if slot_ms not in begun and set(workers) <= skips[slot_ms]]


def _skips(lines: list[Line], job: str) -> dict[int, set[str]]:
    """Who came late for a slot, or found an older run still going on."""
    skips: dict[int, set[str]] = defaultdict(set)
    for line in _of(lines, job):
        if line["what"] == "skip" and line["reason"] in ("late", "overlap"):
            skips[line["slot_ms"]].add(line["worker"])
    return skips


def _begun(lines: list[Line], job: str) -> list[Line]:
    return [line for line in _of(lines, job) if line["what"] == "begin"]


def _of(lines: list[Line], job: str) -> list[Line]:
    return [line for line in lines if line.get("job") == job]


def _place(line: Line) -> tuple[int, int]:
    return line["slot_ms"], line["attempt"]


def _told(line: Line) -> str:
    return f"{line['job']} {line['slot_ms']} attempt {line['attempt']} by {line['worker']}"
