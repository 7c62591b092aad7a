"""``every``: multiples of an interval since the epoch, whoever asks and from when."""

from __future__ import annotations

import random
from datetime import timedelta, timezone

import pytest

from anarchon.errors import ConfigurationError
from anarchon.schedules import Schedule, every

DAY_MS = 86_400_000


def test_slots_are_multiples_of_the_interval_since_the_epoch() -> None:
    schedule = every("15m")
    assert schedule.next_after(0) == 900_000
    assert schedule.next_after(899_999) == 900_000
    assert schedule.newest_at(899_999) == 0


def test_next_after_a_slot_is_the_slot_behind_it() -> None:
    assert every("10s").next_after(20_000) == 30_000


def test_newest_at_a_slot_is_that_slot() -> None:
    assert every("10s").newest_at(20_000) == 20_000


def test_slots_before_the_epoch_lie_on_the_same_line() -> None:
    schedule = every("10s")
    assert schedule.newest_at(-1) == -10_000
    assert schedule.next_after(-10_001) == -10_000
    assert schedule.count(-20_000, 10_000) == 3


def test_two_registrations_of_one_interval_have_the_same_slots_from_any_instant() -> None:
    chance = random.Random(7)
    one, other = every("7s"), every(timedelta(seconds=7))
    for _ in range(500):
        instant = chance.randrange(10**13)
        assert one.next_after(instant) == other.next_after(instant)
        assert one.next_after(instant) - one.newest_at(instant) == 7_000
        assert one.newest_at(instant) <= instant < one.next_after(instant)


def test_count_takes_in_the_later_end_and_leaves_out_the_earlier() -> None:
    schedule = every("10s")
    assert schedule.count(0, 10_000) == 1
    assert schedule.count(10_000, 19_999) == 0
    assert schedule.count(9_999, 30_000) == 3


def test_count_of_nothing_is_zero_when_the_ends_are_the_wrong_way_round() -> None:
    assert every("10s").count(50_000, 0) == 0


def test_count_over_a_thousand_years_is_calculated() -> None:
    assert every("10ms").count(0, 365_250 * DAY_MS) == 365_250 * DAY_MS // 10


@pytest.mark.parametrize(
    ("interval", "text", "interval_ms"),
    [
        ("10s", "10s", 10_000),
        (" 1h30m ", "1h30m", 5_400_000),
        ("90m", "90m", 5_400_000),
        (timedelta(minutes=90), "1h30m", 5_400_000),
        (2, "2s", 2_000),
        (0.25, "250ms", 250),
        ("10ms", "10ms", 10),
    ],
)
def test_text_is_as_registered_or_the_shortest_that_says_the_same(
    interval: str | float | timedelta, text: str, interval_ms: int
) -> None:
    schedule = every(interval)
    assert (schedule.text, schedule.interval_ms) == (text, interval_ms)


def test_an_interval_describes_itself_in_utc() -> None:
    schedule: Schedule = every("1m")
    assert (schedule.kind, schedule.zone_name, schedule.tzinfo) == ("every", "UTC", timezone.utc)


def test_an_interval_is_an_immutable_value() -> None:
    schedule = every("1m")
    assert schedule == every("1m") != every("2m")
    assert len({schedule, every("1m"), every("60s")}) == 2
    with pytest.raises(AttributeError):
        schedule.interval_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize("interval", ["0s", 0, "9ms", 0.001, timedelta(0)])
def test_an_interval_too_short_to_be_claimed_is_refused(interval: str | float | timedelta) -> None:
    with pytest.raises(ConfigurationError, match="interval must be at least 10ms"):
        every(interval)


@pytest.mark.parametrize("interval", ["", "soon", "-1s", -1, None, True, float("nan"), [10]])
def test_what_is_no_duration_is_refused_as_the_interval(interval: object) -> None:
    with pytest.raises(ConfigurationError, match="^interval must"):
        every(interval)  # type: ignore[arg-type]
