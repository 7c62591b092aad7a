"""From every single second about a change of the clock, the slots are those of Debian's cron."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
import pytz
from debian_cron import HOUR, MEMORY, MINUTE, Text, Watched, looks, wall_at

from anarchon.durations import from_ms
from anarchon.schedules import cron

#: Each as the first instant (UTC) of the new offset.
CHANGES = [
    ("Europe/Athens", "2024-03-31T01:00"),
    ("Europe/Athens", "2024-10-27T01:00"),
    ("America/New_York", "2024-03-10T07:00"),
    ("America/New_York", "2024-11-03T06:00"),
    ("Australia/Lord_Howe", "2024-10-05T15:30"),
    ("Australia/Lord_Howe", "2024-04-06T15:00"),
    ("Asia/Beirut", "2024-03-30T22:00"),
    ("Asia/Beirut", "2024-10-26T21:00"),
    ("Africa/Cairo", "2024-04-25T22:00"),
    ("Africa/Cairo", "2024-10-31T21:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00"),
    ("America/Sao_Paulo", "2019-02-17T02:00"),
    ("Africa/Casablanca", "2024-04-14T02:00"),
    ("Africa/Casablanca", "2024-03-10T02:00"),
    ("Antarctica/Troll", "2024-03-31T01:00"),
    ("Antarctica/Troll", "2024-10-27T01:00"),
    ("Antarctica/Casey", "2011-10-27T18:00"),
    ("Antarctica/Casey", "2010-03-04T15:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Pacific/Kwajalein", "1993-08-21T12:00"),
]
TEXTS = ["0-59/20 {} * * *", "*/20 {} * * *", "10 * * * *"]
TEXTS_WITH_SECONDS = ["*/7 59,0,1 {} * * *", "50,5 * * * * *"]


@pytest.mark.parametrize(("name", "at"), CHANGES)
def test_every_second_about_a_change_is_followed_by_debian_cron_s_slot(name: str, at: str) -> None:
    zone = pytz.timezone(name)
    change = round(datetime.fromisoformat(at).replace(tzinfo=timezone.utc).timestamp())
    before, after = wall_at(change - 1, zone) + 1, wall_at(change, zone)
    assert before != after
    # The hours that are skipped or repeated, and those beside them. What is repeated ends as long after the change.
    hours = ",".join(
        sorted({str((wall + beside) // HOUR % 24) for wall in (before, after) for beside in (-1, 0, HOUR)})
    )
    repeated = max(0, before - after) % (12 * HOUR)
    begin, end = change - 2 * HOUR, change + repeated + 2 * HOUR
    for texts, seconds, every in ((TEXTS, False, MINUTE), (TEXTS_WITH_SECONDS, True, 1)):
        seen = list(looks(zone, begin - MEMORY, end, every))
        for text in (text.format(hours) for text in texts):
            schedule, watched = cron(text, zone, seconds), Watched(Text(text, seconds), seen, begin)
            for second in {*range(change - 45, change + 45), *range(change + repeated - 45, change + repeated + 45)}:
                # Most instants are no full second.
                for instant in (second * 1_000, second * 1_000 + 1 + second % 999):
                    came = schedule.newest_at(instant), schedule.next_after(instant)
                    expected = watched.newest_at(instant), watched.next_after(instant)
                    assert came == expected, f"cron({text!r}, {name!r}, {seconds=}) about {from_ms(instant)}"
