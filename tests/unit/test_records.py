"""Records, and the text that stores keep of them."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import pytz
from hypothesis import given
from hypothesis import strategies as st

from anarchon.durations import from_ms
from anarchon.records import (
    ActiveRun,
    ClaimRequest,
    Event,
    JobInfo,
    Mode,
    RunRecord,
    decode_record,
    encode_record,
    granted,
    iso,
    shorten_error,
)

AT_EIGHT = datetime(2026, 3, 1, 8, tzinfo=timezone.utc)


def record(**changes: Any) -> RunRecord:
    values: dict[str, Any] = dict(
        job="digest",
        slot=AT_EIGHT,
        run_id="1772352000000",
        attempt=2,
        trigger="takeover",
        status="failed",
        instance_id="web-1:4711:x7",
        fence=1772352003000,
        started_at=AT_EIGHT + timedelta(seconds=3),
        finished_at=AT_EIGHT + timedelta(seconds=4, milliseconds=250),
        duration=1.25,
        error="ValueError: no such customer",
        lease_lost=True,
    )
    return RunRecord(**{**values, **changes})


texts = st.text(st.characters(), max_size=40)
instants = st.integers(-(10**13), 10**14).map(from_ms)


@given(
    st.builds(
        RunRecord,
        job=texts,
        slot=instants,
        run_id=texts,
        attempt=st.integers(1, 2**31),
        trigger=texts,
        status=texts,
        instance_id=texts,
        fence=st.integers(0, 2**53),
        started_at=instants,
        finished_at=instants,
        duration=st.integers(0, 10**10).map(lambda ms: ms / 1000),
        error=st.none() | texts.map(shorten_error),
        lease_lost=st.booleans(),
    )
)
def test_a_record_is_read_back_as_it_was_written(written: RunRecord) -> None:
    text = encode_record(written)
    assert decode_record(text) == written
    assert decode_record(text.encode()) == written


def test_a_record_is_kept_as_plain_json_of_milliseconds() -> None:
    assert json.loads(encode_record(record())) == {
        "job": "digest",
        "slot_ms": 1772352000000,
        "run_id": "1772352000000",
        "attempt": 2,
        "trigger": "takeover",
        "status": "failed",
        "instance_id": "web-1:4711:x7",
        "fence": 1772352003000,
        "started_at_ms": 1772352003000,
        "finished_at_ms": 1772352004250,
        "duration_ms": 1250,
        "error": "ValueError: no such customer",
        "lease_lost": True,
    }


def test_a_record_is_kept_in_ascii_which_every_store_can_hold() -> None:
    text = encode_record(record(job="σύνοψη", instance_id="\ud800\x00"))
    assert text.isascii()
    assert "\x00" not in text


def test_two_equal_records_are_kept_as_the_same_text() -> None:
    assert encode_record(record()) == encode_record(dataclasses.replace(record(attempt=9), attempt=2))


def test_fields_from_a_newer_version_are_passed_over() -> None:
    values = json.loads(encode_record(record())) | {"region": "eu", "steps": [{"n": 1}], "version": 3}
    assert decode_record(json.dumps(values)) == record()


def test_a_status_and_a_trigger_from_a_newer_version_are_kept_as_they_are() -> None:
    values = json.loads(encode_record(record())) | {"status": "postponed", "trigger": "webhook"}
    assert decode_record(json.dumps(values)) == record(status="postponed", trigger="webhook")


def test_fields_that_a_record_can_do_without_have_defaults() -> None:
    values = json.loads(encode_record(record()))
    for name in ("error", "lease_lost", "duration_ms"):
        del values[name]
    assert decode_record(json.dumps(values)) == record(error=None, lease_lost=False, duration=1.25)


NEEDED = [
    "job",
    "slot_ms",
    "run_id",
    "attempt",
    "trigger",
    "status",
    "instance_id",
    "fence",
    "started_at_ms",
    "finished_at_ms",
]


@pytest.mark.parametrize("name", NEEDED)
def test_a_record_without_a_field_that_it_needs_cannot_be_read(name: str) -> None:
    values = json.loads(encode_record(record()))
    del values[name]
    assert decode_record(json.dumps(values)) is None


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, [], {}, "x" * 3, 10**30])
def test_a_record_with_nonsense_in_a_field_is_read_or_passed_over_but_never_raises(name: str, value: object) -> None:
    values = json.loads(encode_record(record())) | {name: value}
    decoded = decode_record(json.dumps(values))
    number = name.endswith("_ms") or name in ("attempt", "fence")
    readable = (isinstance(value, int) and not name.endswith("_ms")) if number else isinstance(value, str)
    assert (decoded is not None) is readable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "5",
        '"text"',
        "[]",
        "[1, 2]",
        "{}",
        "NaN",
        "Infinity",
        b"\xff\xfe\x00",
        b"",
        b"\x80\x04\x95",
        "[" * 100_000,
        "9" * 10_000,
        '{"slot_ms": NaN, "started_at_ms": 1e999, "finished_at_ms": 1}',
        '{"a": "\\ud800"}',
    ],
)
def test_what_is_no_record_is_passed_over(text: str | bytes) -> None:
    assert decode_record(text) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_passed_over(raw: bytes) -> None:
    assert decode_record(raw) is None


@given(st.data())
def test_a_record_with_one_character_changed_is_read_or_passed_over(data: st.DataObject) -> None:
    text = encode_record(record())
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    decoded = decode_record(changed)
    assert decoded is None or isinstance(decoded, RunRecord)


def test_a_short_error_is_kept_as_it_is() -> None:
    assert shorten_error("ValueError: ά, 🦄 and\nmore") == "ValueError: ά, 🦄 and\nmore"
    assert shorten_error("") == ""


def test_an_error_of_exactly_four_kibibytes_is_kept_and_one_more_is_cut() -> None:
    assert shorten_error("x" * 4096) == "x" * 4096
    cut = shorten_error("x" * 4097)
    assert len(cut) == 4096
    assert cut.endswith("x... (cut)")


@pytest.mark.parametrize("character", ["x", "é", "€", "🦄", "\ud800", "\x00", "\udcff"])
def test_an_error_of_any_characters_is_cut_to_four_kibibytes(character: str) -> None:
    for before in range(4):
        cut = shorten_error("a" * before + character * 100_000)
        assert 4096 - 3 <= len(cut.encode()) <= 4096
        assert cut.endswith("... (cut)")


def test_nul_and_lone_surrogates_are_replaced() -> None:
    assert shorten_error("a\x00b\ud800c\udcffd") == "a\ufffdb?c?d"


@given(st.text(st.characters(), max_size=5_000))
def test_a_shortened_error_fits_is_clean_and_is_not_shortened_again(text: str) -> None:
    short = shorten_error(text)
    raw = short.encode("utf-8")  # no lone surrogate is left
    assert len(raw) <= 4096
    assert b"\x00" not in raw
    assert shorten_error(short) == short


def test_a_record_is_written_with_its_error_cut() -> None:
    decoded = decode_record(encode_record(record(error="é\x00\ud800" * 10_000)))
    assert decoded is not None
    assert decoded.error is not None
    assert len(decoded.error.encode()) <= 4096


def test_the_attempt_and_fence_that_were_granted_take_the_place_of_those_sent() -> None:
    assert granted(record(), 3, 99) == record(attempt=3, fence=99)


def test_a_record_shows_itself_in_values_that_json_takes() -> None:
    values = record().to_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["slot"] == "2026-03-01T08:00:00.000Z"
    assert values["finished_at"] == "2026-03-01T08:00:04.250Z"
    assert values["duration"] == 1.25
    assert list(values) == [field.name for field in dataclasses.fields(RunRecord)]


def test_a_run_in_progress_shows_itself_in_values_that_json_takes() -> None:
    run = ActiveRun("digest", AT_EIGHT, "r", 1, "manual", "web-1", 7, AT_EIGHT + timedelta(seconds=1), 12.5)
    values = run.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert (values["slot"], values["started_at"]) == ("2026-03-01T08:00:00.000Z", "2026-03-01T08:00:01.000Z")


def test_a_job_shows_its_next_run_with_its_zone_s_offset() -> None:
    next_run = AT_EIGHT.astimezone(pytz.timezone("Europe/Athens"))
    info = JobInfo("digest", "cron", "0 10 * * *", "Europe/Athens", next_run, {"lease": 30.0})
    assert info.to_dict()["next_run"] == "2026-03-01T10:00:00+02:00"
    assert dataclasses.replace(info, next_run=None).to_dict()["next_run"] is None


ACTIVE = ActiveRun("digest", AT_EIGHT, "r", 1, "manual", "web-1", 7, AT_EIGHT + timedelta(seconds=1), 12.5)
JOB = JobInfo("digest", "cron", "0 10 * * *", "Europe/Athens", AT_EIGHT, {"lease": 30.0, "timeout": None})


@pytest.mark.parametrize(
    "value",
    [record(), record(error=None, lease_lost=True), ACTIVE, JOB, dataclasses.replace(JOB, next_run=None)],
    ids=lambda value: type(value).__name__,
)
def test_what_was_carried_as_json_is_read_back_as_it_was(value: RunRecord | ActiveRun | JobInfo) -> None:
    carried = json.loads(json.dumps(value.to_dict()))
    assert type(value).from_dict(carried) == value
    # A newer version may tell more.
    assert type(value).from_dict({**carried, "mood": "good"}) == value


def test_a_next_run_is_read_back_with_its_offset() -> None:
    next_run = AT_EIGHT.astimezone(pytz.timezone("Europe/Athens"))
    read = JobInfo.from_dict(dataclasses.replace(JOB, next_run=next_run).to_dict()).next_run
    assert read is not None
    assert (read, read.utcoffset()) == (next_run, timedelta(hours=2))


@pytest.mark.parametrize("kind", [RunRecord, ActiveRun, JobInfo])
@pytest.mark.parametrize("wrong", [None, [], {}, "surely not", 7, [{}]], ids=str)
def test_what_is_none_of_them_is_refused_with_one_kind_of_error(kind: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="That is no"):
        kind.from_dict(wrong)


@pytest.mark.parametrize(
    ("value", "name", "wrong"),
    [
        (record(), "job", 1),
        (record(), "slot", "soon"),
        (record(), "finished_at", None),
        (record(), "attempt", "one"),
        (record(), "duration", {}),
        (record(), "error", 5),
        (ACTIVE, "started_at", 10**400),
        (ACTIVE, "lease_left", None),
        (ACTIVE, "instance_id", []),
        (JOB, "name", None),
        (JOB, "options", 3),
        (JOB, "next_run", "tomorrow"),
    ],
)
def test_a_wrong_field_is_refused_with_one_kind_of_error(value: Any, name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match="That is no"):
        type(value).from_dict({**value.to_dict(), name: wrong})


def test_an_instant_without_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an offset"):
        RunRecord.from_dict({**record().to_dict(), "slot": "2026-03-01T08:00:00.000"})


def test_to_dict_gives_a_copy() -> None:
    kept = record()
    kept.to_dict()["job"] = "other"
    assert kept == record()


def test_an_instant_is_shown_in_utc_with_milliseconds() -> None:
    assert iso(pytz.timezone("Europe/Athens").localize(datetime(2026, 7, 1, 12, 0, 0, 1_999))) == (
        "2026-07-01T09:00:00.001Z"
    )


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().status = "success"  # type: ignore[misc]


def test_a_claim_is_manual_by_its_trigger_alone() -> None:
    asked = ClaimRequest("j", 0, "r", "t", "i", 30_000, "skip", 3, 60_000, Mode.START, "scheduled", 200)
    assert not asked.manual
    assert dataclasses.replace(asked, trigger="manual").manual


def test_two_events_that_differ_in_the_exception_alone_are_equal() -> None:
    one = Event("failure", "digest", "web-1", exception=ValueError("x"))
    assert one == dataclasses.replace(one, exception=ValueError("x"))
    assert one != dataclasses.replace(one, reason="stop")
