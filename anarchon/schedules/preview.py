"""Slots to come, and in words what a change of the clock does to them. A value from values: no clock, no I/O.

A clock put forward skips wall times, one put back shows some twice. What a cron text names among those is found by
reading the same text on a clock that never changes (UTC), where a wall time and an instant are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo as TzInfo
from typing import Any

from anarchon.durations import from_ms
from anarchon.records import iso
from anarchon.schedules.cron import Cron, cron
from anarchon.schedules.stretches import Stretch, Stretches, naive

__all__ = ["Preview", "preview"]

#: How many wall times a note names before it only counts.
_NAMED = 3


@dataclass(frozen=True)
class Preview:
    """One slot to come.

    Attributes:
        slot_ms: milliseconds since the epoch.
        notes: in words, what changes of the clock since the slot before this one have moved, dropped, or shown twice.
    """

    slot_ms: int
    notes: tuple[str, ...] = ()

    def to_dict(self, zone: TzInfo) -> dict[str, Any]:
        """The slot as JSON-ready values: in UTC, and on the wall clock of a zone with its offset."""
        slot = from_ms(self.slot_ms)
        return {"slot": iso(slot), "local": slot.astimezone(zone).isoformat(), "notes": list(self.notes)}


def preview(schedule: Cron, after_ms: int, count: int) -> list[Preview]:
    """The next ``count`` slots strictly after an instant.

    Raises:
        OverflowError: there are not as many within a hundred years.
    """
    unchanging = cron(schedule.text, "UTC", seconds=schedule.seconds)
    stretches = Stretches(schedule.tzinfo)
    found = []
    for _ in range(count):
        slot_ms = schedule.next_after(after_ms)
        changes = _changes(stretches, after_ms // 1000, slot_ms // 1000)
        notes = [_note(schedule, unchanging, change, slot_ms // 1000) for change in changes]
        found.append(Preview(slot_ms, tuple(note for note in notes if note)))
        after_ms = slot_ms
    return found


def _changes(stretches: Stretches, after: int, until: int) -> list[tuple[Stretch, Stretch]]:
    """The changes of offset after the one second and up to the other: the stretch before, and the one that follows."""
    found = []
    before = stretches.at(after)
    while before.end <= until:
        following = stretches.at(before.end)
        if following.offset != before.offset:
            found.append((before, following))
        before = following
    return found


def _note(schedule: Cron, unchanging: Cron, change: tuple[Stretch, Stretch], slot: int) -> str | None:
    before, following = change
    old, new = before.end + before.offset, following.start + following.offset
    named = _named(unchanging, min(old, new), max(old, new))
    if not named:
        return None
    times = _listed(named, schedule.seconds)
    if new > old:
        return f"the clock goes from {_wall(old)} to {_wall(new)}: {times} {_skipped(schedule, following, slot, named)}"
    return f"the clock goes from {_wall(old)} back to {_wall(new)}: {times} {_repeated(schedule, following, named)}"


def _skipped(schedule: Cron, following: Stretch, slot: int, named: list[int]) -> str:
    moved = slot == following.start and _is_moved(schedule, following)
    verbs = ("does", "is") if len(named) == 1 else ("do", "are")
    return f"{verbs[0]} not exist that day and {verbs[1]} {'moved to the first instant after' if moved else 'dropped'}"


def _is_moved(schedule: Cron, following: Stretch) -> bool:
    # What the rule takes for a correction (more than three hours) is not caught up on, nor is a wildcard text.
    return not schedule.wildcard and following.reached < following.start + following.offset


def _repeated(schedule: Cron, following: Stretch, named: list[int]) -> str:
    first_only = not schedule.wildcard and following.reached > following.start + following.offset
    verbs = ("comes", "runs") if len(named) == 1 else ("come", "run")
    return f"{verbs[0]} twice and {verbs[1]} {'the first time only' if first_only else 'each time'}"


def _named(unchanging: Cron, first: int, end: int) -> list[int]:
    """The wall seconds from ``first`` up to, not including, ``end`` that the text names; at most one more than a note
    has room for tells that there are more."""
    found: list[int] = []
    wall = unchanging.next_after(first * 1000 - 1) // 1000
    while wall < end and len(found) <= _NAMED:
        found.append(wall)
        wall = unchanging.next_after(wall * 1000) // 1000
    return found


def _listed(named: list[int], seconds: bool) -> str:
    times = [f"{naive(wall):%H:%M:%S}" if seconds else f"{naive(wall):%H:%M}" for wall in named[:_NAMED]]
    if len(named) > _NAMED:
        return ", ".join(times) + " and others"
    return times[0] if len(times) == 1 else ", ".join(times[:-1]) + " and " + times[-1]


def _wall(wall: int) -> str:
    return f"{naive(wall):%Y-%m-%d %H:%M}"
