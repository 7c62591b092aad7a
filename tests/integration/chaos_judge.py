"""What the oracle says of a fleet that has been through trouble (``chaos.py``), and a table of it for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fleet import Fleet, Line

from anarchon import RunRecord, Scheduler
from anarchon.durations import from_ms
from anarchon.testing import Judgement, SlotOracle

__all__ = ["causes_told", "faults_done", "histories_of", "judged", "names_of", "table"]

#: What a machine that is kept busy may put between an instant and what comes of it, short of standing still.
NOISE = "500ms"

#: What each kind of trouble is done to.
PROCESS = ("kill", "stop", "pause")
NETWORK = ("cut", "stall", "delay", "lost answers")
STORE = ("restart", "hang", "full memory", "forgotten scripts", "lock")
_AWAY = ("restart", "hang", "full memory", "lock")

#: A start asks for unfinished runs first, and its timers wait for that one call: at most a third of a lease.
_RECOVERED_MS = 1_000

#: How close to each other two moments are between which a busy machine was hardly any better.
_CLOSE_MS = 1_500

_FAULTS = ("missed", "repeated", "overlapping", "early", "unfenced", "unrecorded", "not-due")

_FOREVER_MS = 1 << 45

_Spans = list[tuple[int, int]]


def judged(
    fleet: Fleet, jobs: Sequence[Line], histories: Mapping[str, Sequence[RunRecord]], since_ms: int, until_ms: int
) -> Judgement:
    """Judges the slots from an instant, a second after all had started, to another, a while before they stopped."""
    lines = fleet.lines()
    ready = [line["worker"] for line in fleet.lines("ready")]
    unable = {instance: _unable(lines, instance) for instance in ready}
    away = [_span(line) for line in fleet.lines("trouble") if line["kind"] in _AWAY]
    away += _joined([_span(line) for line in fleet.lines("trouble", kind="no answer")])
    oracle = SlotOracle.of(_scheduler(jobs), from_ms(since_ms), from_ms(until_ms), NOISE)
    return oracle.judge(
        fleet.runs.read(),
        histories,
        away=_instants(away),
        started={line["worker"]: from_ms(line["wall_ms"] + _RECOVERED_MS) for line in fleet.lines("ready")},
        died={line["whom"]: from_ms(line["wall_ms"]) for line in fleet.lines("trouble", kind="kill")},
        paused={instance: _instants(_still(lines, instance)) for instance in ready},
        cut_off={instance: _instants(spans) for instance, spans in unable.items()},
    )


def histories_of(fleet: Fleet, jobs: Sequence[Line]) -> dict[str, list[RunRecord]]:
    """What the store has kept of the jobs."""
    reader = fleet.reader()
    try:
        return {name: reader.history(name, limit=10_000) for job in jobs for name in names_of(job)}
    finally:
        reader.stop()


def names_of(job: Line) -> list[str]:
    copies = job.get("copies")
    return [job["name"]] if copies is None else [f"{job['name']}-{number}" for number in range(copies)]


def table(fleet: Fleet, found: Judgement) -> str:
    """What there was and what came of it."""
    kinds = Counter(line["kind"] for line in fleet.lines("trouble"))
    takeovers = sum(1 for one in fleet.runs.read() if one.trigger == "takeover")
    rows: list[tuple[str, Mapping[Any, int] | int]] = [
        ("slots", found.slots),
        ("ran", found.ran),
        ("explained", _sorted(found.explained)),
        ("calls of handlers, by attempt", _sorted(found.attempts)),
        ("takeovers", takeovers),
        *((name, {kind: kinds[kind] for kind in group}) for name, group in _groups()),
        ("told by workers as errors", _sorted(causes_told(fleet))),
        ("found", {kind: sum(fault.kind == kind for fault in found.faults) for kind in _FAULTS}),
    ]
    return "\n".join([f"{fleet!r}", *(f"  {name:<31}{_shown(value)}" for name, value in rows)])


def faults_done(fleet: Fleet) -> dict[str, int]:
    """How many faults were done to what."""
    kinds = Counter(line["kind"] for line in fleet.lines("trouble"))
    return {name: sum(kinds[kind] for kind in group) for name, group in _groups()}


def causes_told(fleet: Fleet) -> Counter[str]:
    """What the workers have told of their store, by what the driver raised: once an operation and outage."""
    return Counter(str(line["cause"]) for line in fleet.lines("error"))


def _groups() -> list[tuple[str, tuple[str, ...]]]:
    return [("faults of processes", PROCESS), ("faults of the network", NETWORK), ("faults of the store", STORE)]


def _sorted(counts: Mapping[Any, int]) -> dict[object, int]:
    return dict(sorted(counts.items()))


def _shown(value: Mapping[Any, int] | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    parts = ", ".join(f"{name}: {count:,}" for name, count in value.items())
    return f"{sum(value.values()):,}" + (f" ({parts})" if parts else "")


def _scheduler(jobs: Sequence[Line]) -> Scheduler:
    """One with the jobs, as each worker has them: it knows what is due."""
    scheduler = Scheduler("memory://")
    for job in jobs:
        options = {name: value for name, value in job.items() if name not in ("name", "copies", "lasts", "error")}
        every = options.pop("every")
        for name in names_of(job):
            scheduler.every(name, every, print, **options)
    return scheduler


# -- when who could do nothing, in milliseconds of the host's clock


def _unable(lines: Sequence[Line], instance: str) -> _Spans:
    """When an instance could not, or not surely, ask the store."""
    spans = _still(lines, instance)
    for line in lines:
        if line["what"] == "ready" and line["worker"] == instance:
            spans.append((0, line["wall_ms"]))
        elif line["what"] == "trouble" and line["whom"] == instance and line["kind"] in ("kill", "stop"):
            spans.append((line["from_ms"], _FOREVER_MS))
        elif line["what"] == "trouble" and line["whom"] == instance.rpartition(".")[0]:
            spans.append(_span(line))
    return spans


def _still(lines: Sequence[Line], instance: str) -> _Spans:
    """When a process stood still: it was paused, or says itself that the machine had no time for it."""
    paused = [
        _span(line)
        for line in lines
        if line["what"] == "trouble" and line["whom"] == instance and line["kind"] == "pause"
    ]
    return paused + _joined(
        [_span(line) for line in lines if line["what"] == "stood still" and line["worker"] == instance]
    )


def _joined(spans: _Spans) -> _Spans:
    """What is close to each other makes one."""
    joined: _Spans = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + _CLOSE_MS:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _span(line: Line) -> tuple[int, int]:
    return line["from_ms"], line["wall_ms"]


def _instants(spans: _Spans) -> list[tuple[datetime, datetime]]:
    return [(from_ms(begin), from_ms(end)) for begin, end in spans]
