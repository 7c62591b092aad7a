"""What docs/schedules.rst says of cron texts is what happens, row by row; and the oracle reads each of them alike."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from itertools import count, islice
from pathlib import Path

import pytest
from debian_cron import DAY, Text

from anarchon.durations import from_ms, to_ms
from anarchon.errors import ConfigurationError
from anarchon.schedules import cron

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedules.rst"
BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)


def rows(*heading: str) -> list[tuple[bool, list[str]]]:
    """The rows of the page's tables that have this heading, each with whether its table is one for seconds."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    borders = [number for number, line in enumerate(lines) if re.fullmatch("=+(  +=+)+", line)]
    found: list[tuple[bool, list[str]]] = []
    for top, below_heading, bottom in zip(borders[::3], borders[1::3], borders[2::3]):
        starts = [column.start() for column in re.finditer("=+", lines[top])]
        table = [
            [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None])]
            for line in lines[top + 1 : below_heading] + lines[below_heading + 1 : bottom]
        ]
        if table.pop(0) != list(heading):
            continue
        seconds = "seconds=True" in lines[top - 2]
        for cells in table:
            if cells[0]:
                found.append((seconds, cells))
            else:  # the row above goes on
                above = found[-1][1]
                above[:] = [f"{begun} {cell}".strip() for begun, cell in zip(above, cells)]
    return [(seconds, [cell.strip("`") for cell in cells]) for seconds, cells in found]


UNDERSTOOD = [(cells[0], seconds, cells[2].split(", ")) for seconds, cells in rows("text", "meaning", "slots")]
REFUSED = [(cells[0], seconds, cells[1]) for seconds, cells in rows("text", "refused with")]


def shown(slot: datetime, seconds: bool) -> str:
    year = "" if slot.year == BEGIN.year else f" {slot.year}"
    return f"{slot:%a} {slot.day} {slot:%b}{year} " + slot.strftime("%H:%M:%S" if seconds else "%H:%M")


@pytest.mark.parametrize(("text", "seconds", "slots"), UNDERSTOOD)
def test_a_text_of_the_page_has_the_slots_that_stand_beside_it(text: str, seconds: bool, slots: list[str]) -> None:
    schedule, now = cron(text, seconds=seconds), to_ms(BEGIN)
    found = []
    for _ in slots:
        now = schedule.next_after(now)
        found.append(shown(from_ms(now), seconds))
    assert found == slots


@pytest.mark.parametrize(("text", "seconds", "slots"), UNDERSTOOD)
def test_the_oracle_reads_a_text_of_the_page_alike(text: str, seconds: bool, slots: list[str]) -> None:
    meant = Text(text, seconds)
    first = (BEGIN.date() - date(1970, 1, 1)).days
    days = (day for day in count(first) if meant.has(date(1970, 1, 1) + timedelta(days=day)))
    walls = (wall for day in days for wall in range(day * DAY, (day + 1) * DAY, meant.every) if meant.matches(wall))
    after = (wall for wall in walls if wall > first * DAY)
    assert [shown(from_ms(wall * 1_000), seconds) for wall in islice(after, len(slots))] == slots


@pytest.mark.parametrize(("text", "seconds", "message"), REFUSED)
def test_a_text_that_the_page_refuses_is_refused_in_those_words(text: str, seconds: bool, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        cron(text, seconds=seconds)
    assert str(refused.value) == f"Cron text {text!r}: {message}"


def test_the_page_shows_the_whole_dialect() -> None:
    shown = {text for text, _, _ in UNDERSTOOD}
    for alias in ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"):
        assert alias in shown
    for part in (",", "-", "/", "#", "L", "W", "?", "mon", "feb", " 0", " 7"):
        assert any(part in text for text in shown - {text for text in shown if text.startswith("@")}), part
    assert {seconds for _, seconds, _ in UNDERSTOOD} == {seconds for _, seconds, _ in REFUSED} == {False, True}
    assert len(UNDERSTOOD) > 40
    assert len(REFUSED) > 30
