"""Slots where the clock is changed, as transcripts of expected instants: Debian cron's rule, zone by zone.

Each transcript lists every slot between two days. It is read forward with ``next_after``, backward with ``newest_at``,
and from starting instants in between, for pytz's zone and zoneinfo's.
"""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any

import pytest
import pytz
from dateutil import tz as dateutil_tz  # type: ignore[import-untyped]

from anarchon.durations import from_ms, to_ms
from anarchon.schedules import Schedule, cron
from anarchon.schedules.stretches import Stretches


def slots(schedule: Schedule, begin: datetime, end: datetime) -> list[str]:
    """Every slot from ``begin`` up to ``end``, in the schedule's zone, after asking in every way there is."""
    first, last = to_ms(begin), to_ms(end)
    line, now = [], first - 1
    while (later := schedule.next_after(now)) < last:
        assert now < later
        line.append(now := later)
    backward, now = [], last
    while (earlier := schedule.newest_at(now - 1)) >= first:
        assert earlier < now
        backward.append(now := earlier)
    assert backward[::-1] == line
    for earlier, later in pairwise([first - 1, *line, last]):
        for instant in {earlier, earlier + 1, (earlier + later) // 2, later - 1}:
            if earlier <= instant < later and earlier in line:
                assert schedule.newest_at(instant) == earlier
            if earlier <= instant < later and later in line:
                assert schedule.next_after(instant) == later
    return [from_ms(slot).astimezone(schedule.tzinfo).strftime("%d %H:%M%z") for slot in line]


def transcript(zone: str, text: str, begin: str, end: str, expected: list[str], seconds: bool = False) -> None:
    """Checks the slots from midnight of one day (UTC) up to that of another."""
    days = [datetime.fromisoformat(day).replace(tzinfo=timezone.utc) for day in (begin, end)]
    for made in (pytz.timezone(zone), zoneinfo.ZoneInfo(zone)):
        assert slots(cron(text, made, seconds), *days) == expected


# Athens: 2024-03-31 03:00 becomes 04:00; 2024-10-27 04:00 becomes 03:00. Both at 01:00 UTC.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 3 * * *", ["30 03:30+0200", "31 04:00+0300", "01 03:30+0300"]),
        ("0 3 * * *", ["30 03:00+0200", "31 04:00+0300", "01 03:00+0300"]),
        ("59 2 * * *", ["30 02:59+0200", "31 02:59+0200", "01 02:59+0300"]),
        ("0 4 * * *", ["30 04:00+0200", "31 04:00+0300", "01 04:00+0300"]),
        ("0 8 * * 0", ["31 08:00+0300"]),
        # Several that the jump skips, and one that falls on its end, are one slot.
        ("0,20,40 3 * * 0", ["31 04:00+0300"]),
        ("30 3,4 * * 0", ["31 04:00+0300", "31 04:30+0300"]),
        ("0 3-4 * * 0", ["31 04:00+0300"]),
        ("0-59 3 * * 0", ["31 04:00+0300"]),
        # Wildcard: a time that does not exist does not come.
        ("*/30 3 * * *", ["30 03:00+0200", "30 03:30+0200", "01 03:00+0300", "01 03:30+0300"]),
        ("30 */3 * * 0", ["31 00:30+0200", "31 06:30+0300", "31 09:30+0300", "31 12:30+0300", "31 15:30+0300",
            "31 18:30+0300", "31 21:30+0300"]),
        ("*/30 2,4 * * 0", ["31 02:00+0200", "31 02:30+0200", "31 04:00+0300", "31 04:30+0300"]),
    ],
)  # fmt: skip
def test_athens_in_spring(text: str, expected: list[str]) -> None:
    transcript("Europe/Athens", text, "2024-03-29T22:00", "2024-04-01T21:00", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 3 * * *", ["26 03:30+0300", "27 03:30+0300", "28 03:30+0200"]),
        ("0 3 * * *", ["26 03:00+0300", "27 03:00+0300", "28 03:00+0200"]),
        ("0 4 * * *", ["26 04:00+0300", "27 04:00+0200", "28 04:00+0200"]),
        ("59 3 * * 0", ["27 03:59+0300"]),
        ("0-59/20 3 * * 0", ["27 03:00+0300", "27 03:20+0300", "27 03:40+0300"]),
        ("0 2-5 * * 0", ["27 02:00+0300", "27 03:00+0300", "27 04:00+0200", "27 05:00+0200"]),
        # Wildcard: through both hours.
        ("*/30 3 * * 0", ["27 03:00+0300", "27 03:30+0300", "27 03:00+0200", "27 03:30+0200"]),
        ("30 */3 * * 0", ["27 00:30+0300", "27 03:30+0300", "27 03:30+0200", "27 06:30+0200", "27 09:30+0200",
            "27 12:30+0200", "27 15:30+0200", "27 18:30+0200", "27 21:30+0200"]),
        # One date a year, and the next one far off: the repeated hour is no surprise from any starting instant.
        ("30 3 27 7,10 *", ["27 03:30+0300"]),
    ],
)  # fmt: skip
def test_athens_in_autumn(text: str, expected: list[str]) -> None:
    transcript("Europe/Athens", text, "2024-10-25T21:00", "2024-10-28T22:00", expected)


def test_in_the_midst_of_a_repeated_hour_its_fixed_times_are_over() -> None:
    schedule = cron("0-59/20 3 * * *", "Europe/Athens")
    last, following, again = (
        to_ms(datetime(2024, 10, day, hour, minute, tzinfo=timezone.utc))
        for day, hour, minute in ((27, 0, 40), (28, 1, 0), (27, 1, 0))
    )
    for minute in range(60):
        instant = again + minute * 60_000
        assert (schedule.newest_at(instant), schedule.next_after(instant)) == (last, following)


def test_a_minutely_job_in_athens_runs_1380_times_in_spring_and_1500_in_autumn() -> None:
    zone = pytz.timezone("Europe/Athens")
    schedule = cron("* * * * *", zone)
    for day, count in ((datetime(2024, 3, 31), 1380), (datetime(2024, 10, 27), 1500)):
        assert len(slots(schedule, zone.localize(day), zone.localize(day + timedelta(days=1)))) == count


def test_seconds_of_a_fixed_time_in_the_jump_make_one_slot() -> None:
    transcript("Europe/Athens", "* 30 3 * * 0", "2024-03-30", "2024-04-02", ["31 04:00+0300"], seconds=True)


def test_seconds_of_a_fixed_time_that_comes_twice_run_the_first_time_only() -> None:
    transcript("Europe/Athens", "*/30 59,0 3,4 27 * *", "2024-10-26", "2024-10-29", [
        "27 03:00+0300", "27 03:00+0300", "27 03:59+0300", "27 03:59+0300",
        "27 04:00+0200", "27 04:00+0200", "27 04:59+0200", "27 04:59+0200",
    ], seconds=True)  # fmt: skip


def test_seconds_of_a_wildcard_time_that_comes_twice_run_both_times() -> None:
    transcript("Europe/Athens", "0,59 */59 3 27 * *", "2024-10-26", "2024-10-29", [
        "27 03:00+0300", "27 03:00+0300", "27 03:59+0300", "27 03:59+0300",
        "27 03:00+0200", "27 03:00+0200", "27 03:59+0200", "27 03:59+0200",
    ], seconds=True)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "begin", "end", "expected"),
    [
        # 2024-03-10 02:00 becomes 03:00.
        ("30 2 * * *", "2024-03-09", "2024-03-12", ["09 02:30-0500", "10 03:00-0400", "11 02:30-0400"]),
        ("0,30 2 10 * *", "2024-03-09", "2024-03-12", ["10 03:00-0400"]),
        ("*/15 2 10 * *", "2024-03-09", "2024-03-12", []),
        ("15 */2 10 3 *", "2024-03-10", "2024-03-10T14:00", ["10 00:15-0500", "10 04:15-0400", "10 06:15-0400",
            "10 08:15-0400"]),
        # 2024-11-03 02:00 becomes 01:00.
        ("0 1 * * *", "2024-11-02", "2024-11-05", ["02 01:00-0400", "03 01:00-0400", "04 01:00-0500"]),
        ("30 1 3 6,11 *", "2024-11-02", "2024-11-05", ["03 01:30-0400"]),
        ("*/30 1 3 * *", "2024-11-02", "2024-11-05", ["03 01:00-0400", "03 01:30-0400", "03 01:00-0500",
            "03 01:30-0500"]),
        ("0 2 3 * *", "2024-11-02", "2024-11-05", ["03 02:00-0500"]),
    ],
)  # fmt: skip
def test_new_york(text: str, begin: str, end: str, expected: list[str]) -> None:
    transcript("America/New_York", text, begin, end, expected)


@pytest.mark.parametrize(
    ("text", "begin", "end", "expected"),
    [
        # Half an hour: 2024-10-06 02:00 becomes 02:30.
        ("15 2 * * *", "2024-10-05", "2024-10-07", ["06 02:30+1100", "07 02:15+1100"]),
        ("15,45 2 6 10 *", "2024-10-05", "2024-10-07", ["06 02:30+1100", "06 02:45+1100"]),
        ("*/15 2 6 10 *", "2024-10-05", "2024-10-07", ["06 02:30+1100", "06 02:45+1100"]),
        ("0 */2 6 10 *", "2024-10-05T12:00", "2024-10-05T20:00", ["06 00:00+1030", "06 04:00+1100", "06 06:00+1100"]),
        # 2024-04-07 02:00 becomes 01:30.
        ("45 1 * * *", "2024-04-06", "2024-04-07T20:00", ["07 01:45+1100", "08 01:45+1030"]),
        ("30 1 7 4 *", "2024-04-06", "2024-04-08", ["07 01:30+1100"]),
        ("7-59/20 1 7 4 *", "2024-04-06", "2024-04-08", ["07 01:07+1100", "07 01:27+1100", "07 01:47+1100"]),
        ("7-59/20 * 7 4 *", "2024-04-06T14:00", "2024-04-06T16:00", ["07 01:07+1100", "07 01:27+1100",
            "07 01:47+1100", "07 01:47+1030", "07 02:07+1030", "07 02:27+1030"]),
        ("30 * 7 4 *", "2024-04-06T14:00", "2024-04-06T17:30", ["07 01:30+1100", "07 01:30+1030", "07 02:30+1030",
            "07 03:30+1030"]),
    ],
)  # fmt: skip
def test_lord_howe_with_its_half_hour(text: str, begin: str, end: str, expected: list[str]) -> None:
    transcript("Australia/Lord_Howe", text, begin, end, expected)


@pytest.mark.parametrize(
    ("zone", "text", "begin", "end", "expected"),
    [
        # Beirut: 2024-03-31 00:00 becomes 01:00; on 2024-10-26 it is 23:00 twice.
        ("Asia/Beirut", "0 0 * * *", "2024-03-29", "2024-04-01", ["30 00:00+0200", "31 01:00+0300", "01 00:00+0300"]),
        ("Asia/Beirut", "@daily", "2024-10-25", "2024-10-28", ["26 00:00+0300", "27 00:00+0200", "28 00:00+0200"]),
        ("Asia/Beirut", "30 23 * * *", "2024-10-25", "2024-10-28", ["25 23:30+0300", "26 23:30+0300",
            "27 23:30+0200"]),
        ("Asia/Beirut", "59 23 26 10 *", "2024-10-25", "2024-10-28", ["26 23:59+0300"]),
        ("Asia/Beirut", "0 */6 31 3 *", "2024-03-30", "2024-04-01", ["31 06:00+0300", "31 12:00+0300",
            "31 18:00+0300"]),
        ("Asia/Beirut", "*/30 23 26 10 *", "2024-10-26", "2024-10-28", ["26 23:00+0300", "26 23:30+0300",
            "26 23:00+0200", "26 23:30+0200"]),
        # Cairo: Friday 2024-04-26 00:00 becomes 01:00; on Thursday 2024-10-31 it is 23:00 twice.
        ("Africa/Cairo", "30 0 * * *", "2024-04-24T12:00", "2024-04-27", ["25 00:30+0200", "26 01:00+0300",
            "27 00:30+0300"]),
        ("Africa/Cairo", "0 */3 26 4 *", "2024-04-25", "2024-04-26T12:00", ["26 03:00+0300", "26 06:00+0300",
            "26 09:00+0300", "26 12:00+0300"]),
        ("Africa/Cairo", "30 23 L * *", "2024-10-30", "2024-11-02", ["31 23:30+0300"]),
        # Sao Paulo in its time: 2018-11-04 00:00 becomes 01:00; on 2019-02-16 it is 23:00 twice.
        ("America/Sao_Paulo", "0 0 * * *", "2018-11-03", "2018-11-06", ["03 00:00-0300", "04 01:00-0200",
            "05 00:00-0200"]),
        ("America/Sao_Paulo", "15 23 * * *", "2019-02-16T12:00", "2019-02-18T12:00", ["16 23:15-0200",
            "17 23:15-0300"]),
    ],
)  # fmt: skip
def test_zones_that_change_at_midnight(zone: str, text: str, begin: str, end: str, expected: list[str]) -> None:
    transcript(zone, text, begin, end, expected)


@pytest.mark.parametrize(
    ("text", "begin", "end", "expected"),
    [
        # For Ramadan the clock goes back on 2024-03-10, 03:00 to 02:00, and forward on 2024-04-14, 02:00 to 03:00.
        ("30 2 * * *", "2024-03-09", "2024-03-12", ["09 02:30+0100", "10 02:30+0100", "11 02:30+0000"]),
        ("*/30 2 10 3 *", "2024-03-09", "2024-03-12", ["10 02:00+0100", "10 02:30+0100", "10 02:00+0000",
            "10 02:30+0000"]),
        ("30 2 * * *", "2024-04-13", "2024-04-16", ["13 02:30+0000", "14 03:00+0100", "15 02:30+0100"]),
        ("*/30 2 14 4 *", "2024-04-13", "2024-04-16", []),
    ],
)  # fmt: skip
def test_casablanca_in_ramadan(text: str, begin: str, end: str, expected: list[str]) -> None:
    transcript("Africa/Casablanca", text, begin, end, expected)


@pytest.mark.parametrize(
    ("zone", "text", "begin", "end", "expected"),
    [
        # Dublin, whose winter is the exception: 2024-03-31 01:00 becomes 02:00; 2024-10-27 02:00 becomes 01:00.
        ("Europe/Dublin", "30 1 * * *", "2024-03-30", "2024-04-02", ["30 01:30+0000", "31 02:00+0100",
            "01 01:30+0100"]),
        ("Europe/Dublin", "30 1 * * *", "2024-10-26", "2024-10-29", ["26 01:30+0100", "27 01:30+0100",
            "28 01:30+0000"]),
        # Troll, by two hours: 2024-03-31 01:00 becomes 03:00; 2024-10-27 03:00 becomes 01:00.
        ("Antarctica/Troll", "30 1,2 31 3 *", "2024-03-30", "2024-04-01", ["31 03:00+0200"]),
        ("Antarctica/Troll", "*/30 1-3 31 3 *", "2024-03-30", "2024-04-01", ["31 03:00+0200", "31 03:30+0200"]),
        ("Antarctica/Troll", "30 1,2 27 10 *", "2024-10-26", "2024-10-28", ["27 01:30+0200", "27 02:30+0200"]),
        ("Antarctica/Troll", "*/30 2 27 10 *", "2024-10-26", "2024-10-28", ["27 02:00+0200", "27 02:30+0200",
            "27 02:00+0000", "27 02:30+0000"]),
        # Chatham, at a quarter to: 2024-09-29 02:45 becomes 03:45; 2024-04-07 03:45 becomes 02:45.
        ("Pacific/Chatham", "0 3 * * *", "2024-09-27", "2024-09-30", ["28 03:00+1245", "29 03:45+1345",
            "30 03:00+1345"]),
        ("Pacific/Chatham", "0 3 * * *", "2024-04-05", "2024-04-08", ["06 03:00+1345", "07 03:00+1345",
            "08 03:00+1245"]),
        ("Pacific/Chatham", "*/15 3 7 4 *", "2024-04-05", "2024-04-08", ["07 03:00+1345", "07 03:15+1345",
            "07 03:30+1345", "07 03:00+1245", "07 03:15+1245", "07 03:30+1245", "07 03:45+1245"]),
        # Santiago, south of the equator: 2024-09-08 00:00 becomes 01:00; on 2024-04-06 it is 23:00 twice.
        ("America/Santiago", "0 0 * * *", "2024-09-07", "2024-09-10", ["07 00:00-0400", "08 01:00-0300",
            "09 00:00-0300"]),
        ("America/Santiago", "30 23 * * *", "2024-04-06T12:00", "2024-04-08T12:00", ["06 23:30-0300", "07 23:30-0400"]),
        # St John's in its time, a minute past midnight: 2010-03-14 00:01 becomes 01:01; 2010-11-07 00:01 becomes 23:01.
        ("America/St_Johns", "30 0 * * *", "2010-03-13", "2010-03-16", ["13 00:30-0330", "14 01:01-0230",
            "15 00:30-0230"]),
        ("America/St_Johns", "@daily", "2010-11-06", "2010-11-09", ["06 00:00-0230", "07 00:00-0230",
            "08 00:00-0330"]),
        ("America/St_Johns", "30 23 * * *", "2010-11-06T12:00", "2010-11-08T12:00", ["06 23:30-0230",
            "07 23:30-0330"]),
    ],
)  # fmt: skip
def test_zones_that_shift_in_their_own_way(zone: str, text: str, begin: str, end: str, expected: list[str]) -> None:
    transcript(zone, text, begin, end, expected)


@pytest.mark.parametrize(
    ("zone", "text", "begin", "end", "expected"),
    [
        # Caracas: 2007-12-09 03:00 became 02:30; 2016-05-01 02:30 became 03:00.
        ("America/Caracas", "45 2 * * *", "2007-12-08", "2007-12-11", ["08 02:45-0400", "09 02:45-0400",
            "10 02:45-0430"]),
        ("America/Caracas", "45 2 * * *", "2016-04-30", "2016-05-03", ["30 02:45-0430", "01 03:00-0400",
            "02 02:45-0400"]),
        # Pyongyang: 2015-08-15 00:00 became 23:30 of the day before; 2018-05-04 23:30 became midnight.
        ("Asia/Pyongyang", "45 23 * * *", "2015-08-14", "2015-08-16", ["14 23:45+0900", "15 23:45+0830"]),
        ("Asia/Pyongyang", "45 23 * * *", "2018-05-03", "2018-05-06", ["03 23:45+0830", "05 00:00+0900",
            "05 23:45+0900"]),
    ],
)  # fmt: skip
def test_zones_whose_standard_time_moved_by_half_an_hour(
    zone: str, text: str, begin: str, end: str, expected: list[str]
) -> None:
    transcript(zone, text, begin, end, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # After 2011-12-29 came 2011-12-31: no jump that cron makes up for, the new time is simply the time.
        ("0 8 * * *", ["28 08:00-1000", "29 08:00-1000", "31 08:00+1400", "01 08:00+1400"]),
        ("0 0 30 12 *", []),
        ("0 0 31 12 *", ["31 00:00+1400"]),
        ("0 */12 * * *", ["28 00:00-1000", "28 12:00-1000", "29 00:00-1000", "29 12:00-1000", "31 00:00+1400",
            "31 12:00+1400", "01 00:00+1400", "01 12:00+1400"]),
    ],
)  # fmt: skip
def test_apia_which_left_out_a_day(text: str, expected: list[str]) -> None:
    transcript("Pacific/Apia", text, "2011-12-28T10:00", "2012-01-01T10:00", expected)


def test_a_change_of_three_hours_is_still_made_up_for() -> None:
    # Casey: 2011-10-28 02:00 becomes 05:00; on 2010-03-05 it is 23:00 of the day before again at 02:00.
    transcript("Antarctica/Casey", "30 3,4 * * *", "2011-10-27", "2011-10-28", ["28 05:00+1100"])
    transcript("Antarctica/Casey", "30 23 * * *", "2010-03-04", "2010-03-05", ["04 23:30+1100"])
    transcript("Antarctica/Casey", "30 */23 4 3 *", "2010-03-04", "2010-03-05", ["04 23:30+1100", "04 23:30+0800"])


def test_a_change_of_more_than_three_hours_back_repeats_fixed_times() -> None:
    # Vostok: on 1994-02-01 at 00:00 it became 17:00 of the day before.
    transcript("Antarctica/Vostok", "30 20 * * *", "1994-01-31", "1994-02-01", ["31 20:30+0700", "31 20:30+0000"])


def test_a_yearly_wildcard_slot_of_the_repeated_hour_comes_twice() -> None:
    # In the Azores, 2024-10-27 01:00 becomes 00:00.
    transcript("Atlantic/Azores", "30 */24 27 10 *", "2024-10-26", "2024-10-28", ["27 00:30+0000", "27 00:30-0100"])


def test_a_yearly_slot_in_the_jump_is_found_from_any_year() -> None:
    schedule = cron("30 3 31 3 *", "Europe/Athens")
    jump = to_ms(datetime(2024, 3, 31, 1, tzinfo=timezone.utc))
    assert schedule.next_after(to_ms(datetime(2023, 6, 1, tzinfo=timezone.utc))) == jump
    assert schedule.newest_at(to_ms(datetime(2025, 3, 1, tzinfo=timezone.utc))) == jump


def test_a_yearly_slot_is_found_from_any_month_east_and_west_of_greenwich() -> None:
    for zone, slot in (("Asia/Tokyo", "2023-12-31T15:00"), ("Pacific/Honolulu", "2024-01-01T10:00")):
        schedule, expected = cron("@yearly", zone), to_ms(datetime.fromisoformat(f"{slot}+00:00"))
        for month in range(1, 13):
            assert schedule.next_after(to_ms(datetime(2023, month, 15, tzinfo=timezone.utc))) == expected
            assert schedule.newest_at(to_ms(datetime(2024, month, 15, tzinfo=timezone.utc))) == expected


class HandMade(tzinfo):
    """UTC+1, put forward an hour at 2024-06-10 10:00 UTC and back at 2024-06-20 12:00; ``fold`` is not known."""

    def fromutc(self, instant: datetime) -> datetime:
        summer = datetime(2024, 6, 10, 10) <= instant.replace(tzinfo=None) < datetime(2024, 6, 20, 12)
        return instant + timedelta(hours=2 if summer else 1)

    def utcoffset(self, instant: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, instant: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, instant: datetime | None) -> str:
        return "hand-made"


def test_a_hand_made_tzinfo_is_followed_as_it_shows_the_time() -> None:
    schedule = cron("30 11,13 * * *", HandMade())
    june = [datetime(2024, 6, day, tzinfo=timezone.utc) for day in (10, 21)]
    found = slots(schedule, *june)
    assert [slot[:8] for slot in (found[0], found[-2], found[-1])] == ["10 12:00", "20 11:30", "20 13:30"]
    assert len(found) == 2 * 11


def test_zones_of_dateutil_are_taken_too() -> None:
    zone = dateutil_tz.tzrange("EST", -18_000, "EDT")
    spring = [datetime(2024, 4, day, tzinfo=timezone.utc) for day in (6, 9)]
    assert slots(cron("30 2 * * *", zone), *spring) == ["06 02:30-0500", "07 03:00-0400", "08 02:30-0400"]


@pytest.mark.parametrize(
    "name",
    ["Europe/Athens", "America/Noronha", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "Asia/Pyongyang"],
)
def test_stretches_begin_and_end_at_every_change_that_pytz_lists(name: str) -> None:
    zone: Any = pytz.timezone(name)
    stretches = Stretches(zone)
    changes = [
        (to_ms(change.replace(tzinfo=timezone.utc)) // 1000, offset // timedelta(seconds=1))
        for change, (offset, _, _) in zip(zone._utc_transition_times, zone._transition_info)
        if change.year > 1900
    ]
    for (_, before), (second, after) in pairwise(changes):
        assert (stretches.at(second - 1).offset, stretches.at(second).offset) == (before, after)
        if before != after:
            assert stretches.at(second - 1).end == second == stretches.at(second).start
            # Where it was more than three hours, nothing is left over from before.
            left = before if abs(after - before) <= 3 * 3_600 else after
            assert stretches.at(second).reached == second + left


def test_stretches_cover_the_time_line_without_gap_or_overlap() -> None:
    stretches = Stretches(pytz.timezone("America/Noronha"))
    second = stretches.at(to_ms(datetime(1999, 1, 1, tzinfo=timezone.utc)) // 1000).end
    for _ in range(100):
        stretch = stretches.at(second)
        assert stretch.start == second < stretch.end
        assert stretches.at(stretch.end - 1) == stretch
        second = stretch.end


class Steps(tzinfo):
    """A zone of the given offsets in seconds, each from its second (UTC) on."""

    def __init__(self, *steps: tuple[float, int]) -> None:
        self.steps = steps

    def fromutc(self, instant: datetime) -> datetime:
        second = to_ms(instant.replace(tzinfo=timezone.utc)) / 1000
        return instant + timedelta(seconds=[offset for since, offset in self.steps if since <= second][-1])

    def utcoffset(self, instant: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, instant: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, instant: datetime | None) -> str:
        return "steps"


ALWAYS = float("-inf")
HOUR, DAY = 3_600, 86_400


def test_wherever_a_clock_is_put_back_the_repeated_hour_is_known_as_such() -> None:
    # Every hour of six weeks: also just before one of the points at which the search begins anew.
    for change in range(1_700_000_000, 1_700_000_000 + 42 * DAY, HOUR):
        stretches = Stretches(Steps((ALWAYS, 2 * HOUR), (change, HOUR)))
        for second in (change, change + 1_200, change + HOUR - 1):
            stretch = stretches.at(second)
            assert stretch.reached == max(change + 2 * HOUR, stretch.start + HOUR)


def test_a_change_that_is_taken_back_within_a_week_is_found_wherever_it_lies() -> None:
    week = 7 * DAY - HOUR
    for change in range(1_700_000_000, 1_700_000_000 + 42 * DAY, 7 * HOUR):
        stretches = Stretches(Steps((ALWAYS, 0), (change, HOUR), (change + week, 0)))
        assert stretches.at(change - 1).end == change == stretches.at(change).start
        assert stretches.at(change + week - 1).end == change + week == stretches.at(change + week).start


def test_two_changes_back_to_back_repeat_a_fixed_time_no_more_than_one_does() -> None:
    first = to_ms(datetime(2024, 6, 10, 10, tzinfo=timezone.utc)) // 1000
    # 13:00 becomes 12:00, and 12:30 becomes 11:30: a quarter to one is shown three times.
    zone = Steps((ALWAYS, 3 * HOUR), (first, 2 * HOUR), (first + HOUR // 2, HOUR))
    day = [datetime(2024, 6, day, 12, tzinfo=timezone.utc) for day in (9, 10)]
    assert [slot[:8] for slot in slots(cron("15,45 12 * * *", zone), *day)] == ["10 12:15", "10 12:45"]
    assert len(slots(cron("*/45 12 * * *", zone), *day)) == 2 + 1 + 2


def test_stretches_of_a_zone_without_changes_are_all_alike() -> None:
    stretches = Stretches(timezone(timedelta(hours=5, minutes=30)))
    for second in (-(10**10), -1, 0, 1, 10**9, 10**11):
        stretch = stretches.at(second)
        assert stretch.start <= second < stretch.end
        assert stretch.offset == 19_800
        assert stretch.reached == stretch.start + stretch.offset


def test_what_is_remembered_of_a_zone_is_bounded() -> None:
    asked = []

    class Counting(HandMade):
        def fromutc(self, instant: datetime) -> datetime:
            asked.append(instant)
            return super().fromutc(instant)

    stretches = Stretches(Counting())
    for month in range(1_000):
        stretches.at(month * 30 * 86_400)
    assert len(stretches._spans) <= 64
    asked.clear()
    stretches.at(999 * 30 * 86_400)
    assert asked == []
