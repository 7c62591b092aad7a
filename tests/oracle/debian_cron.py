"""Debian's cron as its manual describes it, in the most plodding way: somebody who looks at the clock each minute.

It is here to judge ``anarchon.schedules`` and shares no code with it: it is written from the two manual pages and from
the table of docs/schedules.rst, it calculates nothing ahead, and it imports neither croniter nor anarchon (a test sees
to that). What cron(8) says of cron 3.0pl1-162:

    Special considerations exist when the clock is changed by less than 3 hours, for example at the beginning and end
    of daylight savings time. If the time has moved forwards, those jobs which would have run in the time that was
    skipped will be run soon after the change. Conversely, if the time has moved backwards by less than 3 hours, those
    jobs that fall into the repeated time will not be re-run.

    Only jobs that run at a particular time (not specified as @hourly, nor with '*' in the hour or minute specifier)
    are affected. Jobs which are specified with wildcards are run based on the new time immediately.

    Clock changes of more than 3 hours are considered to be corrections to the clock, and the new time is used
    immediately.

Where the page leaves a choice: *soon* is the first instant after the change, several jobs skipped are one slot there, a
change of exactly three hours is made up for, and a specifier *with* ``*`` is one that begins with it, as cron reads it.

Seconds throughout: an *instant* counts them in UTC since 1970, a *wall* second off the clock on the wall, likewise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone, tzinfo

MINUTE, HOUR, DAY = 60, 3_600, 86_400

#: Nothing that the watcher remembers is older than three hours. Whoever begins to watch this long before knows it all.
MEMORY = 4 * HOUR

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "sun mon tue wed thu fri sat".split()
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Text:
    """A cron text: whether a wall second matches it, and whether it is specified with wildcards."""

    def __init__(self, text: str, seconds: bool = False) -> None:
        words = text.lower().split()
        if words[0] in ALIASES:
            words, seconds = ALIASES[words[0]].split(), False
        second, minute, hour, self.day, month, self.weekday = words if seconds else ["0", *words]
        self.every = 1 if seconds else MINUTE
        self.wildcard = minute.startswith("*") or hour.startswith("*")
        self.seconds = [named(second, number, 0, 59) for number in range(60)]
        self.minutes = [named(minute, number, 0, 59) for number in range(60)]
        self.hours = [named(hour, number, 0, 23) for number in range(24)]
        self.months = [False, *(named(month, number, 1, 12, MONTHS) for number in range(1, 13))]
        self._days: dict[int, bool] = {}

    def matches(self, wall: int) -> bool:
        day, rest = divmod(wall, DAY)
        if day not in self._days:
            self._days[day] = self.has(date(1970, 1, 1) + timedelta(days=day))
        return (
            self._days[day]
            and self.hours[rest // HOUR]
            and self.minutes[rest // MINUTE % 60]
            and self.seconds[rest % 60]
        )

    def has(self, day: date) -> bool:
        """Whether any time of the day matches, as far as the date is concerned."""
        if not self.months[day.month]:
            return False
        by_month = any(day_of_month(item, day) for item in self.day.split(","))
        by_week = any(day_of_week(item, day) for item in self.weekday.split(","))
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return by_month and by_week
        return by_month or by_week


def day_of_month(item: str, day: date) -> bool:
    if item == "l":
        return (day + timedelta(days=1)).month != day.month
    if item.endswith("w"):
        return day.day == nearest_weekday(int(item[:-1]), day)
    return named(item, day.day, 1, 31)


def day_of_week(item: str, day: date) -> bool:
    weekday = day.isoweekday() % 7
    if "#" in item:
        name, _, count = item.partition("#")
        return number_of(name, WEEKDAYS) == weekday and (day.day + 6) // 7 == int(count)
    if item.startswith("l"):
        return number_of(item[1:], WEEKDAYS) == weekday and (day + timedelta(days=7)).month != day.month
    return named(item, weekday, 0, 6, WEEKDAYS)


def nearest_weekday(wanted: int, day: date) -> int:
    """The day of the month from Monday to Friday that is nearest to the one wanted."""
    first = day.replace(day=1)
    month = [first + timedelta(days=n) for n in range(31) if (first + timedelta(days=n)).month == day.month]
    wanted = min(wanted, len(month))
    return min((abs(other.day - wanted), other.day) for other in month if other.isoweekday() < 6)[1]


def named(field: str, number: int, first: int, last: int, names: list[str] | None = None) -> bool:
    """Whether a field names a number: each of its items is counted through, number by number."""
    for item in field.split(","):
        numbers, _, step = item.partition("/")
        low, _, high = numbers.partition("-")
        if low in ("*", "?"):
            begin, end = first, last
        else:
            begin = number_of(low, names)
            end = number_of(high, names) if high else last if step else begin
            if names is WEEKDAYS and begin == 0 and high == "7":
                end = last  # from Sunday to Sunday is the whole week
        at, counted = begin, 0
        while True:
            if at == number and counted % int(step or 1) == 0:
                return True
            if at == end:
                break
            at, counted = (at + 1 if at < last else first), counted + 1
    return False


def number_of(word: str, names: list[str] | None) -> int:
    if names and word in names:
        return names.index(word) + (names is MONTHS)
    return int(word) % 7 if names is WEEKDAYS else int(word)


def wall_at(instant: int, zone: tzinfo) -> int:
    """What the clock of the zone shows."""
    wall = datetime.fromtimestamp(instant, zone).replace(tzinfo=timezone.utc)
    return round(wall.timestamp())


def looks(zone: tzinfo, begin: int, end: int, every: int) -> Iterator[tuple[int, int]]:
    """The instants at which somebody looks at the clock, and what it shows: each full minute, or each second.

    A minute in which the clock is changed, or that it does not begin evenly, is looked at second by second.
    """
    wall = wall_at(begin, zone)
    for minute in range(begin, end, MINUTE):
        following = wall_at(minute + MINUTE, zone)
        if following != wall + MINUTE or wall % MINUTE:
            yield from ((instant, wall_at(instant, zone)) for instant in range(minute, minute + MINUTE))
        else:
            yield from ((minute + second, wall + second) for second in range(0, MINUTE, every))
        wall = following


def slots(text: Text, seen: list[tuple[int, int]]) -> list[int]:
    """The instants at which the text has a slot, for somebody who looked at the clock like this."""
    found = []
    before, shown = seen[0]
    done = shown - 1  # the wall second up to which no job is owed
    for instant, wall in seen:
        changed = (wall - shown) - (instant - before)
        if abs(changed) > 3 * HOUR:
            done = wall - 1
        if text.wildcard:
            due = text.matches(wall)
        else:
            owed = range(done // text.every * text.every + text.every, wall + 1, text.every)
            due = any(text.matches(missed) for missed in owed)
        if due:
            found.append(instant)
        done = max(done, wall)
        before, shown = instant, wall
    return found


def changes(zone: tzinfo, year: int) -> list[int]:
    """The first instants of another offset in a year."""

    def offset(instant: int) -> int:
        return wall_at(instant, zone) - instant

    begin, end = (round(datetime(y, 1, 1, tzinfo=timezone.utc).timestamp()) for y in (year, year + 1))
    found = []
    for look in range(begin, end, 6 * HOUR):
        same, other = look, look + 6 * HOUR
        if offset(same) == offset(other):
            continue
        while other - same > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if offset(middle) == offset(same) else (same, middle)
        found.append(other)
    return found


class Watched:
    """The slots of a text in a window of time, and what must be answered there.

    Args:
        text: the cron text.
        seen: what was seen of the clock, from ``MEMORY`` before the window on.
        begin: the instant at which the window begins.
    """

    def __init__(self, text: Text, seen: list[tuple[int, int]], begin: int) -> None:
        self.slots = [slot for slot in slots(text, seen) if slot >= begin]

    def next_after(self, instant_ms: int) -> int | None:
        """The first slot after it, in milliseconds; None if that lies beyond the window."""
        at = bisect_right(self.slots, instant_ms // 1_000)
        return self.slots[at] * 1_000 if at < len(self.slots) else None

    def newest_at(self, instant_ms: int) -> int | None:
        """The last slot that is not after it, in milliseconds; None if that lies before the window."""
        at = bisect_left(self.slots, instant_ms // 1_000 + 1)
        return self.slots[at - 1] * 1_000 if at else None
