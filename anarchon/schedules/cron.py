"""Slots by a cron text, in a time zone, right through its clock changes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import datetime
from datetime import tzinfo as TzInfo
from typing import TYPE_CHECKING

from anarchon.errors import ConfigurationError, shown
from anarchon.schedules.cron_text import parse_text
from anarchon.schedules.stretches import DAY, Stretch, Stretches, naive, wall_second
from anarchon.schedules.zones import parse_zone, zone_name

if TYPE_CHECKING:
    from croniter import croniter

__all__ = ["Cron", "cron"]

# Rarer than any cron text can be: 29 February on a given day of the week has at most forty years between two.
_FURTHEST = 100 * 366 * DAY

# 2096-03-01, just after a leap day, with eight years to the next: a text that has no slot from here on has none.
_TRIAL_MS = 3_981_398_400_000


@dataclass(frozen=True)
class Cron:
    """Slots where the wall clock of a zone shows a time that the text names; see ``cron``.

    What happens where the clock is changed is Debian cron's rule (cron(8), "Daylight Saving Time and other time
    changes"). A text is *wildcard* if its minute or hour field begins with ``*``, else it is *at fixed times*.

    - A fixed time that a jump skips has its slot at the first instant after the jump; several make one slot.
    - A fixed time that comes twice has its slot the first time only.
    - A wildcard text follows the wall clock as it really goes: through both hours where one is repeated, and not at
      times that do not exist.
    - A change of more than three hours (Samoa, end of 2011) is simply the new time.

    croniter only ever sees naive wall times, never a zone: asked for aware ones it runs a fixed time twice, and from
    some starting instants it gives other slots than from others.
    """

    text: str
    seconds: bool
    tzinfo: TzInfo = field(hash=False)
    wildcard: bool = field(compare=False)
    _sides: tuple[croniter, ...] = field(compare=False, repr=False)
    _stretches: Stretches = field(compare=False, repr=False)

    @property
    def kind(self) -> str:
        return "cron"

    @property
    def zone_name(self) -> str:
        return zone_name(self.tzinfo)

    @property
    def interval_ms(self) -> int | None:
        return None

    def count(self, after_ms: int, until_ms: int) -> int | None:
        return None

    def next_after(self, instant_ms: int) -> int:
        begin = instant_ms // 1000 + 1
        limit = begin + _FURTHEST
        searched, match = begin, None
        while begin < limit:
            stretch = self._stretches.at(begin)
            reached = self._reached(stretch)
            # A clock put forward: what it skipped is looked for too, at the first instant after the jump alone.
            wall = reached if begin == stretch.start else max(reached, begin + stretch.offset)
            # What was found from one time on is what is found from any time up to it: croniter need not step again.
            if match is None or not searched <= wall <= match:
                searched, match = wall, self._match(wall - 1, later=True)
            if match is None:
                break
            slot = max(stretch.start, match - stretch.offset)
            if slot < stretch.end:
                return slot * 1000
            begin = stretch.end
            # Offsets are under a day, so from a day after `wall` to a day before `match` no clock shows a match.
            if begin >= wall + DAY:
                begin = max(begin, match - DAY)
        raise OverflowError(f"No slot of {self.text!r} follows within a hundred years.")

    def newest_at(self, instant_ms: int) -> int:
        until = instant_ms // 1000
        limit = until - _FURTHEST
        searched, match = until, None
        while until > limit:
            stretch = self._stretches.at(until)
            wall = until + stretch.offset
            if match is None or not match <= wall <= searched:
                searched, match = wall, self._match(wall + 1, later=False)
            if match is None:
                break
            if match >= self._reached(stretch):
                return max(stretch.start, match - stretch.offset) * 1000
            until = stretch.start - 1
            # As above: from a day after `match` to a day before `wall` no clock shows a match.
            if until <= wall - DAY:
                until = min(until, match + DAY)
        raise OverflowError(f"No slot of {self.text!r} lies within the hundred years before.")

    def _reached(self, stretch: Stretch) -> int:
        """The wall second from which on the text's times have their slots in this stretch."""
        return stretch.start + stretch.offset if self.wildcard else stretch.reached

    def _match(self, wall: int, later: bool) -> int | None:
        """The nearest wall second strictly later, or earlier, that the text names; None if there is none."""
        found = [match for side in self._sides if (match := _step(side, wall, later)) is not None]
        if not found:
            return None
        return min(found) if later else max(found)


def _step(side: croniter, wall: int, later: bool) -> int | None:
    """As ``Cron._match``, for one side."""
    start = naive(wall)
    # croniter keeps its place in the object: each call works on a copy, so threads may share this one.
    stepper = copy.copy(side)
    try:
        return wall_second((stepper.get_next if later else stepper.get_prev)(datetime, start))
    except (ValueError, OverflowError):  # none in fifty years, such as 30 February; or none before the year 10000
        return None


def cron(text: str, timezone: str | TzInfo = "UTC", seconds: bool = False) -> Cron:
    """Slots by a cron text.

    Args:
        text: minute, hour, day of month, month, day of week; or ``@hourly``, ``@daily`` and the like.
        timezone: whose wall clock counts: a name (then pytz's data is used), or a tzinfo.
        seconds: whether the text has six fields, seconds first.

    Raises:
        ConfigurationError: a text that is not understood (the field is named), one that never comes, or an unknown
            zone.
    """
    # As long to import as half of the package, and many have no cron text.
    from croniter import croniter

    if not isinstance(seconds, bool):
        raise ConfigurationError(f"seconds must be True or False, not {shown(seconds)}.")
    parsed = parse_text(text, seconds)
    zone = parse_zone(timezone)
    sides = [croniter(side, 0, day_or=False) for side in parsed.sides]
    # One side of two may never come, such as 30 February beside Mondays. Looking for it each time would take long.
    coming = tuple(side for side in sides if _step(side, _TRIAL_MS // 1000, later=True) is not None)
    if not coming:
        raise ConfigurationError(
            f"Cron text {shown(parsed.text)}: day of month: its months and days of the week have no such day."
        )
    made = Cron(parsed.text, seconds, zone, parsed.wildcard, coming, Stretches(zone))
    try:
        made.next_after(_TRIAL_MS)
    except OverflowError:
        raise ConfigurationError(
            f"Cron text {shown(made.text)}: minute and hour: on its days the clock of {made.zone_name} skips that time."
        ) from None
    return made
