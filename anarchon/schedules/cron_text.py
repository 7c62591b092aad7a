"""A whole cron text: its fields, its aliases, and how its two day fields go together."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from anarchon.errors import ConfigurationError, shown
from anarchon.schedules.fields import DAY_OF_MONTH, DAY_OF_WEEK, FIVE, HOUR, MINUTE, SIX, Refusal, nearest, plain

__all__ = ["CronText", "parse_text"]

# Every field written out in full, number by number, makes 531 characters. What croniter would parse has no limit.
_LONGEST = 600

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NO_TIMES = {
    "@reboot": "@reboot names no time; call the function when the program starts.",
    "@every": "@every is not cron's; register the job with every().",
}

# str.split would take a no-break space for a space.
_WORD = re.compile(r"[^ \t\r\n]+")


class CronText(NamedTuple):
    """A cron text, understood.

    Attributes:
        text: as it came, with single spaces.
        wildcard: its minute or hour field begins with ``*``.
        sides: the same in croniter's form, as one or two texts. In each, day of month and day of week must both
            match; with two, a time that matches either is meant.
    """

    text: str
    wildcard: bool
    sides: tuple[str, ...]


def parse_text(text: object, seconds: bool) -> CronText:
    """Understands a cron text.

    Args:
        text: five fields, or an alias such as ``@daily``.
        seconds: the text has six fields, seconds first (an alias stays as it is).

    Raises:
        ConfigurationError: what was expected, in which field, and what came.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"A cron text must be text such as '0 8 * * 1-5', not {shown(text)}.")
    if len(text) > _LONGEST:
        raise ConfigurationError(f"A cron text may have {_LONGEST} characters at most, not {len(text)}.")
    words = _WORD.findall(text)
    try:
        return _parse(words, seconds)
    except Refusal as refusal:
        raise ConfigurationError(f"Cron text {shown(' '.join(words))}: {refusal}") from None


def _parse(words: list[str], seconds: bool) -> CronText:
    small, fields = [word.lower() for word in words], SIX if seconds else FIVE
    if small and small[0].startswith("@"):
        small, fields = _alias(small), FIVE
    if len(small) != len(fields):
        raise Refusal(_miscounted(words, seconds))
    given = dict(zip(fields, small))
    # croniter reads the seconds, where there are any, from the end.
    both = {field: plain(field, given[field]) for field in (*FIVE, *fields[:-5])}
    if given[DAY_OF_MONTH][0] in "*?" or given[DAY_OF_WEEK][0] in "*?":
        sides = [both]
    else:
        # Both days are restricted, and either will do. croniter's own "or" loses the other field beside # and W.
        sides = [both | {DAY_OF_WEEK: "*"}, both | {DAY_OF_MONTH: "*"}]
    return CronText(
        text=" ".join(words),
        wildcard=given[MINUTE][0] == "*" or given[HOUR][0] == "*",
        sides=tuple(" ".join(side.values()) for side in sides),
    )


def _alias(words: list[str]) -> list[str]:
    name = words[0]
    if name in _NO_TIMES:
        raise Refusal(_NO_TIMES[name])
    if name not in _ALIASES:
        raise Refusal(f"expected one of {', '.join(_ALIASES)}, not {shown(name)}{nearest(name, _ALIASES)}")
    if len(words) > 1:
        raise Refusal(f"{name} stands alone, nothing may follow it.")
    return _ALIASES[name].split()


def _miscounted(words: list[str], seconds: bool) -> str:
    names = [field.name for field in (SIX if seconds else FIVE)]
    message = f"expected {len(names)} fields ({', '.join(names)}), not {len(words)}"
    if len(words) == 6 and not seconds:
        message += "; for a text that begins with seconds, say seconds=True"
    elif len(words) == 5 and seconds:
        message += "; with seconds=True the second comes first"
    elif len(words) == 7:
        message += "; there is no field for the year"
    strange = next((character for word in words for character in word if not character.isascii()), None)
    if strange is not None:
        message += f"; {unicodedata.name(strange, ascii(strange))} is not a space between fields"
    return message + "."
