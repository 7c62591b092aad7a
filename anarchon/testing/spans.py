"""Stretches of time in which something was not as usual: the store was away, an instance stood still or was cut off."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from anarchon.durations import from_ms, to_ms
from anarchon.errors import ConfigurationError, shown

__all__ = ["Span", "asked_again", "instant_ms", "merged"]

#: The longest pause before a call that failed is made again.
_LONGEST_PAUSE_MS = 5_000

#: From an instant to another.
Span = tuple[datetime, datetime]


def instant_ms(instant: datetime) -> int:
    """What somebody gives as an instant, in milliseconds since the epoch.

    Raises:
        ConfigurationError: not a datetime, or one without a zone, which could be any of a day's hours.
    """
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise ConfigurationError(
            f"An instant must be an aware datetime, such as datetime.now(timezone.utc), not {shown(instant)}."
        )
    return to_ms(instant)


def merged(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """In order, and none that touches another.

    Raises:
        ConfigurationError: one ends before it begins, which would explain nothing; or what is no instant.
    """
    merged: list[tuple[int, int]] = []
    for begin, end in sorted((instant_ms(begin), instant_ms(end)) for begin, end in spans):
        if end < begin:
            raise ConfigurationError(f"A span ends before it begins: from {from_ms(begin)} to {from_ms(end)}.")
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def asked_again(spans: list[tuple[int, int]], first_ms: int, last_ms: int) -> int:
    """When a call that is made between two instants has been answered at the latest: after what it may fall into."""
    for begin, end in spans:
        if begin <= last_ms and end >= first_ms:
            last_ms = max(last_ms, end + _LONGEST_PAUSE_MS)
    return last_ms
