"""One field of a cron text: what may stand in it, and the same in the plain form that croniter cannot misread.

croniter takes ``5-5`` for the whole field, goes wrong where a range wraps with a step, and speaks of "columns" where a
message should name the field. So it is given ``*``, lists of numbers, and the few forms that are no numbers: ``l``,
``15w``, ``5#2``, ``l5``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from anarchon.errors import shown

__all__ = [
    "DAY_OF_MONTH",
    "DAY_OF_WEEK",
    "FIVE",
    "HOUR",
    "MINUTE",
    "SIX",
    "Field",
    "Refusal",
    "nearest",
    "plain",
]


class Refusal(Exception):
    """What is wrong with a cron text: what was expected, in which field, and what came."""


class Field(NamedTuple):
    """One of the fields: the numbers from ``first`` to ``last``, which come round again after ``size``."""

    name: str
    first: int
    last: int
    size: int
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        names = f" or a name from {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"a number from {self.first} to {self.last}{names}"

    def wrapped(self, value: int) -> int:
        return (value - self.first) % self.size + self.first


SECOND = Field("second", 0, 59, 60)
MINUTE = Field("minute", 0, 59, 60)
HOUR = Field("hour", 0, 23, 24)
DAY_OF_MONTH = Field("day of month", 1, 31, 31)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = Field("month", 1, 12, 12, MONTHS)
# Sunday is at both ends of the week.
DAY_OF_WEEK = Field("day of week", 0, 7, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))

FIVE = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
SIX = (SECOND, *FIVE)

# [0-9], not \d, which takes Arabic digits as well.
_ITEM = re.compile(r"(?P<low>\*|[a-z0-9]+)(?:-(?P<high>[a-z0-9]+))?(?:/(?P<step>[0-9]+))?")
_NEAREST_WEEKDAY = re.compile(r"([0-9]+)w")
_NTH = re.compile(r"([a-z0-9]+)#([0-9]+)")
_LAST = re.compile(r"l([a-z0-9]+)")
_CHANCE = re.compile(r"[hr](\(.*\))?(/.*)?")


def plain(field: Field, word: str) -> str:
    """A field, in small letters, in croniter's form.

    Raises:
        Refusal: it is not understood.
    """
    items = word.split(",")
    if "" in items:
        raise _refusal(field, "something before and after each comma", word)
    if word == "?" and field in (DAY_OF_MONTH, DAY_OF_WEEK):
        return "*"
    if field is DAY_OF_MONTH:
        return _days_of_month(items)
    if field is DAY_OF_WEEK:
        return _days_of_week(items)
    return _numbers(field, items) or "*"


def _days_of_month(items: list[str]) -> str:
    if len(items) == 1 and (weekday := _NEAREST_WEEKDAY.fullmatch(items[0])):
        return f"{_number(DAY_OF_MONTH, weekday[1])}w"
    numbers = _numbers(DAY_OF_MONTH, [item for item in items if item != "l"])
    # The last day of a month adds nothing to all days of it.
    return f"{numbers},l".lstrip(",") if "l" in items and numbers is not None else numbers or "*"


def _days_of_week(items: list[str]) -> str:
    special = [day for item in items if (day := _day_in_month(item))]
    if not special:
        return _numbers(DAY_OF_WEEK, items) or "*"
    if len(special) < len(items):
        raise _refusal(DAY_OF_WEEK, "either plain days or days with # and L, not both in one list", ",".join(items))
    return ",".join(special)


def _day_in_month(item: str) -> str | None:
    """``fri#2``, the second Friday of a month, or ``L5``, the last; None for anything else."""
    if nth := _NTH.fullmatch(item):
        if not 1 <= int(nth[2]) <= 5:
            raise _refusal(DAY_OF_WEEK, "a number from 1 to 5 after the #", item)
        return f"{DAY_OF_WEEK.wrapped(_number(DAY_OF_WEEK, nth[1]))}#{int(nth[2])}"
    if last := _LAST.fullmatch(item):
        return f"l{DAY_OF_WEEK.wrapped(_number(DAY_OF_WEEK, last[1]))}"
    return None


def _numbers(field: Field, items: list[str]) -> str | None:
    """The numbers of all items, with commas; None if they are all there are."""
    numbers = sorted({number for item in items for number in _range(field, item)})
    return None if len(numbers) == field.size else ",".join(map(str, numbers))


def _range(field: Field, item: str) -> Iterable[int]:
    """The numbers that ``*``, ``5``, ``5-9``, ``22-2``, ``*/5``, ``5/5`` or ``5-9/5`` stand for."""
    match = _ITEM.fullmatch(item)
    if match is None or (match["low"] == "*" and match["high"]) or "l" in match.groups():
        raise _refusal(field, field.expected + (_elsewhere(field, item) or ", *, 1-5, */5 or the like"), item)
    step = int(match["step"] or 1)
    if step == 0:
        raise _refusal(field, "a step of at least 1", item)
    if step > field.size:
        # `*/90` does not mean every ninety minutes: steps are counted anew each hour.
        raise _refusal(field, f"a step of at most {field.size}, since steps begin anew with each round", item)
    end = field.first + field.size - 1
    low = field.first if match["low"] == "*" else _number(field, match["low"])
    if match["high"]:
        high = _number(field, match["high"])
    elif match["low"] == "*" or match["step"]:
        high = end
    else:
        high = low
    if high < low:
        high += field.size  # 22-2 goes on past midnight, and 7/2 begins with the Sunday that is also 0
    return (field.wrapped(number) for number in range(low, high + 1, step))


def _number(field: Field, word: str) -> int:
    if word in field.names:
        return field.first + field.names.index(word)
    if word.isdigit() and field.first <= int(word) <= field.last:
        return int(word)
    raise _refusal(field, field.expected + _elsewhere(field, word), word)


def _elsewhere(field: Field, word: str) -> str:
    """A word to those who know another dialect."""
    if _CHANCE.fullmatch(word):
        return " (random and hashed values are not supported: instances would differ)"
    if field is DAY_OF_MONTH and "w" in word:
        return ", or the weekday nearest to one, such as 15W, alone in its field"
    if field is DAY_OF_MONTH and "l" in word:
        return ", or L for the last day"
    if field is DAY_OF_WEEK and ("l" in word or "#" in word):
        return ", or fri#2 for the second Friday of the month, or L5 for the last"
    return ""


def _refusal(field: Field, expected: str, came: str) -> Refusal:
    hint = nearest(came, field.names) if came.isalpha() else "."
    return Refusal(f"{field.name}: expected {expected}, not {shown(came)}{hint}")


def nearest(word: str, names: Iterable[str]) -> str:
    """The end of a message: ``. Did you mean 'mon'?`` where a name is near, else a full stop."""
    close = difflib.get_close_matches(word[:20], list(names), n=1)
    return f". Did you mean {close[0]!r}?" if close else "."
