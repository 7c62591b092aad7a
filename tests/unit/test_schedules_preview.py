"""What a preview says of clock changes, in transcripts."""

from __future__ import annotations

from datetime import datetime

import pytest

from anarchon.durations import from_ms, to_ms
from anarchon.schedules import cron
from anarchon.schedules.preview import preview

GAP = "the clock goes from 2024-03-10 02:00 to 2024-03-10 03:00: "
FOLD = "the clock goes from 2024-11-03 02:00 back to 2024-11-03 01:00: "
APIA = "the clock goes from 2011-12-30 00:00 to 2011-12-31 00:00: "


def seen(text: str, zone: str, after: str, count: int) -> list[tuple[str, list[str]]]:
    schedule = cron(text, zone)
    found = preview(schedule, to_ms(datetime.fromisoformat(after)), count)
    return [(f"{from_ms(p.slot_ms).astimezone(schedule.tzinfo):%m-%d %H:%M %z}", list(p.notes)) for p in found]


def test_preview_without_a_clock_change_has_nothing_to_say() -> None:
    assert seen("0 8 * * 1-5", "Europe/Athens", "2024-07-04T12:00+00:00", 3) == [
        ("07-05 08:00 +0300", []),
        ("07-08 08:00 +0300", []),
        ("07-09 08:00 +0300", []),
    ]


def test_preview_keeps_silent_on_a_change_that_touches_no_time_of_the_text() -> None:
    assert seen("0 8 * * *", "Europe/Athens", "2024-03-30T12:00+00:00", 1) == [("03-31 08:00 +0300", [])]


def test_preview_says_where_a_skipped_time_moves() -> None:
    assert seen("30 2 * * *", "America/New_York", "2024-03-09T12:00+00:00", 2) == [
        ("03-10 03:00 -0400", [GAP + "02:30 does not exist that day and is moved to the first instant after"]),
        ("03-11 02:30 -0400", []),
    ]


def test_preview_says_that_several_skipped_times_make_one_slot() -> None:
    assert seen("0,30 2 * * *", "America/New_York", "2024-03-09T12:00+00:00", 2) == [
        (
            "03-10 03:00 -0400",
            [GAP + "02:00 and 02:30 do not exist that day and are moved to the first instant after"],
        ),
        ("03-11 02:00 -0400", []),
    ]


def test_preview_says_which_times_of_a_wildcard_are_dropped() -> None:
    assert seen("*/15 2 * * *", "America/New_York", "2024-03-09T12:00+00:00", 1) == [
        ("03-11 02:00 -0400", [GAP + "02:00, 02:15, 02:30 and others do not exist that day and are dropped"]),
    ]


def test_preview_says_that_a_repeated_fixed_time_runs_once() -> None:
    assert seen("30 1 * * *", "America/New_York", "2024-11-02T12:00+00:00", 2) == [
        ("11-03 01:30 -0400", []),
        ("11-04 01:30 -0500", [FOLD + "01:30 comes twice and runs the first time only"]),
    ]


def test_preview_says_that_a_wildcard_runs_through_both_hours() -> None:
    assert seen("*/30 1 * * *", "America/New_York", "2024-11-02T12:00+00:00", 4) == [
        ("11-03 01:00 -0400", []),
        ("11-03 01:30 -0400", []),
        ("11-03 01:00 -0500", [FOLD + "01:00 and 01:30 come twice and run each time"]),
        ("11-03 01:30 -0500", []),
    ]


def test_preview_says_that_a_day_left_out_by_decree_is_dropped_not_moved() -> None:
    assert seen("0 12 * * *", "Pacific/Apia", "2011-12-30T00:00+00:00", 1) == [
        ("12-31 12:00 +1400", [APIA + "12:00 does not exist that day and is dropped"]),
    ]


def test_preview_of_six_fields_names_the_seconds() -> None:
    schedule = cron("15 30 2 * * *", "America/New_York", seconds=True)
    (found,) = preview(schedule, to_ms(datetime.fromisoformat("2024-03-09T12:00+00:00")), 1)
    assert found.notes == (GAP + "02:30:15 does not exist that day and is moved to the first instant after",)


def test_preview_of_the_rarest_text_tells_each_change_that_touches_it() -> None:
    found = seen("30 2 10 3 *", "America/New_York", "2018-04-01T00:00+00:00", 7)
    moved = [slot for slot, notes in found if notes]
    assert moved == ["03-10 03:00 -0400", "03-10 03:00 -0400"], "10 March was a day of change in 2019 and in 2024"


@pytest.mark.parametrize("count", [1, 3])
def test_preview_gives_the_slots_of_the_schedule(count: int) -> None:
    schedule = cron("5 4 * * *", "UTC")
    found = [p.slot_ms for p in preview(schedule, 0, count)]
    slot_ms, expected = 0, []
    for _ in range(count):
        slot_ms = schedule.next_after(slot_ms)
        expected.append(slot_ms)
    assert found == expected
