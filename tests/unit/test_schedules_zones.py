"""From what users write for a time zone to a ``tzinfo``, and back."""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta, timezone, tzinfo

import pytest
import pytz

from anarchon.errors import ConfigurationError
from anarchon.schedules import cron, parse_zone, zone_name


def test_a_name_is_pytz_s_so_that_hosts_share_the_data() -> None:
    assert parse_zone("Europe/Athens") is pytz.timezone("Europe/Athens")


def test_a_name_is_understood_in_any_case_of_letters() -> None:
    assert zone_name(parse_zone("europe/ATHENS")) == "Europe/Athens"
    assert zone_name(parse_zone("utc")) == "UTC"


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        (pytz.timezone("Asia/Beirut"), "Asia/Beirut"),
        (pytz.timezone("Asia/Beirut").localize(datetime(2024, 7, 1)).tzinfo, "Asia/Beirut"),
        (zoneinfo.ZoneInfo("Asia/Beirut"), "Asia/Beirut"),
        (timezone.utc, "UTC"),
        (pytz.UTC, "UTC"),
        (timezone(timedelta(hours=5, minutes=45)), "UTC+05:45"),
        (timezone(timedelta(hours=-3), "BRT"), "BRT"),
        (pytz.FixedOffset(90), "pytz.FixedOffset(90)"),
    ],
)
def test_a_tzinfo_is_taken_as_it_is_and_has_a_name(zone: tzinfo, name: str) -> None:
    assert parse_zone(zone) is zone
    assert zone_name(zone) == name
    assert cron("0 8 * * *", zone).zone_name == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Europe/Athen", "Europe/Athens"),
        ("Athens", "Europe/Athens"),
        ("new york", "America/New_York"),
        (" Europe/Paris", "Europe/Paris"),
        ("Asia/Katmandoo", "Asia/Katmandu"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(written: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_zone(written)
    assert str(refused.value) == f"Unknown timezone {written!r}. Did you mean {meant!r}?"


@pytest.mark.parametrize("written", ["", "Mars/Olympus_Mons", "x" * 100_000, "\0", "../../etc/passwd", "Αθήνα"])
def test_an_unknown_name_unlike_any_is_refused_briefly(written: str) -> None:
    with pytest.raises(ConfigurationError, match="^Unknown timezone") as refused:
        parse_zone(written)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("value", [None, 2, b"UTC", timedelta(hours=2), timezone])
def test_what_is_neither_text_nor_a_tzinfo_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="timezone must be a zone's name"):
        parse_zone(value)


class Unfinished(tzinfo):
    """Nothing is filled in."""


class Nowhere(tzinfo):
    def fromutc(self, instant: datetime) -> datetime:
        return instant

    def utcoffset(self, instant: datetime | None) -> timedelta | None:
        return None


@pytest.mark.parametrize("zone", [Unfinished(), Nowhere()])  # type: ignore[abstract]
def test_a_tzinfo_that_cannot_tell_the_time_is_refused_at_once(zone: tzinfo) -> None:
    with pytest.raises(ConfigurationError, match=type(zone).__name__):
        parse_zone(zone)
