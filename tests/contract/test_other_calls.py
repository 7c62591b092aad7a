"""heartbeat, finish, release and save_result on every lease backend, and each of them repeated after a lost answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness import Harness

from anarchon.durations import from_ms
from anarchon.records import Outcome, Verdict

# -- heartbeat


def test_heartbeat_renews_the_lease_from_now_by_the_length_it_asks_for(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    store.advance(4_999)
    assert store.heartbeat(slot, "a", lease_ms=8_000) is Verdict.OK
    assert store.unfinished() == [(str(slot), 1, 8.0)]
    assert store.heartbeat(slot, "a", lease_ms=8_000) is Verdict.OK
    assert store.unfinished() == [(str(slot), 1, 8.0)]


@pytest.mark.parametrize("manual", [False, True])
def test_heartbeat_after_the_end_is_told_finished(store: Harness, manual: bool) -> None:
    run = "m" if manual else store.slot()
    store.won(run, "a")
    store.finish(run, "a")
    assert store.heartbeat(run, "a") is Verdict.FINISHED


def test_heartbeat_after_a_release_is_told_finished_also_once_another_holds_the_run(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.release(slot, "a")
    assert store.heartbeat(slot, "a") is Verdict.FINISHED
    store.won(slot, "b")
    assert store.heartbeat(slot, "a") is Verdict.FINISHED
    store.finish(slot, "b")
    assert store.heartbeat(slot, "a") is Verdict.FINISHED


def test_heartbeat_of_a_stranger_is_lost(store: Harness) -> None:
    store.won(store.slot(), "a")
    before = store.dump()
    assert store.heartbeat(store.slot(), "b", lease_ms=99_000) is Verdict.LOST
    assert store.heartbeat(store.slot(-1), "a") is Verdict.LOST
    assert store.dump() == before


def test_heartbeat_never_creates_anything(store: Harness) -> None:
    before = store.dump()
    assert store.heartbeat(store.slot(), "a") is Verdict.LOST
    assert store.dump() == before


def test_heartbeat_of_a_run_that_another_finished_is_lost(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(slot, "b")
    assert store.heartbeat(slot, "a") is Verdict.LOST
    store.finish(slot, "b")
    assert store.heartbeat(slot, "a") is Verdict.LOST


def test_heartbeat_of_a_lease_that_is_over_but_free_renews_it(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.advance(86_400_000)
    assert store.heartbeat(store.slot(), "a") is Verdict.OK
    assert store.claim(store.slot(), "b").outcome is Outcome.RUNNING


def test_heartbeat_of_a_dead_lease_is_lost_once_a_newer_slot_was_granted(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow", lease_ms=5_000)
    store.won(store.slot(), "b", overlap="allow")
    assert store.heartbeat(store.slot(-1), "a", lease_ms=5_000) is Verdict.OK  # not over yet
    store.finish(store.slot(), "b")
    store.advance(5_000)
    before = store.unfinished()
    assert store.heartbeat(store.slot(-1), "a") is Verdict.LOST
    assert store.unfinished() == before == [(str(store.slot(-1)), 1, 0.0)]


@pytest.mark.parametrize("mine, other", [("skip", "skip"), ("skip", "allow"), ("allow", "skip")])
def test_heartbeat_of_a_dead_lease_is_lost_where_either_side_forbids_an_overlap(
    store: Harness, mine: str, other: str
) -> None:
    store.won(store.slot(), "a", overlap=mine, lease_ms=1_000)
    store.advance(1_000)
    store.won("m", "m", overlap=other)
    assert store.heartbeat(store.slot(), "a") is Verdict.LOST
    store.finish("m", "m")
    assert store.heartbeat(store.slot(), "a") is Verdict.OK


def test_heartbeat_of_a_dead_lease_renews_it_beside_a_run_where_both_allow_it(store: Harness) -> None:
    store.won(store.slot(), "a", overlap="allow", lease_ms=1_000)
    store.advance(1_000)
    store.won("m", "m", overlap="allow")
    assert store.heartbeat(store.slot(), "a") is Verdict.OK


def test_heartbeat_of_a_dead_manual_run_does_not_mind_newer_slots(store: Harness) -> None:
    store.won("m", "m", overlap="allow", lease_ms=12_000)
    store.advance(10_000)
    store.won(store.slot(1), "a", overlap="allow")
    store.advance(2_000)
    assert store.heartbeat("m", "m") is Verdict.OK


# -- finish


def test_finish_keeps_the_record_with_the_attempt_and_fence_of_the_store(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "z", lease_ms=1_000)
    store.advance(1_000)
    fence = store.won(slot, "a").fence
    record = replace(
        store.record(slot),
        trigger="takeover",
        status="failed",
        instance_id="host-9",
        started_at=from_ms(slot + 1_000),
        finished_at=from_ms(slot + 3_500),
        duration=2.25,
        error="ValueError: no",
        lease_lost=True,
    )
    assert store.backend.finish("job", str(slot), "a", record) is Verdict.OK
    assert store.history()[0] == replace(record, attempt=2, fence=fence or 0)
    assert store.unfinished() == []


def test_repeated_finish_is_ok_and_changes_nothing(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.finish(store.slot(), "a")
    before = store.dump()
    assert store.finish(store.slot(), "a", status="failed", error="another story") is Verdict.OK
    assert store.dump() == before
    assert store.story() == [(str(store.slot()), 1, "success")]


def test_repeated_finish_does_not_bring_back_a_record_that_history_has_cut(store: Harness) -> None:
    store.won(store.slot(-1), "a", history_limit=1)
    store.finish(store.slot(-1), "a")
    store.won(store.slot(), "b", history_limit=1)
    store.finish(store.slot(), "b")
    assert store.finish(store.slot(-1), "a") is Verdict.OK
    assert store.story() == [(str(store.slot()), 1, "success")]


def test_finish_of_a_lease_that_is_over_but_free_is_ok(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.advance(86_400_000)
    assert store.finish(store.slot(), "a") is Verdict.OK
    assert store.story() == [(str(store.slot()), 1, "success")]


def test_stale_holder_cannot_finish_after_takeover(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(slot, "b")
    before = store.dump()
    assert store.finish(slot, "a") is Verdict.LOST
    assert store.dump() == before
    assert store.finish(slot, "b") is Verdict.OK
    assert store.finish(slot, "a") is Verdict.LOST
    assert store.story() == [(str(slot), 2, "success"), (str(slot), 1, "lost")]


def test_holder_cannot_finish_a_run_that_it_has_released(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.release(slot, "a")
    assert store.finish(slot, "a") is Verdict.LOST
    assert store.story() == [(str(slot), 1, "interrupted")]
    assert store.unfinished() == [(str(slot), 1, 0.0)]


def test_holder_cannot_finish_a_run_that_a_newer_grant_closed(store: Harness) -> None:
    store.won(store.slot(-1), "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(store.slot(), "b")
    assert store.finish(store.slot(-1), "a") is Verdict.LOST
    assert store.story() == [(str(store.slot(-1)), 1, "lost")]


def test_finish_of_a_run_that_the_store_does_not_know_is_lost_and_creates_nothing(store: Harness) -> None:
    before = store.dump()
    assert store.finish(store.slot(), "a") is Verdict.LOST
    assert store.release(store.slot(), "a") is Verdict.LOST
    assert store.dump() == before


def test_finish_frees_the_job_at_once(store: Harness) -> None:
    store.won(store.slot(-1), "a")
    store.finish(store.slot(-1), "a")
    assert store.claim(store.slot(), "b").outcome is Outcome.WON


# -- release


@pytest.mark.parametrize("counts", [True, False])
def test_release_ends_the_lease_at_once_and_leaves_the_run_unfinished(store: Harness, counts: bool) -> None:
    slot = store.slot()
    fence = store.won(slot, "a").fence
    assert store.release(slot, "a", counts=counts, error="RunInterrupted: stop") is Verdict.OK
    assert store.unfinished() == [(str(slot), 1, 0.0)]
    (record,) = store.history()
    assert (record.attempt, record.fence, record.status) == (1, fence, "interrupted")
    assert record.error == "RunInterrupted: stop"
    assert store.claim(slot, "b").attempt == 2


@pytest.mark.parametrize("counts", [True, False])
def test_repeated_release_is_ok_and_changes_nothing(store: Harness, counts: bool) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.release(slot, "a", counts=counts)
    before = store.dump()
    assert store.release(slot, "a", counts=False, status="failed") is Verdict.OK
    assert store.dump() == before
    store.won(slot, "b", max_attempts=2)
    before = store.dump()
    assert store.release(slot, "a", counts=False) is Verdict.OK
    assert store.dump() == before
    store.finish(slot, "b")
    assert store.release(slot, "a") is Verdict.OK
    assert store.story() == [(str(slot), 2, "success"), (str(slot), 1, "interrupted")]


def test_stale_holder_cannot_release_after_takeover(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(slot, "b")
    before = store.dump()
    assert store.release(slot, "a") is Verdict.LOST
    assert store.release(slot, "nobody") is Verdict.LOST
    assert store.dump() == before


def test_release_of_a_lease_that_is_over_but_free_is_ok(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=1_000)
    store.advance(5_000)
    assert store.release(store.slot(), "a", counts=True) is Verdict.OK
    assert store.story() == [(str(store.slot()), 1, "interrupted")]


def test_released_run_is_closed_by_a_newer_grant_without_another_word(store: Harness) -> None:
    store.won(store.slot(-1), "a")
    store.release(store.slot(-1), "a")
    store.won(store.slot(), "b")
    assert store.unfinished() == [(str(store.slot()), 1, 30.0)]
    assert store.story() == [(str(store.slot(-1)), 1, "interrupted")]
    assert store.heartbeat(store.slot(-1), "a") is Verdict.FINISHED
    assert store.release(store.slot(-1), "a") is Verdict.OK


@pytest.mark.parametrize("counts", [True, False])
def test_manual_run_is_finished_where_another_would_be_released(store: Harness, counts: bool) -> None:
    store.won("m", "a")
    assert store.release("m", "a", counts=counts) is Verdict.OK
    assert store.unfinished() == []
    assert store.story() == [("m", 1, "interrupted")]
    assert store.release("m", "a", counts=counts) is Verdict.OK
    assert store.finish("m", "a") is Verdict.OK
    assert store.heartbeat("m", "a") is Verdict.FINISHED
    assert store.claim("m", "b").outcome is Outcome.DONE
    assert store.story() == [("m", 1, "interrupted")]


# -- save_result


def test_result_of_a_lost_lease_replaces_the_lost_record(store: Harness) -> None:
    slot = store.slot()
    first = store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(slot, "b")
    assert [(record.status, record.lease_lost) for record in store.history()] == [("lost", False)]
    store.save_result(slot, first, error="OSError: gone")
    (record,) = store.history()
    assert (record.status, record.error, record.lease_lost) == ("success", "OSError: gone", True)
    assert (record.attempt, record.fence) == (1, first.fence)


def test_saved_result_touches_nothing_else(store: Harness) -> None:
    slot = store.slot()
    first = store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    second = store.won(slot, "b")
    store.advance(1_000)
    before = store.unfinished()
    store.save_result(slot, first)
    assert store.unfinished() == before
    assert store.claim(slot, "b").fence == second.fence
    assert store.heartbeat(slot, "a") is Verdict.LOST


def test_repeated_result_changes_nothing(store: Harness) -> None:
    slot = store.slot()
    first = store.won(slot, "a", lease_ms=1_000)
    store.advance(1_000)
    store.won(slot, "b")
    record = store.record(slot, attempt=1, fence=first.fence, lease_lost=True)
    store.backend.save_result("job", record)
    before = store.dump()
    store.backend.save_result("job", record)
    assert store.dump() == before


def test_result_is_kept_by_a_store_that_has_lost_its_data(store: Harness) -> None:
    grant = store.won(store.slot(), "a")
    store.backend.forget("job")
    assert store.finish(store.slot(), "a") is Verdict.LOST
    store.save_result(store.slot(), grant)
    assert store.story() == [(str(store.slot()), 1, "success")]
    assert store.unfinished() == []


def test_result_takes_its_place_in_the_history_by_its_fence(store: Harness) -> None:
    first = store.won(store.slot(-1), "a")
    store.backend.claim(store.request(store.slot(-1), "a"))
    store.release(store.slot(-1), "a")
    store.advance(1)
    store.won(store.slot(), "b")
    store.finish(store.slot(), "b")
    store.save_result(store.slot(-1), first)
    assert store.story() == [(str(store.slot()), 1, "success"), (str(store.slot(-1)), 1, "success")]
