"""The oracle finds each kind of fault, and takes no reason that is none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from anarchon import ConfigurationError, MemoryBackend, RunRecord, Scheduler
from anarchon.testing import Judgement, Ran, SlotOracle

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
SLOTS = [START + timedelta(seconds=10 * number) for number in range(4)]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ran(slot: float, begin: float, end: float | None, fence: int, **facts: Any) -> Ran:
    facts = {"attempt": 1, "trigger": "scheduled", "instance_id": "a", **facts}
    return Ran("sync", at(slot), fence=fence, started_at=at(begin), ended_at=None if end is None else at(end), **facts)


def all_well() -> list[Ran]:
    return [ran(slot, slot + 0.1, slot + 2, 1 + number) for number, slot in enumerate((0, 10, 20, 30))]


def record(
    slot: float, status: str = "success", attempt: int = 1, found: float | None = None, **facts: Any
) -> RunRecord:
    end = at(slot + 2 if found is None else found)
    return RunRecord("sync", at(slot), str(slot), attempt, "scheduled", status, "a", 1, at(slot), end, 2.0, **facts)


def judge(log: Iterable[Ran], slots: list[datetime] = SLOTS, options: Any = None, **facts: Any) -> Judgement:
    given = {"jitter": "0s", "max_late": "5s", "lease": "3s", **(options or {})}
    return SlotOracle("100ms").expect("sync", slots, **given).judge(log, **facts)


def moments(times: Any) -> Any:
    """One instant, or spans, of so many seconds."""
    return [(at(begin), at(end)) for begin, end in times] if isinstance(times, list) else at(times)


def kinds(found: Judgement) -> list[tuple[str, float]]:
    return [(fault.kind, (fault.slot - START).total_seconds()) for fault in found.faults]


def records_of(log: list[Ran]) -> dict[str, list[RunRecord]]:
    return {"sync": [record((one.slot - START).total_seconds(), attempt=one.attempt) for one in log]}


def test_where_every_slot_ran_once_nothing_is_found() -> None:
    found = judge(all_well(), records=records_of(all_well()))
    assert (found.faults, found.slots, found.ran) == ([], 4, 4)
    assert (dict(found.explained), dict(found.attempts)) == ({}, {1: 4})


def test_a_scheduler_tells_what_is_due() -> None:
    scheduler = Scheduler(MemoryBackend(), max_attempts=1).every("sync", "10s", print).cron("daily", "@daily", print)
    found = SlotOracle.of(scheduler, at(0), at(30)).judge(all_well())
    assert [(str(fault.kind), fault.job) for fault in found.faults] == [("missed", "daily")]
    assert found.slots == 5


# -- missed


def test_a_slot_without_a_run_is_missed() -> None:
    assert kinds(judge(all_well()[:1] + all_well()[2:])) == [("missed", 10)]


def test_a_fault_says_which_slot_of_which_job_in_a_sentence() -> None:
    (fault,) = judge(all_well()[:-1]).faults
    assert str(fault) == (
        "sync 2026-03-01T00:00:30.000Z missed: no handler was called for it, and nothing was in the way."
    )


def test_a_slot_may_be_missed_while_an_older_run_goes_on() -> None:
    log = [ran(0, 0.1, 12, 1), *all_well()[2:]]
    found = judge(log)
    assert (kinds(found), dict(found.explained)) == ([], {"busy": 1})


def test_under_allow_an_older_run_is_no_reason() -> None:
    assert kinds(judge([ran(0, 0.1, 12, 1), *all_well()[2:]], options={"overlap": "allow"})) == [("missed", 10)]


def test_a_run_that_was_over_long_before_is_no_reason() -> None:
    assert kinds(judge([ran(0, 0.1, 9.5, 1), *all_well()[2:]])) == [("missed", 10)]


def test_a_newer_run_is_no_reason() -> None:
    log = [*all_well()[:1], ran(20, 20, 22, 2), *all_well()[3:]]
    assert kinds(judge(log, options={"jitter": "9950ms", "max_late": "20s"})) == [("missed", 10)]


def test_a_manual_run_is_in_the_way_whenever_it_was_asked_for() -> None:
    log = [*all_well()[:1], ran(10.05, 10, 22, 2, trigger="manual"), all_well()[3]]
    assert dict(judge(log, options={"jitter": "1s"}).explained) == {"busy": 2}


def test_a_run_is_in_the_way_no_longer_than_until_another_began() -> None:
    log = [ran(0, 0.1, 0.2, 1, instance_id="cut"), ran(1, 1, 1.2, 2), ran(3, 3, 3.2, 3)]
    slots = [at(number) for number in range(4)]
    cut_off = {"cut": [(at(0.2), at(1))]}
    assert kinds(judge(log, slots, cut_off=cut_off)) == [("missed", 2)]
    found = judge([log[0], ran(1, 3, 3.2, 3, trigger="takeover", attempt=2)], slots, cut_off=cut_off)
    assert dict(found.explained) == {"busy": 2}


def test_a_dead_holder_is_in_the_way_until_its_lease_is_over() -> None:
    log = [ran(0, 0.1, None, 1, instance_id="dead"), *all_well()[2:]]
    assert kinds(judge(log, died={"dead": at(8)})) == []
    assert kinds(judge(log, died={"dead": at(4)})) == [("missed", 10)]


def test_a_slot_may_be_missed_while_nobody_could_have_asked_for_it() -> None:
    log = all_well()[:1] + all_well()[2:]
    found = judge(log, away=[(at(9), at(16))])
    assert (kinds(found), dict(found.explained)) == ([], {"away": 1})


def test_a_store_that_came_back_in_time_is_no_reason() -> None:
    log = all_well()[:1] + all_well()[2:]
    assert kinds(judge(log, options={"max_late": "10s"}, away=[(at(9), at(12))])) == [("missed", 10)]


def test_the_last_slot_is_closed_when_the_next_would_be_due() -> None:
    for end, wanted in [(34, [("missed", 30)]), (36, [])]:
        assert kinds(judge(all_well()[:3], options={"max_late": "30s"}, away=[(at(29), at(end))])) == wanted


def test_two_times_away_make_one() -> None:
    log = all_well()[:1] + all_well()[2:]
    assert kinds(judge(log, away=[(at(12), at(16)), (at(9), at(12))])) == []


@pytest.mark.parametrize(
    ("started", "reason"),
    [
        ({"a": 0, "b": 10.1}, {"died": {"a": 10}}),
        ({"a": 0, "b": 10.1}, {"cut_off": {"a": [(9, 16)]}}),
        ({"a": 0, "b": 0}, {"cut_off": {"a": [(9, 16)], "b": [(10, 11)]}}),
        ({"b": 10.1}, {}),
    ],
    ids=["died", "cut off", "one cut off, and one that waits to ask again", "there was nobody"],
)
def test_a_slot_may_be_missed_where_nobody_who_was_there_could_ask_for_it(
    started: dict[str, float], reason: dict[str, Any]
) -> None:
    reason = {what: {name: moments(times) for name, times in named.items()} for what, named in reason.items()}
    log = all_well()[:1] + all_well()[2:]
    found = judge(log, started={name: at(seconds) for name, seconds in started.items()}, **reason)
    assert (kinds(found), dict(found.explained)) == ([], {"away": 1})


@pytest.mark.parametrize(
    "reason",
    [
        {"died": {"a": 10.2}},
        {"died": {"a": 9}},
        {"cut_off": {"a": [(10.2, 16)], "b": [(9, 16)]}},
    ],
    ids=["died later", "the other was there", "cut off later"],
)
def test_who_was_there_in_time_must_have_asked(reason: dict[str, Any]) -> None:
    reason = {what: {name: moments(times) for name, times in named.items()} for what, named in reason.items()}
    log = all_well()[:1] + all_well()[2:]
    assert kinds(judge(log, started={"a": at(0), "b": at(0)}, **reason)) == [("missed", 10)]


def test_who_has_a_handler_that_went_on_after_its_timeout_does_not_ask() -> None:
    log = [ran(0, 0.1, 12, 1, told="timeout"), *all_well()[2:]]
    facts: dict[str, Any] = {"options": {"timeout": "2s"}, "started": {"a": at(0)}}
    assert dict(judge(log, **facts).explained) == {"away": 1}
    facts["started"]["b"] = at(0)
    assert kinds(judge(log, **facts)) == [("missed", 10)]


def test_a_dead_instance_keeps_no_run_in_the_way_for_longer_than_its_lease() -> None:
    log = [ran(0, 0.1, 2, 1, instance_id="dead"), *all_well()[3:]]
    gone = {"cut_off": {"dead": [(at(2), at(99))]}, "died": {"dead": at(2)}}
    assert kinds(judge(log, **gone)) == [("missed", 10), ("missed", 20)]


def test_a_slot_whose_holder_died_before_it_began_is_explained_by_its_record() -> None:
    log = all_well()[:1] + all_well()[2:]
    found = judge(log, records={"sync": [*records_of(log)["sync"], record(10, "lost")]})
    assert (kinds(found), dict(found.explained)) == ([], {"never-begun": 1})


def test_a_grant_that_nobody_heard_of_is_in_the_way_until_it_is_found() -> None:
    log = [*all_well()[:1], *all_well()[3:]]
    records = {"sync": [*records_of(log)["sync"], record(10, "lost", found=20.05)]}
    assert dict(judge(log, records=records).explained) == {"never-begun": 1, "busy": 1}
    records = {"sync": [*records_of(log)["sync"], record(10, "lost", found=15)]}
    assert kinds(judge(log, records=records)) == [("missed", 20)]


def test_a_grant_that_was_heard_of_late_is_in_the_way_until_its_holder_could_tell_the_store() -> None:
    log = [*all_well()[:1], ran(30, 30.1, 32, 4)]
    records = {"sync": [*records_of(log)["sync"], record(10, "interrupted", found=11)]}
    assert kinds(judge(log, records=records)) == [("missed", 20)]
    found = judge(log, records=records, cut_off={"a": [(at(10.5), at(16))]})
    assert dict(found.explained) == {"never-begun": 1, "busy": 1}
    found = judge(log[:1], SLOTS[:3], records=records, cut_off={"a": [(at(10.5), at(16))]})
    assert dict(found.explained) == {"never-begun": 1, "busy": 1}


def test_a_run_whose_end_could_not_be_told_is_in_the_way_until_it_was() -> None:
    log = [ran(0, 0.1, 8, 1, instance_id="cut"), *all_well()[2:]]
    assert kinds(judge(log, cut_off={"cut": [(at(7), at(9.5))]})) == []
    assert kinds(judge(log, cut_off={"other": [(at(7), at(9.5))]})) == [("missed", 10)]


# -- repeated, not due


def test_an_attempt_that_began_twice_is_repeated() -> None:
    log = [*all_well(), ran(10, 15, 16, 9, instance_id="b")]
    assert ("repeated", 10) in kinds(judge(log))


def test_more_attempts_than_are_allowed_are_repeated() -> None:
    log = all_well()[:3] + [ran(30, 30 + n, None, 4 + n, attempt=1 + n, instance_id=f"{n}") for n in range(3)]
    died = {f"{n}": at(30.5 + n) for n in range(3)}
    assert kinds(judge(log, options={"max_attempts": 2}, died=died)) == [("repeated", 30)]
    assert kinds(judge(log, options={"max_attempts": 3}, died=died)) == []


def test_an_attempt_that_was_told_to_stop_uses_up_none() -> None:
    log = [*all_well()[:3], ran(30, 30, 30.5, 4, told="stop"), ran(30, 31, 32, 5, attempt=2)]
    assert kinds(judge(log, options={"max_attempts": 1})) == []


def test_an_attempt_after_a_success_is_repeated() -> None:
    log = [*all_well(), ran(30, 33, 34, 5, attempt=2)]
    assert kinds(judge(log, records=records_of(all_well()) | {})) == [("repeated", 30), ("unrecorded", 30)]
    lost = {"sync": [record(30, lease_lost=True), record(30, attempt=2), *map(record, (0, 10, 20))]}
    assert kinds(judge(log, records=lost)) == []


def test_an_attempt_after_one_that_ended_by_itself_is_repeated() -> None:
    log = [*all_well(), ran(30, 34, 35, 5, attempt=2, instance_id="b")]
    assert kinds(judge(log)) == [("repeated", 30)]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, {"died": {"a": at(32.05)}}),
        ({}, {"paused": {"a": [(at(32), at(33))]}}),
        ({}, {"cut_off": {"a": [(at(31), at(32))]}}),
        ({}, {"away": [(at(31), at(32.1))]}),
        ({"told": "stop"}, {}),
        ({"told": "lease-lost"}, {}),
    ],
    ids=["it died", "it stood still", "it was cut off", "the store was away", "told to stop", "lease lost"],
)
def test_an_end_that_could_not_be_told_may_be_followed_by_an_attempt(
    facts: dict[str, Any], reason: dict[str, Any]
) -> None:
    log = [*all_well()[:3], ran(30, 30.1, 32, 4, **facts), ran(30, 34, 35, 5, attempt=2, instance_id="b")]
    assert kinds(judge(log, **reason)) == []


def test_who_was_cut_off_later_could_have_told_its_end() -> None:
    log = [*all_well()[:3], ran(30, 30.1, 32, 4), ran(30, 34, 35, 5, attempt=2, instance_id="b")]
    assert kinds(judge(log, cut_off={"a": [(at(32.2), at(36))]})) == [("repeated", 30)]
    assert kinds(judge(log, cut_off={"a": [(at(30), at(31.8))]})) == [("repeated", 30)]


def test_who_died_later_could_have_told_its_end() -> None:
    log = [*all_well()[:3], ran(30, 30.1, 32, 4), ran(30, 34, 35, 5, attempt=2, instance_id="b")]
    assert kinds(judge(log, died={"a": at(33)})) == [("repeated", 30)]


def test_a_run_of_no_slot_is_not_due() -> None:
    log = [*all_well()[:2], ran(15, 15, 16, 8), *[ran(s, s + 0.1, s + 1, s) for s in (20, 30)]]
    assert kinds(judge(log)) == [("not-due", 15)]


def test_a_manual_run_is_due_when_it_is_asked_for() -> None:
    log = [*all_well()[:2], ran(15, 15, 16, 8, trigger="manual"), *[ran(s, s + 0.1, s + 1, s) for s in (20, 30)]]
    assert kinds(judge(log)) == []


@pytest.mark.parametrize("kept", ["lost", "failed"])
def test_an_attempt_that_ended_by_itself_is_repeated_whatever_is_kept_of_the_two(kept: str) -> None:
    log = [*all_well(), ran(30, 34, 35, 5, attempt=2, instance_id="b")]
    records = {"sync": [*map(record, (0, 10, 20)), record(30, kept), record(30, attempt=2)]}
    assert kinds(judge(log, records=records)) == [("repeated", 30)]
    assert kinds(judge(log, records=records, paused={"a": [(at(32), at(33))]})) == []


# -- overlapping, early, unfenced


def test_a_run_that_began_before_an_older_one_was_over_overlaps() -> None:
    log = [ran(0, 0.1, 12, 1), *all_well()[1:]]
    assert kinds(judge(log)) == [("overlapping", 10)]
    assert kinds(judge(log, options={"overlap": "allow"})) == []


def test_a_run_overlaps_though_one_that_was_granted_before_it_began_after_the_older_one_was_over() -> None:
    log = [ran(0, 0.1, 6, 1), *all_well()[1:], ran(4, 4, 5, 9, trigger="manual")]
    assert kinds(judge(log)) == [("overlapping", 4)] * 4


def test_attempts_of_one_run_overlap_even_under_allow() -> None:
    log = [ran(0, 0.1, 6, 1), ran(0, 4, 5, 2, attempt=2), *[ran(s, s + 0.1, s + 1, s) for s in (10, 20, 30)]]
    assert kinds(judge(log, options={"overlap": "allow"})) == [("overlapping", 0)]


def test_a_manual_run_overlaps_like_any_other() -> None:
    log = [*all_well()[:2], ran(11, 11, 13, 3, trigger="manual"), *[ran(s, s + 0.1, s + 1, s) for s in (20, 30)]]
    assert kinds(judge(log)) == [("overlapping", 11)]


@pytest.mark.parametrize(
    "older",
    [
        dict(told="lease-lost"),
        dict(instance_id="paused"),
    ],
    ids=["it was told", "it stood still"],
)
def test_who_lost_the_lease_may_be_at_work_a_while(older: dict[str, Any]) -> None:
    log = [ran(0, 0.1, 14, 1, **older), *all_well()[1:]]
    assert kinds(judge(log, paused={"paused": [(at(5), at(13))]})) == []


def test_who_was_told_to_stop_may_lose_the_lease_besides() -> None:
    log = [ran(0, 0.1, 14, 1, told="stop", instance_id="cut"), *all_well()[1:]]
    assert kinds(judge(log, cut_off={"cut": [(at(5), at(13))]})) == []
    assert kinds(judge(log)) == [("overlapping", 10)]


def test_a_pause_after_the_next_run_began_is_no_excuse() -> None:
    log = [ran(0, 0.1, 14, 1, instance_id="paused"), *all_well()[1:]]
    assert kinds(judge(log, paused={"paused": [(at(11), at(13))]})) == [("overlapping", 10)]


def test_a_pause_that_was_over_before_the_next_run_began_is_no_excuse() -> None:
    log = [ran(0, 0.1, 14, 1, instance_id="paused"), *all_well()[1:]]
    assert kinds(judge(log, paused={"paused": [(at(5), at(9.5))]})) == [("overlapping", 10)]


def test_who_was_killed_may_have_been_told_before() -> None:
    log = [ran(0, 0.1, None, 1, instance_id="dead"), *all_well()[1:]]
    died = {"dead": at(12)}
    assert kinds(judge(log, died=died)) == [("overlapping", 10)]
    assert kinds(judge(log, died=died, paused={"dead": [(at(3), at(9))]})) == []
    assert kinds(judge(log, died=died, cut_off={"dead": [(at(3), at(9))]})) == []


def test_a_process_that_was_killed_is_at_work_no_more() -> None:
    log = [ran(0, 0.1, None, 1, instance_id="dead"), *all_well()[1:]]
    assert kinds(judge(log, died={"dead": at(5)})) == []
    assert ("overlapping", 10) in kinds(judge(log))


def test_a_handler_over_its_timeout_is_at_work_no_more() -> None:
    log = [ran(0, 0.1, 14, 1), *all_well()[1:]]
    assert kinds(judge(log, options={"timeout": "5s"})) == []


def test_a_run_before_its_slot_is_early() -> None:
    assert kinds(judge([ran(0, -0.5, 1, 1), *all_well()[1:]])) == [("early", 0)]
    assert kinds(judge([ran(0, -0.05, 1, 1), *all_well()[1:]])) == []


def test_a_manual_run_is_never_early() -> None:
    assert kinds(judge([*all_well(), ran(36, 35, 36, 5, trigger="manual")])) == []


def test_a_fence_that_was_given_twice_is_unfenced() -> None:
    log = [*all_well()[:3], ran(30, 30.1, 31, 3)]
    assert kinds(judge(log)) == [("unfenced", 30)]


def test_a_fence_that_does_not_grow_with_the_slots_is_unfenced() -> None:
    log = [*all_well()[:2], ran(20, 20.1, 21, 9), ran(30, 30.1, 31, 8)]
    assert ("unfenced", 20) in kinds(judge(log))


# -- unrecorded


def test_a_run_that_ended_without_a_record_is_unrecorded() -> None:
    records = {"sync": records_of(all_well())["sync"][:2] + records_of(all_well())["sync"][3:]}
    assert kinds(judge(all_well(), records=records)) == [("unrecorded", 20)]


def test_the_record_of_a_dead_holder_may_wait_for_the_next_grant() -> None:
    log = [*all_well()[:3], ran(30, 30.1, None, 4, instance_id="dead")]
    assert kinds(judge(log, records=records_of(log[:3]), died={"dead": at(31)})) == []
    log = [*all_well()[:2], ran(20, 20.1, None, 3, instance_id="dead"), all_well()[3]]
    records = {"sync": [record(slot) for slot in (0, 10, 30)]}
    assert kinds(judge(log, records=records, died={"dead": at(21)})) == [("unrecorded", 20)]


def test_an_attempt_that_nobody_recorded_before_the_next_is_unrecorded() -> None:
    log = [*all_well()[:3], ran(30, 31, 32, 5, attempt=3)]
    records = records_of(log)["sync"]
    assert kinds(judge(log, records={"sync": [*records, record(30, "lost")]})) == [("unrecorded", 30)]
    both = [record(30, "lost"), record(30, "interrupted", attempt=2)]
    assert kinds(judge(log, records={"sync": [*records, *both]})) == []


def test_an_attempt_of_which_only_a_record_tells_is_looked_for_too() -> None:
    records = {"sync": [*records_of(all_well()[:3])["sync"], record(30, "lost", attempt=2)]}
    assert kinds(judge(all_well()[:3], records=records)) == [("unrecorded", 30)]


def test_a_success_that_never_ended_is_unrecorded() -> None:
    log = [*all_well()[:3], ran(30, 30.1, None, 4, instance_id="dead")]
    assert kinds(judge(log, records=records_of(log), died={"dead": at(31)})) == [("unrecorded", 30)]


def test_a_success_of_a_slot_that_did_not_run_is_no_reason() -> None:
    log = all_well()[:3]
    assert kinds(judge(log, records=records_of(all_well()))) == [("missed", 30), ("unrecorded", 30)]


def test_a_success_of_an_attempt_that_did_not_run_is_unrecorded() -> None:
    log = [*all_well()[:3], ran(30, 30.1, None, 4, instance_id="dead")]
    records = {"sync": [*map(record, (0, 10, 20)), record(30, "lost"), record(30, attempt=2)]}
    assert kinds(judge(log, records=records, died={"dead": at(31)})) == [("unrecorded", 30)]


def test_the_records_of_another_time_may_have_another_log() -> None:
    before = [record(-10), *map(record, (0, 10, 20, 30))]
    assert kinds(judge(all_well(), records={"sync": before})) == []


# -- what it is told


@pytest.mark.parametrize("option", [{"overlap": "Skip"}, {"max_attempts": 0}, {"max_attempts": "3"}, {"lease": "0s"}])
def test_an_option_that_no_job_could_have_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be"):
        judge(all_well(), options=option)


@pytest.mark.parametrize("what", ["paused", "cut_off", "away"])
def test_a_span_that_ends_before_it_begins_is_refused(what: str) -> None:
    spans = [(at(2), at(1))]
    with pytest.raises(ConfigurationError, match="ends before it begins"):
        judge(all_well(), **{what: spans if what == "away" else {"a": spans}})


NAIVE = START.replace(tzinfo=None)


@pytest.mark.parametrize("instant", [NAIVE, 1_772_323_200, "2026-03-01", None])
@pytest.mark.parametrize(
    "ask",
    [
        lambda instant: judge([], [instant]),
        lambda instant: judge([], away=[(instant, at(1))]),
        lambda instant: judge([], paused={"a": [(at(0), instant)]}),
        lambda instant: judge([], started={"a": instant}),
        lambda instant: judge([], died={"a": instant}),
        lambda instant: SlotOracle.of(Scheduler(MemoryBackend()), instant, at(1)),
        lambda instant: SlotOracle.of(Scheduler(MemoryBackend()), at(0), instant),
    ],
)
def test_what_is_no_aware_instant_is_refused(ask: Any, instant: Any) -> None:
    with pytest.raises(ConfigurationError, match="An instant must be an aware datetime"):
        ask(instant)


def test_a_job_that_nobody_expects_is_judged_all_the_same() -> None:
    found = SlotOracle().judge([ran(0, 1, 2, 7), ran(0, 3, 4, 7)])
    assert sorted({fault.kind for fault in found.faults}) == ["repeated", "unfenced"]
