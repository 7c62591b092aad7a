"""Cron texts, zones and instants by chance, for the comparison with the oracle.

The seed alone decides them, on machines with the same release of pytz and the same zones.
"""

from __future__ import annotations

import random
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timezone, tzinfo
from functools import cache

import pytz
from debian_cron import DAY, HOUR, MEMORY, MINUTE, Text, changes, looks

#: Zones that have something of their own, which would seldom come up among all six hundred.
REMARKABLE = [
    "Africa/Cairo",  # at midnight; four changes in 2010
    "Africa/Casablanca",  # back for Ramadan
    "America/Caracas",  # half an hour, once
    "America/New_York",
    "America/Noronha",  # a week of summer
    "America/Santiago",  # at midnight, the other way round
    "America/Sao_Paulo",  # at midnight
    "America/St_Johns",  # one minute after midnight
    "Antarctica/Casey",  # three hours
    "Antarctica/Troll",  # two hours
    "Antarctica/Vostok",  # seven hours
    "Asia/Beirut",  # at midnight
    "Asia/Gaza",  # at odd times
    "Asia/Pyongyang",  # half an hour, once
    "Australia/Lord_Howe",  # half an hour, each year
    "Europe/Athens",
    "Europe/Dublin",  # its winter is the exception
    "Pacific/Apia",  # a day left out
    "Pacific/Chatham",  # at a quarter to
    "Pacific/Kwajalein",  # a day left out
]

# The system's release of the tz database may be another than pytz's; both sides are asked about the same zone object.
_SYSTEM = zoneinfo.available_timezones()


@dataclass
class Window:
    """A stretch of time in one zone, most often about a change of its clock, and what is seen of the clock there."""

    zone: tzinfo
    name: str
    begin: int
    end: int
    middle: int
    every: int
    seen: list[tuple[int, int]] = field(repr=False)

    def instants_ms(self, chance: random.Random, slots: list[int]) -> Iterator[int]:
        """Without end: about the middle, beside slots, and anywhere in the window."""
        while True:
            kind = chance.random()
            if kind < 0.4:
                instant = round(chance.gauss(self.middle, HOUR)) * 1_000 + chance.choice([0, 0, -1, 1, 500])
            elif kind < 0.8 and slots:
                instant = chance.choice(slots) * 1_000 + chance.choice([0, -1, 1, 999, -1_000])
            else:
                instant = chance.randrange(self.begin * 1_000, self.end * 1_000)
            if self.begin * 1_000 <= instant < self.end * 1_000:
                yield instant


def random_window(chance: random.Random, seconds: bool) -> Window:
    # Before 1973 some zone or other was not a whole number of minutes away; after 2037 pytz knows no changes.
    year = chance.randrange(1973, 2038)
    name = chance.choice(REMARKABLE) if chance.random() < 0.6 else chance.choice(pytz.all_timezones)
    kind = zoneinfo.ZoneInfo if chance.random() < 0.3 and name in _SYSTEM else pytz.timezone
    zone: tzinfo = kind(name)
    changed = changes_of(zone, year)
    if changed and chance.random() < 0.9:
        middle = chance.choice(changed)
    else:
        middle = round(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) + chance.randrange(365 * DAY)
    half = chance.randrange(1, 4) * HOUR if seconds else chance.randrange(4, 48) * HOUR
    begin, end = ((middle + side) // MINUTE * MINUTE for side in (-half, half))
    every = 1 if seconds else MINUTE
    return Window(zone, name, begin, end, middle, every, list(looks(zone, begin - MEMORY, end, every)))


@cache
def changes_of(zone: tzinfo, year: int) -> list[int]:
    return changes(zone, year)


def random_text(chance: random.Random, window: Window) -> str:
    """A text of the dialect, more often than not with something to do in the window."""
    if chance.random() < 0.03:
        return chance.choice(["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@Annually"])
    wall = datetime.fromtimestamp(window.middle, window.zone)
    hours = [wall.hour, (wall.hour - 1) % 24, (wall.hour + 1) % 24, 0, 23]
    fields = [
        random_field(chance, 0, 59, [0, 15, 30, 59], star=0.35),
        random_field(chance, 0, 23, hours, star=0.35),
        random_date(chance, wall),
    ]
    if window.every == 1:
        fields.insert(0, random_field(chance, 0, 59, [0, 30, 59], star=0.2))
    return " ".join(fields)


def random_date(chance: random.Random, near: date) -> str:
    """Day of month, month and day of week, which more often than not hit the day or one beside it."""
    months = "jan feb mar apr may jun jul aug sep oct nov dec"
    return " ".join(
        [
            random_days(chance, near),
            random_field(chance, 1, 12, [near.month], star=0.88, names=months),
            random_weekdays(chance, near),
        ]
    )


def random_field(
    chance: random.Random, first: int, last: int, likely: list[int], star: float, names: str | None = None
) -> str:
    if chance.random() < star:
        return chance.choice(["*", "*", f"*/{chance.randint(1, last - first + 1)}", f"*,{first}"])

    def number() -> str:
        value = chance.choice(likely) if chance.random() < 0.75 else chance.randint(first, last)
        if names and chance.random() < 0.3:
            name = names.split()[value - first]
            return chance.choice([name, name.upper()])
        return chance.choice([str(value), f"{value:02}"])

    def item() -> str:
        low, step = number(), chance.choice([1, 2, 3, 5, last - first + 1])
        return chance.choice([low, low, low, f"{low}-{number()}", f"{low}-{number()}/{step}", f"{low}/{step}"])

    return ",".join(item() for _ in range(chance.choice([1, 1, 1, 2, 3])))


def random_days(chance: random.Random, near: date) -> str:
    kind = chance.random()
    if kind < 0.7:
        return "*"
    if kind < 0.74:
        return "?"
    if kind < 0.78:
        return chance.choice(["L", "l", f"{chance.randint(1, 31)},L"])
    if kind < 0.82:
        return f"{chance.choice([near.day, chance.randint(1, 31)])}{chance.choice('wW')}"
    return random_field(chance, 1, 31, [near.day, max(1, near.day - 1), min(31, near.day + 1)], star=0.3)


def random_weekdays(chance: random.Random, near: date) -> str:
    today, names = near.isoweekday(), "sun mon tue wed thu fri sat"
    kind = chance.random()
    if kind < 0.7:
        return "*"
    if kind < 0.74:
        return "?"
    if kind < 0.78:
        return f"{chance.choice([today, today % 7])}#{(near.day + 6) // 7}" if chance.random() < 0.5 else "fri#2,1#5"
    if kind < 0.82:
        return chance.choice([f"L{today}", "Lsun,l6"])
    if kind < 0.86:
        return chance.choice(["6-7", "0-7", "7-1", "7/3", "7", "5-7/2", "fri-mon/2"])
    return random_field(chance, 0, 6, [today % 7], star=0.2, names=names)


def never_comes(text: Text) -> bool:
    """Whether no day of a hundred years has the date: a leap day on a given day of the week may be forty years away."""
    first = date(2000, 1, 1).toordinal()
    return not any(text.has(date.fromordinal(day)) for day in range(first, first + 36_525))
