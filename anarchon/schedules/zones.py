"""Time zones: from what users write to a ``tzinfo``, and back to a name."""

from __future__ import annotations

import difflib
from datetime import datetime, timedelta, timezone, tzinfo

import pytz

from anarchon.errors import ConfigurationError, shown

__all__ = ["parse_zone", "zone_name"]

_EXPECTED = "timezone must be a zone's name such as 'Europe/Athens', or a tzinfo (pytz, zoneinfo, datetime.timezone)"
_SOME_DAY = datetime(2000, 1, 1, tzinfo=timezone.utc)


def parse_zone(value: object) -> tzinfo:
    """Turns a zone's name into a ``tzinfo``; a ``tzinfo`` is given back as it is.

    A name is looked up in pytz, in any case of letters: its data travels with the package, while the system's differs
    from host to host, and instances that disagree about a zone disagree about its slots.

    Raises:
        ConfigurationError: neither text nor a tzinfo, a tzinfo that cannot tell the time, or an unknown name; the
            message has the nearest right one.
    """
    if isinstance(value, tzinfo):
        return _checked(value)
    if not isinstance(value, str):
        raise ConfigurationError(f"{_EXPECTED}, not {shown(value)}.")
    try:
        return pytz.timezone(value)
    except pytz.UnknownTimeZoneError:
        raise ConfigurationError(f"Unknown timezone {shown(value)}.{_nearest(value)}") from None


def zone_name(zone: tzinfo) -> str:
    """The zone's name, such as ``Europe/Athens``, ``UTC`` or ``UTC+02:00``; for a zone without one, its ``str()``."""
    for attribute in ("zone", "key"):  # pytz, zoneinfo
        name = getattr(zone, attribute, None)
        if isinstance(name, str) and name:
            return name
    return str(zone)


def _checked(zone: tzinfo) -> tzinfo:
    # A tzinfo is a class to be filled in by whoever writes it; what it lacks is better said here than by a timer.
    try:
        offset = _SOME_DAY.astimezone(zone).utcoffset()
    except Exception as error:
        raise ConfigurationError(f"{_EXPECTED}; {shown(zone)} cannot tell the time: {error!r}.") from error
    if not isinstance(offset, timedelta):
        raise ConfigurationError(f"{_EXPECTED}; {shown(zone)} has no UTC offset.")
    return zone


def _nearest(name: str) -> str:
    """`` Did you mean 'Europe/Athens'?`` for ``europe/athen``, ``Athens`` and ``Europe/Atens``; else nothing."""
    wanted = name[:100].strip().lower().replace(" ", "_")
    names = {full.lower(): full for full in pytz.all_timezones}
    cities = {lower.rpartition("/")[2]: full for lower, full in names.items()}
    for table in (names, cities):
        close = difflib.get_close_matches(wanted, table, n=1, cutoff=0.7)
        if close:
            return f" Did you mean {table[close[0]]!r}?"
    return ""
