"""What the oracle says of a fleet that has weathered a storm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce

from fleet_of_hosts import DEPLOYED, Fleet, Host
from kernel import EPOCH_MS

from anarchon.durations import from_ms, to_ms
from anarchon.records import RunRecord
from anarchon.schedules import Schedule, cron, every
from anarchon.testing import Fault, Judgement, Ran, SlotOracle

__all__ = ["Life", "judged"]

_NOISE = timedelta(milliseconds=700)

#: How long two versions of a job's schedule are about.
_ROLLOUT = timedelta(seconds=30)

#: What began in the last life of a store may still go on in its next; what ends may find no store to be kept in.
_AFTER_A_LOSS = timedelta(seconds=40)
_BEFORE_A_LOSS = timedelta(seconds=150)
_AFTER_THE_START = timedelta(seconds=5)
_BEFORE_THE_END = timedelta(seconds=25)

_Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Life:
    """From one loss of everything that the store had, or the start, to the next, or the end.

    Attributes:
        histories: what it kept at its end, by job.
        after_a_loss, before_a_loss: whether its ends are such losses.
    """

    began_at: datetime
    ended_at: datetime
    histories: dict[str, list[RunRecord]]
    after_a_loss: bool
    before_a_loss: bool


def judged(fleet: Fleet, lives: list[Life], upgraded_at: datetime | None) -> Judgement:
    """What a store has forgotten cannot be held against it: each of its lives is judged by itself.

    Args:
        upgraded_at: when a deploy began that changed a schedule; None: there was none.
    """
    found = [_judged_life(fleet, life, upgraded_at) for life in lives]
    return Judgement(
        faults=[fault for one in found for fault in one.faults],
        slots=sum(one.slots for one in found),
        ran=sum(one.ran for one in found),
        explained=sum((one.explained for one in found), Counter()),
        attempts=sum((one.attempts for one in found), Counter()),
    )


def _judged_life(fleet: Fleet, life: Life, upgraded_at: datetime | None) -> Judgement:
    first = life.began_at + (_AFTER_A_LOSS if life.after_a_loss else _AFTER_THE_START)
    last = life.ended_at - (_BEFORE_A_LOSS if life.before_a_loss else _BEFORE_THE_END)
    oracle = SlotOracle(_NOISE)
    for plan in fleet.jobs:
        schedule: Schedule = cron(plan.schedule) if " " in plan.schedule else every(plan.schedule)
        told = ("overlap", "max_attempts", "max_late", "jitter", "lease", "timeout")
        options = {name: plan.options[name] for name in told if name in plan.options}
        oracle.expect(plan.name, _slots(schedule, first, last), **options)
    if fleet.deploys:
        oracle.expect("deployed", _deployed(upgraded_at, first, last), max_late="4s", jitter="50ms", lease="3s")
    found = oracle.judge(
        [one for one in fleet.log() if _is_of(life, one)],
        life.histories,
        away=_instants(_away(fleet)),
        started={host.name: from_ms(EPOCH_MS + host.made_ms) for host in fleet.all_hosts},
        died=_died(fleet),
        paused={host.name: _instants(host.paused_ms) for host in fleet.all_hosts},
        cut_off={host.name: _instants(_unable(fleet, host)) for host in fleet.all_hosts},
    )
    # A run that one version alone found due is in the way of others like any, and so it is not kept from the oracle.
    faults = [
        fault
        for fault in found.faults
        if first <= fault.slot <= last and not (fault.kind == "not-due" and _is_of_one_version(upgraded_at, fault))
    ]
    return Judgement(faults, found.slots, found.ran, found.explained, found.attempts)


def _died(fleet: Fleet) -> dict[str, datetime]:
    """When the last that a dead host did was done: a heartbeat of its may have been on its way for long."""
    lines = {host.name: host.line for host in fleet.all_hosts}
    return {name: max(at, from_ms(EPOCH_MS + lines[name].last_late_ms)) for name, at in fleet.died.items()}


def _slots(schedule: Schedule, first: datetime, last: datetime) -> list[datetime]:
    slots = []
    slot_ms = schedule.next_after(to_ms(first) - 1)
    while slot_ms <= to_ms(last):
        slots.append(from_ms(slot_ms))
        slot_ms = schedule.next_after(slot_ms)
    return slots


def _deployed(upgraded_at: datetime | None, first: datetime, last: datetime) -> list[datetime]:
    """While two versions are about, what is due is what both say."""
    old, new = (every(text) for text in DEPLOYED)
    if upgraded_at is None:
        return _slots(old, first, last)
    over = upgraded_at + _ROLLOUT
    both = set(_slots(old, upgraded_at, over)) & set(_slots(new, upgraded_at, over))
    return [
        *_slots(old, first, min(last, upgraded_at)),
        *(slot for slot in sorted(both) if first <= slot <= last),
        *_slots(new, max(first, over), last),
    ]


def _is_of(life: Life, one: Ran) -> bool:
    return life.began_at <= one.started_at <= life.ended_at


def _is_of_one_version(upgraded_at: datetime | None, one: Ran | Fault) -> bool:
    """Whether a run of the job whose schedule changes was due by one of its versions alone, while both were about."""
    if one.job != "deployed" or upgraded_at is None or not upgraded_at <= one.slot <= upgraded_at + _ROLLOUT:
        return False
    return any(every(text).newest_at(to_ms(one.slot)) != to_ms(one.slot) for text in DEPLOYED)


# -- when who could not have claimed anything, in milliseconds of the kernel


def _away(fleet: Fleet) -> _Spans:
    """When no host could."""
    now_ms = fleet.kernel.now_ms
    nobody = reduce(_both, [_merged(_unable(fleet, host)) for host in fleet.all_hosts])
    return [*nobody, *((begin, now_ms if end is None else end) for begin, end in fleet.server_away)]


def _unable(fleet: Fleet, host: Host) -> _Spans:
    now_ms = fleet.kernel.now_ms
    spans = [(begin, now_ms if end is None else end) for begin, end in host.unable]
    gone_ms = fleet.gone_ms.get(host.name, now_ms)
    return [(0, host.made_ms), *spans, (gone_ms, now_ms)]


def _merged(spans: Iterable[tuple[int, int]]) -> _Spans:
    merged: _Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _both(one: _Spans, other: _Spans) -> _Spans:
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]


def _instants(spans: _Spans) -> list[tuple[datetime, datetime]]:
    return [(from_ms(EPOCH_MS + begin), from_ms(EPOCH_MS + end)) for begin, end in spans]
