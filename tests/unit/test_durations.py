"""Durations and instants: from what users write to milliseconds, and back."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
import pytz
from hypothesis import given
from hypothesis import strategies as st

from anarchon.durations import format_duration, from_ms, parse_duration, to_ms
from anarchon.errors import ConfigurationError, shown

TEN_YEARS_MS = 3_660 * 86_400_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1m500ms", 60_500),
        ("90m", 5_400_000),
        ("0s", 0),
        ("007s", 7_000),
        ("  10s\n", 10_000),
        (10, 10_000),
        (0, 0),
        (0.25, 250),
        (0.1 + 0.2, 300),
        (1e-3, 1),
        (timedelta(hours=1, milliseconds=1), 3_600_001),
        (timedelta(0), 0),
        ("3660d", TEN_YEARS_MS),
    ],
)
def test_a_duration_is_read_as_milliseconds(value: object, ms: int) -> None:
    read = parse_duration(value, "lease")
    assert read == ms
    assert type(read) is int


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "10",
        "s",
        "10 s",
        "1.5s",
        "-1s",
        "+1s",
        "10S",
        "1s1m",
        "1m1m",
        "1h 30m",
        "10sec",
        "PT10S",
        "10s!",
        "١٠s",
        "１s",
        "1" * 101,
        "9" * 1_000_000 + "s",
        "\x00",
        None,
        True,
        False,
        float("nan"),
        float("inf"),
        float("-inf"),
        b"10s",
        [10],
        Decimal(10),
        datetime(2024, 1, 1),
        object(),
    ],
)
def test_what_is_no_duration_is_refused_with_the_option_s_name(value: object) -> None:
    with pytest.raises(ConfigurationError, match="^lease must be a duration such as '500ms', '10s'") as refused:
        parse_duration(value, "lease")
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("value", [-1, -0.5, timedelta(microseconds=-1), -(10**400)])
def test_a_negative_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="^jitter must not be negative: "):
        parse_duration(value, "jitter")


@pytest.mark.parametrize(
    "value",
    ["3661d", "9" * 90 + "s", 10**9, 1e300, 1.7e308, timedelta.max, 10**400, 10**5_000],
    ids=shown,
)
def test_a_duration_over_ten_years_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="^catch_up must not be over ten years: ") as refused:
        parse_duration(value, "catch_up")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [0.0009, 1e-300, timedelta(microseconds=999)])
def test_a_duration_under_a_millisecond_is_refused_and_not_taken_for_none_at_all(value: object) -> None:
    with pytest.raises(ConfigurationError, match="whole number of milliseconds"):
        parse_duration(value, "timeout")


def test_a_value_whose_repr_fails_is_refused_like_any_other() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(ConfigurationError, match="not <Hostile>"):
        parse_duration(Hostile(), "lease")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (1, "1ms"), (60_000, "1m"), (90_000, "1m30s"), (86_400_000, "1d"), (93_784_005, "1d2h3m4s5ms")],
)
def test_a_duration_is_written_as_short_as_it_can_be(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@given(st.integers(0, TEN_YEARS_MS))
def test_what_is_written_is_read_back(ms: int) -> None:
    assert parse_duration(format_duration(ms), "lease") == ms


@given(st.text(alphabet="0123456789dhms ", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse_duration(text, "lease") >= 0
    except ConfigurationError as refused:
        assert "lease" in str(refused)


def test_an_instant_and_its_milliseconds_are_the_same() -> None:
    instant = datetime(2024, 2, 29, 12, 30, 15, 123_000, tzinfo=timezone.utc)
    assert to_ms(instant) == 1_709_209_815_123
    assert from_ms(1_709_209_815_123) == instant


def test_an_instant_is_told_in_utc_whatever_zone_it_came_in() -> None:
    athens = pytz.timezone("Europe/Athens").localize(datetime(2024, 7, 1, 12))
    assert from_ms(to_ms(athens)) == athens
    assert from_ms(to_ms(athens)).tzinfo is timezone.utc
    assert from_ms(to_ms(athens)).hour == 9


def test_microseconds_are_rounded_down_before_the_epoch_too() -> None:
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=timezone.utc)) == 1
    assert to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)) == -1


def test_milliseconds_make_the_way_there_and_back_unchanged() -> None:
    chance = random.Random(3)
    for _ in range(1_000):
        ms = chance.randrange(-(10**13), 10**14)
        assert to_ms(from_ms(ms)) == ms


def test_a_naive_datetime_is_no_instant() -> None:
    with pytest.raises(TypeError):
        to_ms(datetime(2024, 1, 1))
