"""What is wrong with what a fleet did: each function returns the faults it finds in the lines, one sentence each."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from fleet import Line

__all__ = ["faults_of_early_runs", "faults_of_runs", "faults_of_shares"]


def faults_of_runs(lines: list[Line], job: str, interval_ms: int, first_ms: int, last_ms: int) -> list[str]:
    """Each slot from the first to the last has one run, of one attempt, that ends; fences grow with the slots."""
    begins: dict[int, list[Line]] = defaultdict(list)
    ends: Counter[tuple[int, int]] = Counter()
    for line in lines:
        if line.get("job") == job and line["what"] == "begin":
            begins[line["slot_ms"]].append(line)
        if line.get("job") == job and line["what"] == "end":
            ends[line["slot_ms"], line["attempt"]] += 1
    faults = []
    for slot_ms in range(first_ms, last_ms + 1, interval_ms):
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


def faults_of_shares(lines: list[Line], workers: list[str], least: float) -> list[str]:
    """Each worker has at least this share of the runs."""
    runs = Counter(line["worker"] for line in lines if line["what"] == "begin")
    total = sum(runs.values())
    return [
        f"{worker} has {runs[worker]} of {total} runs: less than {least:.0%}."
        for worker in workers
        if runs[worker] < least * total
    ]
