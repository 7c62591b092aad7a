"""Where a time zone's clock runs evenly: the stretches of constant UTC offset that the time line falls into.

Seconds throughout: a *second* since the Unix epoch (UTC), or a *wall second*, the same count read off a wall clock
(1970-01-01 00:00 on that clock is 0). Wall second = second + offset.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

__all__ = ["DAY", "Stretch", "Stretches", "naive", "wall_second"]

DAY = 86_400

#: Changes of the clock beyond this are no daylight saving: they are simply the new time (Debian's cron(8)).
_LARGEST_SHIFT = 3 * 3_600

# A zone is explored a few days at a time: its offset is looked at on both ends, and where the two differ the change
# between them is found by bisection. What would be missed is a change that is taken back before the next look. The
# shortest stretch in the tz database is a week less one hour (Brazil, October 2000).
_SPAN = 4 * DAY
_SPANS_KEPT = 64

_HOUR = 3_600

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WALL_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)


class Stretch(NamedTuple):
    """Seconds from ``start`` up to, not including, ``end``, all with one offset.

    Attributes:
        reached: the wall second that the clock had got to before this stretch began, as a watcher sees it who takes
            a shift of up to three hours for a detour and a longer one for a correction. Where the clock was put
            forward at ``start`` it lies before ``start + offset``, and what lies between never showed; where it was
            put back it lies after, and what lies between shows again.
    """

    start: int
    end: int
    offset: int
    reached: int


class Stretches:
    """The stretches of one zone, found when they are asked for, in bounded work for any ``tzinfo``.

    They cover the time line without gap or overlap. A stretch may also end where nothing changes: then the next one
    has the same offset, and nothing was skipped or repeated. Safe to share between threads: two that look for the same
    stretches find the same.
    """

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._spans: dict[int, tuple[Stretch, ...]] = {}

    def at(self, second: int) -> Stretch:
        """The stretch that the second belongs to.

        Raises:
            OverflowError: outside of what ``datetime`` can tell, the years 1 to 9999.
        """
        number = second // _SPAN
        span = self._spans.get(number)
        if span is None:
            span = tuple(self._explore(number * _SPAN, (number + 1) * _SPAN))
            if len(self._spans) >= _SPANS_KEPT:
                self._spans.clear()
            self._spans[number] = span
        return next(stretch for stretch in reversed(span) if stretch.start <= second)

    def _explore(self, first: int, end: int) -> list[Stretch]:
        """The stretches from ``first`` up to ``end``, cut off at both."""
        found = []
        # From a day before: a clock put back just before this span is still repeating itself within it.
        start = first - DAY
        offset = self._offset(start)
        reached = start + offset
        seen = start
        for look in (first, end - 1):
            while self._offset(look) != offset:
                change = self._change(seen, look, offset)
                found.append(Stretch(start, change, offset, reached))
                before, offset = offset, self._offset(change)
                shift = offset - before
                reached = max(reached, change + before) if abs(shift) <= _LARGEST_SHIFT else change + offset
                start = seen = change
            seen = look
        found.append(Stretch(start, end, offset, reached))
        return [_from(stretch, first) for stretch in found if stretch.end > first]

    def _change(self, same: int, other: int, offset: int) -> int:
        """The first second of another offset, between one that has this offset and one that has not."""
        while other - same > 1:
            # Almost every change falls on a full hour (UTC): those are tried first, and the second before one.
            middle = (same + other) // 2
            if other - same >= 2 * _HOUR:
                middle -= middle % _HOUR
            elif other % _HOUR == 0:
                middle = other - 1
            if self._offset(middle) == offset:
                same = middle
            else:
                other = middle
        return other

    def _offset(self, second: int) -> int:
        # Wall clock less UTC, not utcoffset(): a tzinfo that knows no fold gives the wrong one of two there.
        instant = _EPOCH + timedelta(seconds=second)
        wall = instant.astimezone(self._zone).replace(tzinfo=None)
        return wall_second(wall) - second


def naive(wall: int) -> datetime:
    """The wall second as a naive datetime."""
    return _WALL_EPOCH + timedelta(seconds=wall)


def wall_second(wall: datetime) -> int:
    """A naive datetime as a wall second."""
    return (wall - _WALL_EPOCH) // _SECOND


def _from(stretch: Stretch, first: int) -> Stretch:
    """The stretch without what lies before ``first``."""
    if stretch.start >= first:
        return stretch
    return stretch._replace(start=first, reached=max(stretch.reached, first + stretch.offset))
