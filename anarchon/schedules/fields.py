"""Reads a cron text, field by field, and writes it again in the plain form that croniter cannot misread.

croniter takes ``5-5`` for the whole field, goes wrong where a range wraps with a step, and speaks of "columns" where a
message should name the field. So it is given ``*``, lists of numbers, and the few forms that are no numbers: ``l``,
``15w``, ``5#2``, ``l5``.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from anarchon.errors import ConfigurationError

__all__ = ["Fields", "parse_fields"]

#: Every field written out in full, number by number, makes 531 characters.
LONGEST_TEXT = 600


class Fields(NamedTuple):
    """A cron text, understood.

    Attributes:
        text: with single spaces between its fields.
        wildcard: its minute or hour field begins with ``*``.
        sides: the same in croniter's form, as one or two texts. In each, day of month and day of week must both
            match; with two, a time that matches either is meant.
    """

    text: str
    wildcard: bool
    sides: tuple[str, ...]


class _Field(NamedTuple):
    name: str
    first: int
    size: int
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        names = f" or a name from {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"a number from {self.first} to {self.last}{names}"

    @property
    def last(self) -> int:
        # Both ends of the week are Sunday.
        return 7 if self is _DAY_OF_WEEK else self.first + self.size - 1


_SECOND = _Field("second", 0, 60)
_MINUTE = _Field("minute", 0, 60)
_HOUR = _Field("hour", 0, 24)
_DAY_OF_MONTH = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_DAY_OF_WEEK = _Field("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
_FIVE = (_MINUTE, _HOUR, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK)
_SIX = (_SECOND, *_FIVE)

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NO_SLOTS = {
    "@reboot": "@reboot names no time; call the function when the program starts.",
    "@every": "@every is not cron's; register the job with every().",
}

# ASCII throughout: str.split and \d would take a no-break space for a space, and Arabic digits for digits.
_WORD = re.compile(r"[^ \t\r\n]+")
_ITEM = re.compile(r"(?P<low>\*|[a-z0-9]+)(?:-(?P<high>[a-z0-9]+))?(?:/(?P<step>[0-9]+))?")
_CHANCE = re.compile(r"[hr](\(.*\))?(/.*)?")
_NEAREST_WEEKDAY = re.compile(r"([0-9]+)w")
_NTH = re.compile(r"([a-z0-9]+)#([0-9]+)")
_LAST = re.compile(r"l([a-z0-9]+)")


def parse_fields(text: str, seconds: bool) -> Fields:
    """Understands a cron text.

    Args:
        text: five fields, or an alias such as ``@daily``.
        seconds: the text has six fields, seconds first (an alias stays as it is).

    Raises:
        ConfigurationError: what was expected, in which field, and what came.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"A cron text must be text such as '0 8 * * 1-5', not {_shown(text)}.")
    if len(text) > LONGEST_TEXT:
        raise ConfigurationError(f"A cron text may have {LONGEST_TEXT} characters at most, not {len(text)}.")
    words = _WORD.findall(text)
    try:
        return _parse(words, seconds)
    except _Refusal as refusal:
        raise ConfigurationError(f"Cron text {_shown(' '.join(words))}: {refusal}") from None


class _Refusal(Exception):
    """What is wrong with a text, without the text."""


def _parse(words: list[str], seconds: bool) -> Fields:
    fields, lowered = _SIX if seconds else _FIVE, [word.lower() for word in words]
    if lowered and lowered[0].startswith("@"):
        fields, lowered = _FIVE, _alias(lowered)
    if len(lowered) != len(fields):
        raise _Refusal(_miscounted(words, seconds))
    given = dict(zip(fields, lowered))
    plain = {field: _field(field, word) for field, word in given.items()}
    # croniter reads the seconds, where there are any, from the end.
    order = (*_FIVE, *fields[:-5])
    days = (_DAY_OF_MONTH, _DAY_OF_WEEK)
    if any(given[day].startswith(("*", "?")) for day in days):
        freed: tuple[_Field | None, ...] = (None,)
    else:
        freed = (_DAY_OF_WEEK, _DAY_OF_MONTH)
    return Fields(
        text=" ".join(words),
        wildcard=given[_MINUTE].startswith("*") or given[_HOUR].startswith("*"),
        sides=tuple(" ".join("*" if field is free else plain[field] for field in order) for free in freed),
    )


def _alias(words: list[str]) -> list[str]:
    name = words[0]
    if name in _ALIASES and len(words) == 1:
        return _ALIASES[name].split()
    if name in _NO_SLOTS:
        raise _Refusal(_NO_SLOTS[name])
    if name in _ALIASES:
        raise _Refusal(f"{name} stands alone, nothing may follow it.")
    raise _Refusal(f"unknown alias {_shown(name)}, expected one of {', '.join(_ALIASES)}{_nearest(name, _ALIASES)}")


def _miscounted(words: list[str], seconds: bool) -> str:
    names = [field.name for field in (_SIX if seconds else _FIVE)]
    message = f"expected {len(names)} fields ({', '.join(names)}), not {len(words)}"
    if len(words) == 6 and not seconds:
        message += "; for a text that begins with seconds, say seconds=True"
    elif len(words) == 5 and seconds:
        message += "; seconds=True was said, so that the second comes first"
    elif len(words) == 7:
        message += "; there is no field for the year"
    odd = next((character for character in " ".join(words) if not character.isascii()), None)
    if odd is not None:
        message += f"; {unicodedata.name(odd, repr(odd))} does not part fields"
    return message + "."


def _field(field: _Field, word: str) -> str:
    """One field in croniter's form."""
    items = word.split(",")
    if "" in items:
        raise _refusal(field, "no empty item in a list", word)
    if field in (_DAY_OF_MONTH, _DAY_OF_WEEK):
        if word == "?":
            return "*"
        special = _special_days(field, items)
        if special is not None:
            return special
    values = {value for item in items for value in _values(field, item)}
    return "*" if len(values) == field.size else ",".join(str(value) for value in sorted(values))


def _special_days(field: _Field, items: list[str]) -> str | None:
    """A field with days that are no numbers, in croniter's form; None for a field without."""
    if field is _DAY_OF_MONTH:
        if len(items) == 1 and (weekday := _NEAREST_WEEKDAY.fullmatch(items[0])):
            return f"{_number(field, weekday[1])}w"
        if "l" not in items:
            return None
        values = {value for item in items if item != "l" for value in _values(field, item)}
        return ",".join([*(str(value) for value in sorted(values)), "l"])
    special = [_special_weekday(item) for item in items]
    found = [item for item in special if item is not None]
    if found and len(found) < len(items):
        raise _refusal(field, "either plain days or days with # and L, not both in one list", ",".join(items))
    return ",".join(found) or None


def _special_weekday(item: str) -> str | None:
    """``fri#2``, the second Friday of a month, or ``L5``, the last; None for anything else."""
    if nth := _NTH.fullmatch(item):
        if not 1 <= int(nth[2]) <= 5:
            raise _refusal(_DAY_OF_WEEK, "a number from 1 to 5 after the #", item)
        return f"{_number(_DAY_OF_WEEK, nth[1]) % 7}#{int(nth[2])}"
    if last := _LAST.fullmatch(item):
        return f"l{_number(_DAY_OF_WEEK, last[1]) % 7}"
    return None


def _values(field: _Field, item: str) -> list[int]:
    """The numbers that ``*``, ``5``, ``5-9``, ``*/5``, ``5/5`` or ``5-9/5`` stand for."""
    match = _ITEM.fullmatch(item)
    if match is None or (match["low"] == "*" and match["high"]):
        other = _elsewhere(field, item) or ", *, a range such as 1-5, or a step such as */5"
        raise _refusal(field, field.expected + other, item)
    step = int(match["step"] or 1)
    if step == 0:
        raise _refusal(field, "a step of at least 1", item)
    if step > field.size:
        raise _refusal(field, f"a step of at most {field.size}, for it begins anew with each round of the field", item)
    if match["low"] == "*":
        low, high = field.first, field.first + field.size - 1
    else:
        low = _number(field, match["low"])
        if match["high"]:
            high = _number(field, match["high"])
        elif match["step"]:
            low = _wrapped(field, low)
            high = field.first + field.size - 1
        else:
            high = low
    if high < low:
        high += field.size  # 22-2 goes on past midnight
    return [_wrapped(field, value) for value in range(low, high + 1, step)]


def _wrapped(field: _Field, value: int) -> int:
    return (value - field.first) % field.size + field.first


def _number(field: _Field, word: str) -> int:
    if word.isdigit():
        number = int(word)
        if field.first <= number <= field.last:
            return number
    elif word in field.names:
        return field.first + field.names.index(word)
    raise _refusal(field, field.expected + _elsewhere(field, word), word)


def _elsewhere(field: _Field, word: str) -> str:
    """A word to those who know another dialect."""
    if _CHANCE.fullmatch(word):
        return " (random and hashed values are not supported: instances would differ)"
    if field is _DAY_OF_MONTH and "w" in word:
        return ", or the weekday nearest to one, such as 15W, alone in its field"
    if field is _DAY_OF_MONTH and "l" in word:
        return ", or L for the last day"
    if field is _DAY_OF_WEEK and ("l" in word or "#" in word):
        return ", or fri#2 for the second Friday of the month, or L5 for the last"
    return ""


def _refusal(field: _Field, expected: str, came: str) -> _Refusal:
    return _Refusal(f"{field.name}: expected {expected}, not {_shown(came)}{_nearest(came, field.names)}")


def _nearest(word: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), n=1) if len(word) <= 20 else []
    return f". Did you mean {close[0]!r}?" if close else "."


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
