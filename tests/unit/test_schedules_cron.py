"""What a cron text means on days without a clock change, and what holds for every schedule."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest
from croniter import croniter
from dateutil import tz as dateutil_tz  # type: ignore[import-untyped]

from anarchon.durations import from_ms, to_ms
from anarchon.errors import ConfigurationError
from anarchon.schedules import Schedule, cron


def at(text: str) -> int:
    return to_ms(datetime.fromisoformat(text).replace(tzinfo=timezone.utc))


def following(schedule: Schedule, instant: str, count: int) -> list[str]:
    """The next slots in UTC, short: month-day and time."""
    found, now = [], at(instant)
    for _ in range(count):
        now = schedule.next_after(now)
        found.append(from_ms(now).strftime("%m-%d %H:%M"))
    return found


# From Monday, 2024-01-01 00:00 (UTC), itself left out.
@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("* * * * *", ["01-01 00:01", "01-01 00:02"]),
        ("*/20 * * * *", ["01-01 00:20", "01-01 00:40", "01-01 01:00"]),
        ("5,10 * * * *", ["01-01 00:05", "01-01 00:10", "01-01 01:05"]),
        ("58-1 * * * *", ["01-01 00:01", "01-01 00:58", "01-01 00:59", "01-01 01:00"]),
        ("50/5 * * * *", ["01-01 00:50", "01-01 00:55", "01-01 01:50"]),
        ("59/15 * * * *", ["01-01 00:59", "01-01 01:59"]),
        ("10-40/15 * * * *", ["01-01 00:10", "01-01 00:25", "01-01 00:40", "01-01 01:10"]),
        ("5-5 * * * *", ["01-01 00:05", "01-01 01:05"]),
        ("05 08 * * *", ["01-01 08:05", "01-02 08:05"]),
        ("*/60 * * * *", ["01-01 01:00", "01-01 02:00"]),
        ("0 22-2/2 * * *", ["01-01 02:00", "01-01 22:00", "01-02 00:00"]),
        ("0 22-2/3 * * *", ["01-01 01:00", "01-01 22:00", "01-02 01:00"]),
        ("0 3-3 * * *", ["01-01 03:00", "01-02 03:00"]),
        ("0 8 * * 1-5", ["01-01 08:00", "01-02 08:00", "01-03 08:00", "01-04 08:00", "01-05 08:00", "01-08 08:00"]),
        ("0 0 * * 0", ["01-07 00:00", "01-14 00:00"]),
        ("0 0 * * 7", ["01-07 00:00", "01-14 00:00"]),
        ("0 0 * * sun", ["01-07 00:00", "01-14 00:00"]),
        ("0 0 * * SUN-Sun", ["01-07 00:00", "01-14 00:00"]),
        ("0 0 * * 6-7", ["01-06 00:00", "01-07 00:00", "01-13 00:00"]),
        ("0 0 * * 0-7", ["01-02 00:00", "01-03 00:00"]),
        ("0 0 * * 7-1", ["01-07 00:00", "01-08 00:00", "01-14 00:00"]),
        ("0 0 * * fri-mon/2", ["01-05 00:00", "01-07 00:00", "01-12 00:00"]),
        ("0 0 * * 7/3", ["01-03 00:00", "01-06 00:00", "01-07 00:00"]),
        ("0 0 1 * *", ["02-01 00:00", "03-01 00:00"]),
        ("0 0 31 * *", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("0 0 30-2 * *", ["01-02 00:00", "01-30 00:00", "01-31 00:00", "02-01 00:00"]),
        ("0 0 L * *", ["01-31 00:00", "02-29 00:00", "03-31 00:00", "04-30 00:00"]),
        ("0 0 15,l * *", ["01-15 00:00", "01-31 00:00", "02-15 00:00", "02-29 00:00"]),
        ("0 0 1-31,L * *", ["01-02 00:00", "01-03 00:00"]),
        ("0 0 6W * *", ["01-05 00:00", "02-06 00:00", "03-06 00:00", "04-05 00:00"]),
        ("0 0 1W * *", ["02-01 00:00", "03-01 00:00", "04-01 00:00", "05-01 00:00", "06-03 00:00"]),
        ("0 0 31w 3,6 *", ["03-29 00:00", "06-28 00:00"]),
        ("0 0 1 apr-jan/3 *", ["04-01 00:00", "07-01 00:00", "10-01 00:00", "01-01 00:00"]),
        ("0 0 1 nov-feb *", ["02-01 00:00", "11-01 00:00", "12-01 00:00", "01-01 00:00"]),
        ("0 0 1 DEC/3 *", ["12-01 00:00", "12-01 00:00"]),
        ("0 0 1 jan-jan *", ["01-01 00:00", "01-01 00:00"]),
        ("0 0 * * fri#2", ["01-12 00:00", "02-09 00:00"]),
        ("0 0 * * mon#1,3#5", ["01-31 00:00", "02-05 00:00", "03-04 00:00"]),
        ("0 0 * * 7#1", ["01-07 00:00", "02-04 00:00"]),
        ("0 0 * * L5", ["01-26 00:00", "02-23 00:00"]),
        ("0 0 * * l7,Lmon", ["01-28 00:00", "01-29 00:00", "02-25 00:00", "02-26 00:00"]),
        ("0 0 ? * mon", ["01-08 00:00", "01-15 00:00"]),
        ("0 0 8 * ?", ["01-08 00:00", "02-08 00:00"]),
        ("@hourly", ["01-01 01:00", "01-01 02:00"]),
        ("@daily", ["01-02 00:00", "01-03 00:00"]),
        ("@midnight", ["01-02 00:00", "01-03 00:00"]),
        ("@weekly", ["01-07 00:00", "01-14 00:00"]),
        ("@Monthly", ["02-01 00:00", "03-01 00:00"]),
        ("@yearly", ["01-01 00:00", "01-01 00:00"]),
        ("@annually", ["01-01 00:00", "01-01 00:00"]),
        (" 0\t8 *  * \r\n 1 ", ["01-01 08:00", "01-08 08:00"]),
    ],
)
def test_a_text_means_what_the_dialect_says(text: str, slots: list[str]) -> None:
    assert following(cron(text), "2024-01-01T00:00", len(slots)) == slots


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        # Both restricted: either will do.
        ("0 0 13 * 5", ["01-05 00:00", "01-12 00:00", "01-13 00:00", "01-19 00:00"]),
        ("0 0 L * mon#2", ["01-08 00:00", "01-31 00:00", "02-12 00:00"]),
        ("0 0 15W * sat", ["01-06 00:00", "01-13 00:00", "01-15 00:00", "01-20 00:00"]),
        ("0 0 1-31 * 0", ["01-02 00:00", "01-03 00:00"]),
        ("0 0 31 2 1", ["02-05 00:00", "02-12 00:00"]),
        ("0 0 31 12 0", ["12-01 00:00", "12-08 00:00", "12-15 00:00", "12-22 00:00", "12-29 00:00", "12-31 00:00"]),
        # One begins with a star: both must match.
        ("0 0 */2 * 1", ["01-15 00:00", "01-29 00:00", "02-05 00:00"]),
        ("0 0 1-7 * */7", ["01-07 00:00", "02-04 00:00"]),
        ("0 0 13 * *", ["01-13 00:00", "02-13 00:00"]),
        ("0 0 */10,5 * fri#1", ["01-05 00:00", "03-01 00:00"]),
    ],
)
def test_day_of_month_and_day_of_week_go_together_as_in_debian_s_cron(text: str, slots: list[str]) -> None:
    assert following(cron(text), "2024-01-01T00:00", len(slots)) == slots


def test_a_side_that_never_comes_is_not_looked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = cron("0 0 30 2 1")
    walked = []
    step = croniter._get_next_nearest_diff

    def counting(*args: Any) -> Any:
        walked.append(args)
        return step(*args)

    monkeypatch.setattr(croniter, "_get_next_nearest_diff", staticmethod(counting))
    assert schedule.next_after(at("2024-02-01T00:00")) == at("2024-02-05T00:00")
    assert len(walked) < 100


def test_six_fields_begin_with_the_second() -> None:
    schedule = cron("*/30 59 23 * * *", seconds=True)
    assert schedule.next_after(at("2024-01-01T23:59:00")) == at("2024-01-01T23:59:30")
    assert schedule.next_after(at("2024-01-01T23:59:30")) == at("2024-01-02T23:59:00")
    assert schedule.newest_at(at("2024-01-02T00:00:00")) == at("2024-01-01T23:59:30")


def test_an_alias_stays_as_it_is_where_texts_have_seconds() -> None:
    assert cron("@hourly", seconds=True).next_after(at("2024-01-01T00:00")) == at("2024-01-01T01:00")


def test_milliseconds_beside_a_slot_are_told_apart() -> None:
    schedule, slot = cron("0 8 * * *"), at("2024-01-01T08:00")
    assert schedule.next_after(slot - 1) == slot
    assert schedule.next_after(slot) == slot + 86_400_000
    assert schedule.newest_at(slot) == slot == schedule.newest_at(slot + 1)
    assert schedule.newest_at(slot - 1) == slot - 86_400_000


def test_slots_before_the_epoch_are_found_as_well() -> None:
    schedule = cron("30 12 * * *", "Europe/Athens")
    assert schedule.next_after(at("1950-06-01T00:00")) == at("1950-06-01T10:30")
    assert schedule.newest_at(at("1950-06-01T00:00")) == at("1950-05-31T10:30")


def test_the_wall_clock_is_that_of_the_zone() -> None:
    assert cron("0 8 * * *", "Asia/Kathmandu").next_after(at("2024-01-01T00:00")) == at("2024-01-01T02:15")
    assert cron("0 8 * * *", timezone(timedelta(hours=-5))).next_after(at("2024-01-01T00:00")) == at("2024-01-01T13:00")


def test_a_cron_text_describes_itself_as_it_was_registered() -> None:
    schedule: Schedule = cron(" 0  8 * * MON-fri", "europe/athens")
    assert (schedule.kind, schedule.text, schedule.zone_name) == ("cron", "0 8 * * MON-fri", "Europe/Athens")
    assert schedule.interval_ms is None
    assert schedule.count(0, 86_400_000) is None
    assert cron("@daily").text == "@daily"


@pytest.mark.parametrize(
    ("text", "wildcard"),
    [
        ("* * * * *", True),
        ("*/15 2 * * *", True),
        ("30 */2 * * *", True),
        ("*,5 2 * * *", True),
        ("@hourly", True),
        ("0-59 2 * * *", False),
        ("30 0-23 * * *", False),
        ("5,* 2 * * *", False),
        ("0 8 * * *", False),
        ("@daily", False),
    ],
)
def test_wildcard_is_a_text_whose_minute_or_hour_begins_with_a_star(text: str, wildcard: bool) -> None:
    assert cron(text).wildcard is wildcard


def test_a_star_for_the_second_does_not_make_a_text_wildcard() -> None:
    assert not cron("* 30 3 * * *", seconds=True).wildcard


def test_a_cron_schedule_is_an_immutable_value() -> None:
    one = cron("0 8 * * *", "Europe/Athens")
    assert one == cron("0  8 * * *", "Europe/Athens")
    assert one not in (cron("0 9 * * *", "Europe/Athens"), cron("0 8 * * *", "UTC"), "0 8 * * *")
    assert len({one, cron("0 8 * * *", "Europe/Athens")}) == 1
    with pytest.raises(AttributeError):
        one.text = "0 9 * * *"  # type: ignore[misc]


def test_a_cron_schedule_is_hashable_in_a_zone_that_is_not() -> None:
    zone = dateutil_tz.tzrange("EST", -18_000, "EDT")
    with pytest.raises(TypeError):
        hash(zone)
    assert len({cron("0 8 * * *", zone), cron("0 8 * * *", zone)}) == 1


def test_a_cron_schedule_survives_pickling() -> None:
    schedule = cron("0 8 15W * fri#2", "Europe/Athens")
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule
    assert again.next_after(at("2024-01-01T00:00")) == schedule.next_after(at("2024-01-01T00:00"))


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 29 2 */7", "0 0 */28 2 4#5", "59 23 31 12 *"])
def test_the_rarest_slots_are_found_over_decades(text: str) -> None:
    schedule = cron(text)
    conditions = {
        "0 0 29 2 *": lambda day: (day.month, day.day) == (2, 29),
        "0 0 29 2 */7": lambda day: (day.month, day.day, day.weekday()) == (2, 29, 6),
        "0 0 */28 2 4#5": lambda day: (day.month, day.day, day.weekday()) == (2, 29, 3),
        "59 23 31 12 *": lambda day: (day.month, day.day) == (12, 31),
    }
    days = (date(1970, 1, 1) + timedelta(days=number) for number in range(200 * 365))
    expected = [day for day in days if conditions[text](day)]
    found: list[date] = []
    now = at("1970-01-01T00:00")
    while len(found) < len(expected):
        now = schedule.next_after(now)
        assert schedule.newest_at(now) == now
        found.append(from_ms(now).date())
    assert found == expected


@pytest.mark.parametrize("text", ["* * * * *", "0 0 29 2 *", "0 0 * * fri#2"])
def test_beyond_what_a_datetime_can_tell_there_is_no_slot(text: str) -> None:
    schedule = cron(text, "Europe/Athens")
    for ask, instant in (
        (schedule.next_after, at("9999-12-31T23:59:59")),
        (schedule.next_after, 10**15),
        (schedule.next_after, 10**30),
        (schedule.newest_at, at("0001-01-01T00:00")),
        (schedule.newest_at, -(10**15)),
        (schedule.newest_at, -(10**30)),
    ):
        with pytest.raises(OverflowError):
            ask(instant)


def test_a_clock_set_thousands_of_years_ahead_still_gets_its_slots() -> None:
    schedule = cron("30 12 * * 1", "Europe/Athens")
    assert schedule.next_after(at("9000-01-01T00:00")) == at("9000-01-06T10:30")
    assert schedule.newest_at(at("9000-01-07T00:00")) == at("9000-01-06T10:30")


def test_threads_that_share_a_schedule_get_what_one_alone_gets() -> None:
    schedule = cron("*/7 1-5 * * 1,3,5", "Europe/Athens")
    instants = [at("2024-01-01T00:00") + step * 41_234_567 for step in range(200)]
    expected = [(schedule.next_after(instant), schedule.newest_at(instant)) for instant in instants]
    shared, together = cron("*/7 1-5 * * 1,3,5", "Europe/Athens"), Barrier(6)

    def ask(_: int) -> list[tuple[int, int]]:
        together.wait(30)
        return [(shared.next_after(instant), shared.newest_at(instant)) for instant in instants]

    with ThreadPoolExecutor(6) as pool:
        assert all(found == expected for found in pool.map(ask, range(6)))


ZONES = ["Europe/Athens", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Pacific/Apia", "Africa/Casablanca"]


@pytest.mark.parametrize("seed", range(12))
def test_next_after_and_newest_at_agree_from_every_instant(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        text, zone = random_text(chance), chance.choice(ZONES)
        try:
            schedule = cron(text, zone)
        except ConfigurationError:  # a day that no year has
            continue
        # Half of the windows lie about the days on which these zones change their clocks.
        middle = chance.choice(CHANGES) if chance.random() < 0.5 else at(f"20{chance.randrange(10, 37)}-06-01")
        begin, end = middle - 40 * 3_600_000, middle + 40 * 3_600_000
        about = f"seed {seed}: {text!r} in {zone} from {from_ms(begin)}"
        line = [schedule.newest_at(begin)]
        while line[-1] <= end and len(line) < 300:
            line.append(schedule.next_after(line[-1]))
        for earlier, later in pairwise(line):
            assert earlier < later, about
            for instant in (earlier, later - 1, chance.randrange(earlier, later)):
                assert schedule.newest_at(instant) == earlier, about
                assert schedule.next_after(instant) == later, about


CHANGES = [
    at(day)
    for day in (
        "2024-03-31T01:00",
        "2024-10-27T01:00",
        "2024-03-10T07:00",
        "2024-11-03T06:00",
        "2024-04-06T15:00",
        "2024-10-05T15:30",
        "2024-03-30T22:00",
        "2024-10-26T21:00",
        "2011-12-30T10:00",
        "2024-04-14T02:00",
    )
]


def random_text(chance: random.Random) -> str:
    def item(first: int, last: int) -> str:
        low, high = chance.randint(first, last), chance.randint(first, last)
        return chance.choice([str(low), str(low), f"{low}-{high}", f"{low}-{high}/{chance.randint(1, 5)}"])

    def field(first: int, last: int, stars: float) -> str:
        if chance.random() < stars:
            return chance.choice(["*", f"*/{chance.randint(1, last - first + 1)}"])
        return ",".join(item(first, last) for _ in range(chance.randint(1, 3)))

    days = chance.choice(["*", "*", "*", field(1, 31, 0.3), "L", "15W"])
    weekdays = chance.choice(["*", "*", "*", field(0, 6, 0.3), "sun#1", "L5"])
    return " ".join([field(0, 59, 0.4), chance.choice([field(0, 23, 0.4), "0-4"]), days, "*", weekdays])
