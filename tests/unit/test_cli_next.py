"""``anarchon next``: slots to come, and its refusals."""

from __future__ import annotations

import json

import pytest

from anarchon.cli import main

NEW_YORK = ["--timezone", "America/New_York", "--after", "2024-03-09T12:00Z"]


def test_next_shows_slots_and_says_where_a_clock_change_moves_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "30 2 * * *", "-n", "2", *NEW_YORK]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "    (the clock goes from 2024-03-10 02:00 to 2024-03-10 03:00: 02:30 does not exist that day and is moved to"
        " the first instant after)",
        "Sun 2024-03-10 03:00:00 EDT (-0400)",
        "Mon 2024-03-11 02:30:00 EDT (-0400)",
    ]


def test_next_gives_json_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "30 2 * * *", "-n", "1", "--json", *NEW_YORK]) == 0
    (slot,) = json.loads(capsys.readouterr().out)
    assert slot["slot"] == "2024-03-10T07:00:00.000Z"
    assert slot["local"] == "2024-03-10T03:00:00-04:00"
    assert len(slot["notes"]) == 1


def test_next_begins_now_and_gives_ten_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "@hourly"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert all(line.endswith(":00:00 UTC (+0000)") for line in lines)


def test_next_takes_six_fields_where_it_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "30 0 8 * * *", "--seconds", "-n", "1"]) == 0
    assert "08:00:30 UTC" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["61 2 * * *"], "minute: expected a number from 0 to 59"),
        (["* * * * * *"], "seconds"),
        (["@reboot"], "@reboot"),
        (["0 0 30 2 *"], "day of month"),
        (["* * * * *", "--timezone", "Europe/Athen"], "'Europe/Athens'"),
    ],
)
def test_next_refuses_what_registering_refuses(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["next", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--after", "tomorrow"], "expected an instant such as"),
        (["--after", "2024-03-09T12:00"], "expected an offset"),
        (["-n", "0"], "expected a whole number from 1 to 1000000"),
    ],
)
def test_next_refuses_arguments_it_cannot_read(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["next", "@daily", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_next_says_so_where_no_slot_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "@yearly", "--after", "9999-06-01T00:00Z"]) == 2
    assert "No slot of '@yearly'" in capsys.readouterr().err
