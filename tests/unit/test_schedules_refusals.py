"""What a cron text may not say. Each refusal names the field, what was expected, and what came."""

from __future__ import annotations

import zoneinfo

import pytest

from anarchon.errors import ConfigurationError
from anarchon.schedules import cron


def refusal(text: object, timezone: object = "UTC", seconds: object = False) -> str:
    with pytest.raises(ConfigurationError) as refused:
        cron(text, timezone, seconds)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("60 * * * *", "minute: expected a number from 0 to 59, not '60'"),
        ("* 24 * * *", "hour: expected a number from 0 to 23, not '24'"),
        ("* * 0 * *", "day of month: expected a number from 1 to 31, not '0'"),
        ("* * 32 * *", "day of month: expected a number from 1 to 31, not '32'"),
        ("* * * 13 *", "month: expected a number from 1 to 12 or a name from jan to dec, not '13'"),
        ("* * * 0 *", "month: expected a number from 1 to 12 or a name from jan to dec, not '0'"),
        ("* * * * 8", "day of week: expected a number from 0 to 7 or a name from sun to sat, not '8'"),
        ("5-60 * * * *", "minute: expected a number from 0 to 59, not '60'"),
        ("60/5 * * * *", "minute: expected a number from 0 to 59, not '60'"),
        ("0 0 32W * *", "day of month: expected a number from 1 to 31, not '32'"),
        ("0 0 * * 8#1", "day of week: expected a number from 0 to 7"),
        ("0 0 * * L8", "day of week: expected a number from 0 to 7"),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_field(text: str, says: str) -> None:
    assert refusal(text).startswith(f"Cron text {text!r}: {says}")


def test_a_second_out_of_range_is_refused_with_its_field() -> None:
    assert "second: expected a number from 0 to 59, not '60'" in refusal("60 * * * * *", seconds=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("* * * janury *", "month: expected a number from 1 to 12 or a name from jan to dec, not 'janury'. Did you"),
        ("* * * * monday", "not 'monday'. Did you mean 'mon'?"),
        ("* * * * mon-foo", "not 'foo'."),
        ("* * * mon *", "month: expected a number from 1 to 12 or a name from jan to dec, not 'mon'"),
        ("noon * * * *", "minute: expected a number from 0 to 59, not 'noon'."),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(text: str, says: str) -> None:
    assert says in refusal(text)


@pytest.mark.parametrize("text", ["*/0 * * * *", "5/0 * * * *", "1-9/0 * * * *", "*/00 * * * *"])
def test_a_step_of_zero_is_refused(text: str) -> None:
    assert "minute: expected a step of at least 1" in refusal(text)


def test_a_step_longer_than_its_field_is_refused_since_it_cannot_mean_what_it_says() -> None:
    assert "minute: expected a step of at most 60" in refusal("*/90 * * * *")
    assert "hour: expected a step of at most 24" in refusal("0 */36 * * *")
    assert "day of week: expected a step of at most 7" in refusal("0 0 * * */14")


@pytest.mark.parametrize(
    "text",
    [
        "-5 * * * *",
        "+5 * * * *",
        "5- * * * *",
        "1-2-3 * * * *",
        "*-5 * * * *",
        "**  * * * *",
        "*/ * * * *",
        "*/* * * * *",
        "1.5 * * * *",
        "0x5 * * * *",
        "1;2 * * * *",
        "? * * * *",
        "L * * * *",
        "5W * * * *",
        "5#1 * * * *",
        "٥ * * * *",
        "５ * * * *",
        "5\x00 * * * *",
        "5\u200b * * * *",
        "²  * * * *",
    ],
)
def test_what_is_no_number_range_or_step_is_refused_with_its_field(text: str) -> None:
    assert ": minute: expected a number from 0 to 59" in refusal(text)


@pytest.mark.parametrize("text", [", * * * *", "1, * * * *", ",1 * * * *", "1,,2 * * * *"])
def test_an_empty_item_in_a_list_is_refused(text: str) -> None:
    assert "minute: expected something before and after each comma" in refusal(text)


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("  ", 0), ("*", 1), ("* * * *", 4), ("* * * * * *", 6), ("* * * * * * *", 7)]
)
def test_a_wrong_count_of_fields_is_refused_with_the_fields_expected(text: str, count: int) -> None:
    assert f"expected 5 fields (minute, hour, day of month, month, day of week), not {count}" in refusal(text)


def test_six_fields_without_seconds_are_not_guessed_at() -> None:
    assert "say seconds=True" in refusal("0 0 8 * * 1-5")


def test_five_fields_with_seconds_are_not_guessed_at() -> None:
    message = refusal("0 8 * * 1-5", seconds=True)
    assert "expected 6 fields (second, minute, hour, day of month, month, day of week), not 5" in message
    assert "the second comes first" in message


def test_a_year_is_refused_as_a_field_that_there_is_not() -> None:
    assert "no field for the year" in refusal("0 0 8 * * 1-5 2030")


@pytest.mark.parametrize("character", ["\u00a0", "\u3000", "\u2003", "\x0b", "\x1c"])
def test_only_plain_white_space_parts_fields(character: str) -> None:
    refusal(f"0{character}8 * * 1-5")


def test_a_strange_space_is_pointed_out_by_name() -> None:
    assert "NO-BREAK SPACE is not a space between fields" in refusal("0\u00a08 * * 1-5")


@pytest.mark.parametrize("text", ["@reboot", "@REBOOT"])
def test_reboot_is_refused_since_it_names_no_time(text: str) -> None:
    assert "@reboot names no time" in refusal(text)


@pytest.mark.parametrize("text", ["@every 5m", "@every"])
def test_every_as_an_alias_points_to_the_other_way_to_register(text: str) -> None:
    assert "register the job with every()" in refusal(text)


def test_an_unknown_alias_is_refused_with_the_nearest_right_one() -> None:
    assert "Did you mean '@weekly'?" in refusal("@weakly")


def test_an_alias_stands_alone() -> None:
    assert "@daily stands alone" in refusal("@daily 5")


@pytest.mark.parametrize("item", ["R", "H", "h", "r/5", "H/15", "R(0-29)", "H(0-29)/10", "h(0-5),3"])
def test_random_and_hashed_values_are_refused_since_instances_would_differ(item: str) -> None:
    message = refusal(f"{item} * * * *")
    assert ": minute: " in message
    assert "instances would differ" in message


@pytest.mark.parametrize("day", ["LW", "L-3", "1W,15W", "1-5W", "W15", "15W,L", "W", "LL"])
def test_other_dialects_days_of_month_are_refused_with_ours(day: str) -> None:
    message = refusal(f"0 0 {day} * *")
    assert ": day of month: expected" in message
    assert "15W" in message or "L for the last day" in message


@pytest.mark.parametrize("day", ["5L", "L", "fri#", "#2", "mon-fri#2", "L1-5"])
def test_other_dialects_days_of_week_are_refused_with_ours(day: str) -> None:
    assert "fri#2 for the second Friday of the month, or L5 for the last" in refusal(f"0 0 * * {day}")


@pytest.mark.parametrize("day", ["fri#0", "fri#6", "1#99999"])
def test_a_weekday_of_the_month_beyond_the_fifth_is_refused(day: str) -> None:
    assert "day of week: expected a number from 1 to 5 after the #" in refusal(f"0 0 * * {day}")


@pytest.mark.parametrize("days", ["1,fri#2", "L5,1", "1-3,5#1"])
def test_plain_and_numbered_days_of_the_week_are_not_mixed(days: str) -> None:
    assert "day of week: expected either plain days or days with # and L" in refusal(f"0 0 * * {days}")


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 30-31 feb *",
        "0 0 31 2 */2",
        "0 0 1W * */6",
        "0 0 */31 2 1#5",
    ],
)
def test_a_day_that_no_year_has_is_refused(text: str) -> None:
    assert "day of month: its months and days of the week have no such day" in refusal(text)


def test_a_time_that_every_jump_skips_is_refused_in_that_zone_alone() -> None:
    # The second Sunday of March, at two: wildcard, so it follows the wall clock, which never shows it in New York.
    text = "*/30 2 8-14 3 */7"
    new_york = zoneinfo.ZoneInfo("America/New_York")
    assert "minute and hour: on its days the clock of America/New_York skips that time" in refusal(text, new_york)
    assert cron(text, zoneinfo.ZoneInfo("Europe/Athens")).text == text


@pytest.mark.parametrize("text", [None, 5, b"* * * * *", ["*"] * 5, object()])
def test_what_is_no_text_is_refused(text: object) -> None:
    assert refusal(text).startswith("A cron text must be text such as '0 8 * * 1-5', not ")


@pytest.mark.parametrize("text", ["0," * 300 + "0 * * * *", "*" * 1_000_000, "9" * 100_000 + " * * * *"])
def test_a_text_that_is_over_long_is_refused_unread(text: str) -> None:
    message = refusal(text)
    assert message.startswith("A cron text may have 600 characters at most, not ")
    assert len(message) < 100


def test_the_longest_text_that_says_something_is_taken() -> None:
    def full(first: int, last: int) -> str:
        return ",".join(str(number) for number in range(first, last + 1))

    text = " ".join([full(0, 59), full(0, 59), full(0, 23), full(1, 31), full(1, 12), full(0, 7)])
    assert len(text) <= 600
    assert cron(text, seconds=True).next_after(0) == 1_000


def test_a_long_number_is_refused_and_shown_shortened() -> None:
    message = refusal("9" * 500 + " * * * *")
    assert "minute: expected a number from 0 to 59" in message
    assert len(message) < 300


@pytest.mark.parametrize("seconds", [None, 1, "yes"])
def test_seconds_is_true_or_false(seconds: object) -> None:
    assert "seconds must be True or False" in refusal("* * * * *", seconds=seconds)


def test_an_unknown_zone_is_refused() -> None:
    assert "Did you mean 'Europe/Athens'?" in refusal("* * * * *", "Europe/Athen")


@pytest.mark.parametrize("character", ["{", "}", "\x00", "'", "\ud800", "\U0001f984", "%"])
def test_no_character_makes_anything_but_a_refusal(character: str) -> None:
    refusal(f"{character}5 * * * * {character}")
