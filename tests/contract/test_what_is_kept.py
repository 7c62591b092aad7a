"""History, readers, what is remembered of ended runs and for how long, odd texts, and forgetting a job."""

from __future__ import annotations

import pytest
from harness import Harness

from anarchon.records import DoneReason, Outcome, Verdict, shorten_error

# -- history


def test_history_is_newest_first_and_no_longer_than_asked(store: Harness) -> None:
    for number in (-3, -2, -1, 0):
        store.won(store.slot(number), "a")
        store.finish(store.slot(number), "a")
    slots = [str(store.slot(number)) for number in (0, -1, -2, -3)]
    assert [record.run_id for record in store.backend.history("job", 100)] == slots
    assert [record.run_id for record in store.backend.history("job", 2)] == slots[:2]
    assert store.backend.history("job", 0) == []


def test_history_is_cut_to_the_limit_of_the_run_that_writes(store: Harness) -> None:
    for number in range(-5, 0):
        store.won(store.slot(number), "a", history_limit=5)
        store.finish(store.slot(number), "a")
    assert len(store.history()) == 5
    store.won(store.slot(), "a", history_limit=2)
    assert len(store.history()) == 5
    store.finish(store.slot(), "a")
    assert [record.run_id for record in store.history()] == [str(store.slot()), str(store.slot(-1))]


def test_history_keeps_a_record_for_each_unfinished_run_whatever_its_limit(store: Harness) -> None:
    for name in ("m1", "m2", "m3"):
        grant = store.won(name, name, overlap="allow", history_limit=1)
        store.save_result(name, grant)
    assert [run for run, _, _ in store.story()] == ["m3", "m2", "m1"]
    for name in ("m1", "m2", "m3"):
        store.finish(name, name)
    assert [run for run, _, _ in store.story()] == ["m3"]


def test_saved_result_keeps_to_the_limit_of_the_newest_grant(store: Harness) -> None:
    first = store.won(store.slot(-1), "a", history_limit=9)
    store.finish(store.slot(-1), "a")
    store.won(store.slot(), "b", history_limit=1)
    store.finish(store.slot(), "b")
    store.save_result(store.slot(-1), first)
    assert store.story() == [(str(store.slot()), 1, "success")]


# -- readers


def test_readers_change_nothing(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow", lease_ms=1_000)
    store.won(store.slot(), "b", overlap="allow")
    store.won("m", "m", overlap="allow")
    store.finish("m", "m")
    store.advance(1_000)
    store.step(-3_600_000)
    before = store.dump()
    for job in ("job", "unknown"):
        store.backend.time(job)
        store.backend.active(job)
        store.backend.history(job, 10)
    assert store.dump() == before


def test_job_that_nobody_ever_ran_reads_as_empty(store: Harness) -> None:
    assert store.backend.active("job") == []
    assert store.backend.history("job", 10) == []


def test_time_is_the_stores(store: Harness) -> None:
    assert store.backend.time("job") == store.slot()
    store.advance(1_234)
    assert store.backend.time("job") == store.slot() + 1_234
    store.step(-3_600_000)
    assert store.backend.time("another") == store.slot() + 1_234 - 3_600_000


def test_active_lists_newest_fence_first(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow", lease_ms=1_000)
    store.won(store.slot(), "b", overlap="allow", lease_ms=9_000)
    store.advance(1_000)
    store.won("m", "m", overlap="allow", lease_ms=5_000)
    assert store.unfinished() == [("m", 1, 5.0), (str(store.slot()), 1, 8.0), (str(store.slot(-1)), 1, 0.0)]


# -- what is remembered of ended runs


def end_many(store: Harness, count: int) -> None:
    for number in range(count):
        name = f"filler-{store.now}-{number}"
        store.won(name, "f", overlap="allow")
        store.finish(name, "f")


@pytest.mark.parametrize("lease_ms, remembered_ms", [(30_000, 600_000), (400_000, 800_000)])
def test_end_is_remembered_for_ten_minutes_and_for_two_leases(
    store: Harness, lease_ms: int, remembered_ms: int
) -> None:
    finished, released = "m", store.slot()
    store.won(released, "r", lease_ms=lease_ms, overlap="allow")
    store.won(finished, "f", lease_ms=lease_ms, overlap="allow")
    store.release(released, "r")
    store.finish(finished, "f")
    end_many(store, 40)
    store.advance(remembered_ms - 1)
    end_many(store, 40)
    assert store.finish(finished, "f") is Verdict.OK
    assert store.heartbeat(finished, "f") is Verdict.FINISHED
    assert store.claim(finished, "g").done is DoneReason.FINISHED
    assert store.release(released, "r") is Verdict.OK
    assert store.heartbeat(released, "r") is Verdict.FINISHED
    assert store.claim(released, "r", overlap="allow").outcome is Outcome.NONE


def test_newest_ends_are_remembered_whatever_their_age(store: Harness) -> None:
    names = [f"m{number}" for number in range(16)]
    for name in names:
        store.won(name, name)
        store.finish(name, name)
    store.advance(7 * 86_400_000)
    assert all(store.finish(name, name) is Verdict.OK for name in names)
    assert all(store.claim(name, "x").done is DoneReason.FINISHED for name in names)
    # What the next end makes a store forget is the oldest at the most.
    store.won("m16", "m16")
    store.finish("m16", "m16")
    assert all(store.finish(name, name) is Verdict.OK for name in names[1:])


def test_end_that_was_forgotten_is_lost_to_its_holder_and_starts_nothing(store: Harness) -> None:
    store.won("m", "a")
    store.finish("m", "a")
    store.advance(86_400_000)
    end_many(store, 200)  # a store may forget a few at a time
    assert store.finish("m", "a") is Verdict.LOST
    assert store.heartbeat("m", "a") is Verdict.LOST
    assert store.claim("m", "b").outcome is Outcome.LATE


def test_unfinished_runs_and_latest_are_never_forgotten(store: Harness) -> None:
    store.won(store.slot(), "a", overlap="allow")
    store.advance(366 * 86_400_000)
    end_many(store, 50)
    assert store.claim(store.slot(-1), "b", window_ms=400 * 86_400_000).done is DoneReason.PASSED
    assert store.claim(store.slot(), "a", overlap="allow").attempt == 1


# -- texts


NAMES = [
    "with:colons/slashes.and-dashes_and|bars",
    "quote'\"`;--\\%*?[]()<>",
    "\u039a\u03b1\u03b8\u03b1\u03c1\u03b9\u03c3\u03bc\u03cc\u03c2-\u03b7\u03bc\u03ad\u03c1\u03b1\u03c2",
    "\u65e5\u5831\U0001f5d2\ufe0fe\u0301",
    "\u0645\u0647\u0645\u0629",
    "n" * 200,
    "\U0001d518" * 200,
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_any_letters_are_kept_as_they_are(store: Harness, name: str) -> None:
    slot = store.slot()
    store.won(slot, "a", job=name, instance_id=name, overlap="allow")
    assert store.won(name, name, job=name, instance_id=name, overlap="allow").attempt == 1
    assert store.won(name, name, job=name).attempt == 1
    assert store.heartbeat(name, name, job=name) is Verdict.OK
    assert [(run.job, run.run_id, run.instance_id) for run in store.backend.active(name)] == [
        (name, name, name),
        (name, str(slot), name),
    ]
    holder = store.claim(slot, "b", job=name).holder
    assert holder is not None and holder.instance_id == name
    assert store.finish(name, name, job=name, instance_id=name, error=name) is Verdict.OK
    assert store.heartbeat(name, name, job=name) is Verdict.FINISHED
    (record,) = store.backend.history(name, 10)
    assert (record.job, record.run_id, record.instance_id, record.error) == (name, name, name, name)
    assert store.backend.active("job") == store.backend.history("job", 10) == []


@pytest.mark.parametrize("odd", ["a\nb\r\tc", "\x1f\x1e|,;:\x00\x7f", "  spaces  ", '{"json": [1]}', "1e308", "nil"])
def test_instances_and_tokens_of_any_bytes_are_kept_as_they_are(store: Harness, odd: str) -> None:
    slot = store.slot()
    store.won(slot, odd, instance_id=odd, lease_ms=1_000)
    store.advance(1_000)
    assert store.heartbeat(slot, odd, lease_ms=1_000) is Verdict.OK
    store.advance(1_000)
    store.won(slot, "b", instance_id=odd)
    assert store.claim(slot, odd).outcome is Outcome.RUNNING
    assert store.history()[0].instance_id == store.backend.active("job")[0].instance_id == odd
    store.release(slot, "b")
    assert store.claim(slot, odd).outcome is Outcome.NONE
    store.won(slot, odd + "c")
    store.release(slot, odd + "c")
    assert store.heartbeat(slot, odd + "c") is Verdict.FINISHED


ERRORS = [
    None,
    "",
    "ValueError: plain",
    "\x00 NUL, \x1b escapes, \r\n lines \ud800 half a letter \ufffe",
    '"}],{"status":"success","attempt":9}',
    "x" * 4_096,
    "x" * 4_097,
    "\u20ac" * 1_366,
    "xx" + "\U0001d518" * 5_000,
    "\x00" * 10_000,
]


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_errors_of_any_bytes_are_kept_to_four_kibibytes(store: Harness, error: str | None) -> None:
    kept = None if error is None else shorten_error(error)
    store.won("m", "m")
    store.finish("m", "m", status="failed", error=error)
    store.won(store.slot(), "a")
    store.release(store.slot(), "a", error=error)
    grant = store.won(store.slot(), "b")
    store.save_result(store.slot(), grant, error=error)
    assert [record.error for record in store.history()] == [kept] * 3
    assert len((kept or "").encode()) <= 4_096


def test_one_token_on_two_runs_is_two_holders(store: Harness) -> None:
    store.won("m1", "t", overlap="allow")
    store.won("m2", "t", overlap="allow")
    store.finish("m1", "t")
    assert store.heartbeat("m2", "t") is Verdict.OK
    assert store.heartbeat("m1", "t") is Verdict.FINISHED


def test_run_ids_that_begin_alike_are_kept_apart(store: Harness) -> None:
    for run in ("m", "m:1", "m1", "m:1:1", ":", "m|1"):
        store.won(run, "t", overlap="allow")
        store.finish(run, "t")
    assert [run for run, _, _ in store.story()] == ["m|1", ":", "m:1:1", "m1", "m:1", "m"]


# -- jobs


def test_jobs_do_not_know_of_each_other(store: Harness) -> None:
    first, second = "job", "job:2"
    store.won(store.slot(), "a", job=first)
    assert store.won(store.slot(-1), "a", job=second).latest_ms is None
    store.finish(store.slot(-1), "a", job=second)
    assert store.heartbeat(store.slot(-1), "a", job=first) is Verdict.LOST
    assert store.heartbeat(store.slot(), "a", job=second) is Verdict.LOST
    assert store.story(first) == []
    assert store.unfinished(second) == []


def test_forgetting_a_job_removes_all_of_it_and_nothing_else(store: Harness) -> None:
    empty = store.dump()
    store.won(store.slot(-1), "k", job="kept")
    store.finish(store.slot(-1), "k", job="kept")
    kept = store.dump()
    assert kept != empty
    store.won(store.slot(-1), "a", lease_ms=1_000)
    store.release(store.slot(-1), "a")
    store.won(store.slot(-1), "b", lease_ms=1_000)
    store.advance(1_000)
    store.won("m", "m")
    store.backend.forget("job")
    assert store.dump() == kept
    assert store.finish("m", "m") is Verdict.LOST
    assert store.claim(store.slot(-1), "c") == store.reply(Outcome.WON, latest_ms=None, attempt=1, fence=store.now)
    store.backend.forget("job")
    store.backend.forget("job")
    store.backend.forget("never seen")
    assert store.dump() == kept
