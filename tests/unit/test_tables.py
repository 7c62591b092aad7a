"""Tables: one line a row, columns that line up, and nothing that a terminal would obey."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
import pytz

from anarchon import ActiveRun, RunRecord, Scheduler
from anarchon.tables import active_table, history_table, jobs_table, one_line, record_list, table

UTC = timezone.utc
ATHENS = pytz.timezone("Europe/Athens")
SLOT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
RECORD = RunRecord(
    job="sync",
    slot=SLOT,
    run_id="1772344800000",
    attempt=1,
    trigger="scheduled",
    status="success",
    instance_id="web-1",
    fence=7,
    started_at=SLOT + timedelta(seconds=1),
    finished_at=SLOT + timedelta(seconds=3),
    duration=2.0,
)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("A", "BB"), [("long", "x"), ("s", "y")]) == "A     BB\nlong  x\ns     y"


def test_a_wide_sign_takes_two_columns_and_an_accent_none() -> None:
    lines = table(("A", "B"), [("日本", "x"), ("e\N{COMBINING ACUTE ACCENT}abc", "y"), ("abcd", "z")]).splitlines()
    assert lines == ["A     B", "日本  x", "e\N{COMBINING ACUTE ACCENT}abc  y", "abcd  z"]


def test_the_last_column_is_cut_where_the_line_would_be_too_wide() -> None:
    lines = table(("A", "B"), [("abc", "x" * 100)], width=40).splitlines()
    assert lines[1] == "abc  " + "x" * 32 + "..."
    assert len(lines[1]) == 40


def test_the_last_column_keeps_twenty_signs_however_narrow_the_screen() -> None:
    assert table(("A", "B"), [("a" * 50, "x" * 100)], width=40).splitlines()[1].split() == ["a" * 50, "x" * 17 + "..."]


def test_wide_signs_are_cut_at_their_width() -> None:
    assert table(("A", "B"), [("a", "日" * 40)], width=30).splitlines()[1] == "a  " + "日" * 12 + "..."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand  more", "two lines and more"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("null\x00", r"null\x00"),
        ("turned \N{RIGHT-TO-LEFT OVERRIDE}", r"turned \u202e"),
        ("half \udc80", r"half \udc80"),
    ],
)
def test_a_text_is_one_line_that_no_terminal_obeys(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_history_shows_instants_in_the_zone_and_errors_on_one_line() -> None:
    failed = replace(RECORD, status="failed", error="ValueError: first\nsecond", duration=0.25)
    header, first, second = history_table([RECORD, failed], ATHENS).splitlines()
    assert header.split() == "SLOT ATTEMPT TRIGGER STATUS STARTED DURATION INSTANCE FENCE ERROR".split()
    assert first.split() == "2026-03-01 08:00:00 EET 1 scheduled success 08:00:01 2.000s web-1 7".split()
    assert second.endswith("ValueError: first second")
    assert "0.250s" in second


def test_a_repeated_hour_is_told_apart_by_the_zones_name() -> None:
    summer = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    text = history_table([replace(RECORD, slot=slot) for slot in (summer, summer + timedelta(hours=1))], ATHENS)
    assert "2026-10-25 03:30:00 EEST" in text
    assert "2026-10-25 03:30:00 EET" in text


def test_a_start_on_another_day_than_the_slot_shows_its_day() -> None:
    assert "2026-03-02 08:00:00" in history_table([replace(RECORD, started_at=SLOT + timedelta(days=1))], ATHENS)


def test_a_lost_lease_stands_beside_the_status() -> None:
    assert "success (lease lost)" in history_table([replace(RECORD, lease_lost=True)], UTC)


def test_a_long_run_is_shown_to_the_second() -> None:
    assert " 1h2m5s " in history_table([replace(RECORD, duration=3725.4)], UTC)


def test_an_error_is_cut_to_the_screen() -> None:
    text = history_table([replace(RECORD, error="x" * 4000)], UTC, width=150)
    assert max(map(len, text.splitlines())) == 150


def test_what_is_running_shows_the_lease_that_is_left() -> None:
    run = ActiveRun("sync", SLOT, "1", 2, "takeover", "web-1", 7, SLOT, 12.5)
    _, live, over = active_table([run, replace(run, lease_left=0.0)], UTC).splitlines()
    assert live.split() == "2026-03-01 06:00:00 UTC 2 takeover 06:00:00 12.500s web-1 7".split()
    assert " over " in over


def test_jobs_show_their_schedule_and_the_next_run_in_their_zone() -> None:
    scheduler = Scheduler("memory://", timezone="Europe/Athens")
    scheduler.every("sync", "10s", lambda: None, lease="1m30s")
    scheduler.cron("digest", "0 8 * * 1-5", lambda: None, timeout="10m", overlap="allow")
    header, sync, digest = jobs_table(scheduler.jobs()).splitlines()
    assert header.split() == "JOB SCHEDULE NEXT RUN LEASE TIMEOUT OVERLAP".split()
    assert sync.split()[:3] == ["sync", "every", "10s"]
    assert sync.split()[-4:] == ["EET" if " EET " in sync else "EEST", "1m30s", "none", "skip"]
    assert "cron 0 8 * * 1-5" in digest
    assert " 08:00:00 " in digest
    assert digest.split()[-3:] == ["30s", "10m", "allow"]


def test_a_record_is_listed_field_by_field() -> None:
    lines = record_list(replace(RECORD, status="failed", error="ValueError: no"), ATHENS).splitlines()
    assert lines[0] == "job       sync"
    assert lines[1] == "slot      2026-03-01 08:00:00 EET"
    assert lines[2] == "attempt   1 (scheduled)"
    assert lines[-1] == "error     ValueError: no"
