"""Durations and instants: what users write in, integer milliseconds inside.

A duration is ``"500ms"``, ``"10s"``, ``"1h30m"``, ``"1d"``, a ``timedelta``, or a number of seconds. An instant is an
aware ``datetime`` outside and milliseconds since the Unix epoch (UTC) inside. Nothing here reads a clock.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone

from anarchon.errors import ConfigurationError, shown

__all__ = ["Duration", "format_duration", "from_ms", "parse_duration", "to_ms"]

Duration = str | int | float | timedelta

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_TEXT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Far below 2**53, which is where a double (Lua's only number) stops counting every integer.
_LONGEST_MS = 3_660 * _UNITS_MS["d"]


def parse_duration(value: object, name: str) -> int:
    """Turns a duration into integer milliseconds.

    Args:
        value: text such as ``"1h30m"`` (days, hours, minutes, seconds, milliseconds, each at most once and in that
            order), a ``timedelta``, or a number of seconds.
        name: the option that is being read, for the message.

    Raises:
        ConfigurationError: not a duration, negative, over ten years, or not zero and yet under a millisecond.
    """
    expected = f"{name} must be a duration such as '500ms', '10s', '1h30m' or '1d', a timedelta, or a number of seconds"
    ms: float | None
    if isinstance(value, str):
        ms = _parse_text(value)
        if ms is None:
            raise ConfigurationError(f"{expected}, not {shown(value)}.")
    elif isinstance(value, timedelta):
        ms = value / timedelta(milliseconds=1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigurationError(f"{expected}, not {shown(value)}.")
        # 0.3 s comes as 300.00000000000006 ms; but what is too little is not rounded to nothing.
        ms = value * 1000 if isinstance(value, int) else round(value * 1000, 6) or value * 1000
    else:
        raise ConfigurationError(f"{expected}, not {shown(value)}.")
    if ms < 0:
        raise ConfigurationError(f"{name} must not be negative: {shown(value)}.")
    if ms > _LONGEST_MS:
        raise ConfigurationError(f"{name} must not be over ten years: {shown(value)}.")
    if 0 < ms < 1:
        raise ConfigurationError(f"{name} must be a whole number of milliseconds: {shown(value)}.")
    return round(ms)


def format_duration(ms: int) -> str:
    """Writes milliseconds as the shortest text that ``parse_duration`` reads back: ``90000`` is ``"1m30s"``."""
    parts = []
    for unit, size in _UNITS_MS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def to_ms(instant: datetime) -> int:
    """Milliseconds since the epoch of an aware datetime, rounded down."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """The aware UTC datetime of milliseconds since the epoch."""
    return _EPOCH + timedelta(milliseconds=ms)


def _parse_text(text: str) -> int | None:
    match = _TEXT.fullmatch(text.strip()) if len(text) <= 100 else None
    if match is None or not any(match.groups()):
        return None
    return sum(int(count) * size for count, size in zip(match.groups(), _UNITS_MS.values()) if count)
