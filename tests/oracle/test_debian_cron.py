"""The oracle itself: that it is nobody's copy, and that it says what the sentences of the manual say."""

from __future__ import annotations

import ast
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import debian_cron
import pytest
import pytz
from debian_cron import MEMORY, Text, Watched, changes, looks


def watched(text: str, zone: str, begin: str, end: str) -> list[str]:
    first, last = (round(datetime.fromisoformat(f"{at}:00+00:00").timestamp()) for at in (begin, end))
    meant, place = Text(text), pytz.timezone(zone)
    seen = list(looks(place, first - MEMORY, last, meant.every))
    slots = Watched(meant, seen, first).slots
    return [datetime.fromtimestamp(slot, place).strftime("%d %H:%M%z") for slot in slots]


def test_the_oracle_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(debian_cron.__file__).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported == {"__future__", "bisect", "collections.abc", "datetime"}
    assert not {"eval", "exec", "__import__"} & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # "If the time has moved forwards, those jobs which would have run in the time that was skipped will be run soon
        # after the change."
        ("30 3 31 3 *", ["31 04:00+0300"]),
        ("0,30 3 31 3 *", ["31 04:00+0300"]),
        ("59 2 31 3 *", ["31 02:59+0200"]),
        # "Jobs which are specified with wildcards are run based on the new time immediately."
        ("*/30 3 31 3 *", []),
        ("30 */3 31 3 *", []),
        ("0 * 31 3 *", ["31 02:00+0200", "31 04:00+0300"]),
        ("@hourly", ["31 02:00+0200", "31 04:00+0300"]),
    ],
)
def test_the_oracle_moves_a_skipped_job_to_just_after_the_change(text: str, expected: list[str]) -> None:
    assert watched(text, "Europe/Athens", "2024-03-31T00:00", "2024-03-31T02:00") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # "If the time has moved backwards by less than 3 hours, those jobs that fall into the repeated time will not be
        # re-run."
        ("30 3 27 10 *", ["27 03:30+0300"]),
        ("0 4 27 10 *", ["27 04:00+0200"]),
        ("*/30 3 27 10 *", ["27 03:00+0300", "27 03:30+0300", "27 03:00+0200", "27 03:30+0200"]),
        ("@hourly", ["27 03:00+0300", "27 03:00+0200", "27 04:00+0200"]),
    ],
)
def test_the_oracle_does_not_run_a_repeated_job_again(text: str, expected: list[str]) -> None:
    assert watched(text, "Europe/Athens", "2024-10-27T00:00", "2024-10-27T03:00") == expected


def test_the_oracle_takes_a_change_of_more_than_three_hours_as_the_new_time() -> None:
    assert watched("0 12 29,30,31 12 *", "Pacific/Apia", "2011-12-29T00:00", "2012-01-01T00:00") == [
        "29 12:00-1000",
        "31 12:00+1400",
    ]
    # Seven hours back, at midnight.
    again = watched("30 20 * * *", "Antarctica/Vostok", "1994-01-31T00:00", "1994-02-01T00:00")
    assert again == ["31 20:30+0700", "31 20:30+0000"]


def test_the_oracle_remembers_what_was_skipped_before_its_window_began() -> None:
    # The hour from three is shown again from 01:00 UTC on, and the window begins in the middle of it.
    assert watched("0-59 3 * * *", "Europe/Athens", "2024-10-27T01:20", "2024-10-27T03:00") == []


def test_the_oracle_watches_six_fields_second_by_second() -> None:
    zone, begin = pytz.timezone("Europe/Athens"), round(datetime(2024, 3, 31, 0, 59, tzinfo=timezone.utc).timestamp())
    seen = list(looks(zone, begin, begin + 120, 1))
    assert [slot - begin for slot in Watched(Text("*/20 59 * * * *", seconds=True), seen, begin).slots] == [0, 20, 40]
    assert Watched(Text("59 30 3 * * *", seconds=True), seen, begin).slots == [begin + 60]


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        # crontab(5): "at 4:30 am on the 1st and 15th of each month, plus every Friday".
        ("30 4 1,15 * 5", [1, 5, 12, 15, 19, 26]),
        ("0 0 * * 5", [5, 12, 19, 26]),
        ("0 0 1-7 * */7", [7]),
        ("0 0 L * *", [31]),
        ("0 0 6W * *", [5]),
        ("0 0 * * fri#2", [12]),
        ("0 0 * * L1,L7", [28, 29]),
        ("0 0 30-2 1 *", [1, 2, 30, 31]),
        ("0 0 ? jan 6-7", [6, 7, 13, 14, 20, 21, 27, 28]),
        ("0 0 * feb *", []),
    ],
)
def test_the_oracle_reads_the_dates_of_january_2024(text: str, dates: list[int]) -> None:
    days = [date(2024, 1, 1) + timedelta(days=number) for number in range(31)]
    assert [day.day for day in days if Text(text).has(day)] == dates


def test_the_oracle_reads_the_times_of_a_day() -> None:
    # crontab(5): "0-23/2" is every other hour, and so is "*/2".
    assert Text("0 0-23/2 * * *").hours == Text("0 */2 * * *").hours == [True, False] * 12
    assert [hour for hour, has in enumerate(Text("0 22-2/3 * * *").hours) if has] == [1, 22]
    assert [minute for minute, has in enumerate(Text("5-5,50/5 * * * *").minutes) if has] == [5, 50, 55]


def test_the_oracle_finds_every_change_of_a_year() -> None:
    found = [datetime.fromtimestamp(change, timezone.utc) for change in changes(pytz.timezone("Africa/Cairo"), 2010)]
    assert [instant.strftime("%m-%d %H:%M") for instant in found] == [
        "04-29 22:00",
        "08-10 21:00",
        "09-09 22:00",
        "09-30 21:00",
    ]
