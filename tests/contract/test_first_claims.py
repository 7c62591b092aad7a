"""Lines 9 to 14 of the claim table: runs that nobody has begun, or that are over and forgotten."""

from __future__ import annotations

import pytest
from harness import Harness

from anarchon.durations import from_ms
from anarchon.records import DoneReason, Holder, Mode, Outcome, Verdict

# -- line 9: slot in the store's future


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("ahead_ms", [1, 10_000, 3_600_000])
def test_nobody_starts_a_run_before_its_slot(store: Harness, mode: Mode, ahead_ms: int) -> None:
    slot = store.now + ahead_ms
    assert store.claim(slot, "a", mode=mode) == store.reply(Outcome.NONE, wait_ms=ahead_ms)
    assert store.unfinished() == []


def test_run_may_start_at_its_very_slot(store: Harness) -> None:
    assert store.claim(store.slot(), "a").outcome is Outcome.WON


def test_slot_to_come_is_waited_for_even_beside_a_live_run(store: Harness) -> None:
    store.won(store.slot(), "a")
    waiting = store.reply(Outcome.NONE, latest_ms=store.slot(), wait_ms=10_000)
    assert store.claim(store.slot(1), "b") == waiting


def test_manual_run_is_not_held_back_by_a_slot_ahead_of_the_store(store: Harness) -> None:
    store.won("m1", "a")
    store.finish("m1", "a")
    request = store.request("m2", "b")
    store.step(-60_000)  # so that the moment it was asked for is in the store's future
    assert store.backend.claim(request).outcome is Outcome.WON


# -- line 10: slot not newer than latest, and latest not in the store's future


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("window_ms", [0, 60_000])
def test_slot_older_than_one_that_was_granted_has_passed(store: Harness, mode: Mode, window_ms: int) -> None:
    store.won(store.slot(), "a")
    passed = store.reply(Outcome.DONE, latest_ms=store.slot(), done=DoneReason.PASSED)
    assert store.claim(store.slot(-1), "b", mode=mode, window_ms=window_ms) == passed


def test_finished_run_that_was_forgotten_has_passed(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.finish(slot, "a")
    store.advance(86_400_000)
    for number in range(40):
        store.won(f"m{number}", "m")
        store.finish(f"m{number}", "m")
    answer = store.claim(slot, "b", window_ms=7 * 86_400_000)
    assert answer.outcome is Outcome.DONE
    assert answer.done in (DoneReason.PASSED, DoneReason.FINISHED)  # it may be remembered for longer


def test_latest_in_the_stores_future_stops_no_slot(store: Harness) -> None:
    far, slot = store.slot(1_000), store.slot()
    store.step(far - store.now)
    store.won(far, "a")
    store.finish(far, "a")
    store.step(slot - store.now)
    assert store.claim(slot, "b") == store.reply(Outcome.WON, latest_ms=far, attempt=1, fence=far + 1)
    store.finish(slot, "b")
    assert store.claim(store.slot(-1), "c").outcome is Outcome.WON


def test_latest_counts_again_once_the_clock_has_reached_it(store: Harness) -> None:
    late, slot = store.slot(1), store.slot()
    store.advance(10_000)
    store.won(late, "a")
    store.finish(late, "a")
    store.step(-1)
    store.advance(1)
    assert store.claim(slot, "b").done is DoneReason.PASSED


# -- line 11: too late


def test_run_may_start_until_its_window_is_over(store: Harness) -> None:
    store.advance(5_000)
    assert store.claim(store.slot(), "a", window_ms=4_999) == store.reply(Outcome.LATE)
    assert store.claim(store.slot(), "a", window_ms=5_000).outcome is Outcome.WON


def test_late_comes_before_takeover_and_overlap(store: Harness) -> None:
    store.won(store.slot(-1), "a")
    store.advance(5_000)
    late = store.reply(Outcome.LATE, latest_ms=store.slot(-1))
    assert store.claim(store.slot(), "b", window_ms=0, mode=Mode.TAKEOVER) == late
    assert store.claim(store.slot(), "b", window_ms=0) == late


@pytest.mark.parametrize("window_ms", [0, 3_600_000])
def test_manual_run_may_start_for_five_minutes(store: Harness, window_ms: int) -> None:
    requests = [store.request(name, name, window_ms=window_ms) for name in ("m1", "m2")]
    store.advance(300_000)
    assert store.backend.claim(requests[0]).outcome is Outcome.WON
    store.finish("m1", "m1")
    store.advance(1)
    assert store.backend.claim(requests[1]) == store.reply(Outcome.LATE)


# -- line 12: mode takeover


def test_backup_never_starts_a_run(store: Harness) -> None:
    assert store.claim(store.slot(), "a", mode=Mode.TAKEOVER) == store.reply(Outcome.NONE)
    assert store.unfinished() == []


def test_backup_that_meets_an_overlap_is_told_nothing_of_it(store: Harness) -> None:
    store.won("m", "m")
    assert store.claim(store.slot(), "a", mode=Mode.TAKEOVER) == store.reply(Outcome.NONE)


def test_manual_run_skips_the_line_for_backups(store: Harness) -> None:
    assert store.claim("m", "a", mode=Mode.TAKEOVER).outcome is Outcome.WON


# -- line 13: another run has a live lease


@pytest.mark.parametrize("asker, other", [("skip", "skip"), ("skip", "allow"), ("allow", "skip")])
def test_start_waits_where_either_side_forbids_an_overlap(store: Harness, asker: str, other: str) -> None:
    before = store.slot(-1)
    store.won(before, "a", overlap=other, instance_id="host-a")
    holder = Holder(str(before), before, 1, "host-a", lease_left_ms=30_000)
    overlap = store.reply(Outcome.OVERLAP, latest_ms=before, holder=holder)
    assert store.claim(store.slot(), "b", overlap=asker) == overlap
    assert store.claim("m", "m", overlap=asker) == overlap
    assert store.unfinished() == [(str(before), 1, 30.0)]


def test_runs_overlap_where_both_allow_it(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow")
    assert store.claim(store.slot(), "b", overlap="allow").outcome is Outcome.WON
    assert store.claim("m", "m", overlap="allow").outcome is Outcome.WON
    assert len(store.unfinished()) == 3


def test_manual_run_is_in_the_way_of_a_slot(store: Harness) -> None:
    store.won("m", "m")
    answer = store.claim(store.slot(), "a")
    assert answer.outcome is Outcome.OVERLAP and answer.holder is not None and answer.holder.run_id == "m"


def test_start_names_the_newest_of_the_runs_in_the_way(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow")
    store.advance(1)
    store.won("m", "m", overlap="allow")
    store.advance(1)
    holder = store.claim(store.slot(), "b").holder
    assert holder is not None and holder.run_id == "m"


@pytest.mark.parametrize("gone", ["finished", "released", "over"])
def test_start_is_free_once_the_other_run_is_gone(store: Harness, gone: str) -> None:
    store.won(store.slot(-1), "a", lease_ms=2_000)
    if gone == "finished":
        store.finish(store.slot(-1), "a")
    elif gone == "released":
        store.release(store.slot(-1), "a")
    else:
        store.advance(2_000)
    assert store.claim(store.slot(), "b").outcome is Outcome.WON


# -- line 14: won


def test_first_grant_of_a_job(store: Harness) -> None:
    slot = store.slot()
    store.advance(1_234)
    won = store.reply(Outcome.WON, latest_ms=None, attempt=1, fence=slot + 1_234)
    assert store.claim(slot, "a", instance_id="host-a", trigger="catch-up", lease_ms=7_000) == won
    (run,) = store.backend.active("job")
    assert (run.job, run.slot, run.run_id, run.attempt) == ("job", from_ms(slot), str(slot), 1)
    assert (run.trigger, run.instance_id, run.fence) == ("catch-up", "host-a", won.fence)
    assert (run.started_at, run.lease_left) == (from_ms(slot + 1_234), 7.0)
    assert store.history() == []


def test_each_grant_names_the_latest_before_it(store: Harness) -> None:
    latest = None
    for number in (-3, -1, 0):
        slot = store.slot(number)
        assert store.won(slot, "a").latest_ms == latest
        store.finish(slot, "a")
        latest = slot
    assert store.claim("m", "m").latest_ms == store.slot()


def test_manual_run_leaves_latest_alone(store: Harness) -> None:
    store.won(store.slot(-1), "a")
    store.finish(store.slot(-1), "a")
    store.won("m", "m")
    store.finish("m", "m")
    assert store.claim(store.slot(), "b") == store.reply(
        Outcome.WON, latest_ms=store.slot(-1), attempt=1, fence=store.now + 2
    )


def test_latest_is_never_lowered_by_an_older_slot(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.finish(store.slot(), "a")
    store.step(-1)
    store.won(store.slot(-1), "b")
    store.finish(store.slot(-1), "b")
    store.step(1)
    assert store.claim(store.slot(-2), "c").latest_ms == store.slot()


def test_newer_grant_closes_dead_older_runs(store: Harness) -> None:
    dead, released, newer = store.slot(-2), store.slot(-1), store.slot()
    store.won(dead, "a", overlap="allow", lease_ms=1_000)
    store.won(released, "b", overlap="allow")
    store.release(released, "b")
    store.won("m", "m", overlap="allow", lease_ms=1_000)
    store.advance(1_000)
    store.won(newer, "c", overlap="skip")
    assert store.unfinished() == [(str(newer), 1, 30.0)]
    assert store.story() == [("m", 1, "lost"), (str(released), 1, "interrupted"), (str(dead), 1, "lost")]
    for run, token in ((dead, "a"), ("m", "m")):
        assert store.heartbeat(run, token) is Verdict.LOST
        assert store.finish(run, token) is Verdict.LOST
    assert store.claim(dead, "d").done is DoneReason.FINISHED


def test_newer_grant_leaves_live_runs_alone(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow")
    store.won("m", "m", overlap="allow")
    store.won(store.slot(), "b", overlap="allow")
    assert store.heartbeat(store.slot(-1), "a") is Verdict.OK
    assert store.heartbeat("m", "m") is Verdict.OK
    assert store.story() == []


def test_grant_leaves_a_dead_newer_run_unfinished(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.release(store.slot(), "a")
    store.step(-5_000)  # the newer slot is in the store's future now, so that an older one may still be granted
    store.won(store.slot(-1), "b", overlap="allow")
    assert store.unfinished() == [(str(store.slot(-1)), 1, 30.0), (str(store.slot()), 1, 0.0)]
    assert store.claim(store.slot(), "c", overlap="allow").attempt == 2


def test_manual_grant_closes_dead_manual_runs_and_no_other(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow", lease_ms=1_000)
    store.won("m1", "m", overlap="allow", lease_ms=1_000)
    store.advance(1_000)
    store.won("m2", "n")
    assert store.unfinished() == [("m2", 1, 30.0), (str(store.slot(-1)), 1, 0.0)]
    assert store.story() == [("m1", 1, "lost")]
    assert store.claim("m1", "o", overlap="allow").done is DoneReason.FINISHED


def test_closing_keeps_a_result_that_is_there_already(store: Harness) -> None:
    grant = store.won(store.slot(-1), "a", lease_ms=1_000)
    store.advance(1_000)
    store.save_result(store.slot(-1), grant, status="failed")
    store.won(store.slot(), "b")
    assert store.story() == [(str(store.slot(-1)), 1, "failed")]


# -- leases on a clock that steps


def test_lease_that_lies_too_far_ahead_is_cut_by_the_next_claim(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=60_000)
    store.step(-3_600_000)
    holder = store.claim(store.slot(), "b").holder
    assert holder is not None and holder.lease_left_ms == 60_000
    store.advance(60_000)
    assert store.unfinished() == [(str(store.slot()), 1, 0.0)]


def test_lease_that_lies_too_far_ahead_is_cut_by_anybodys_heartbeat(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=60_000)
    store.step(-3_600_000)
    assert store.heartbeat("nobody", "x") is Verdict.LOST
    store.advance(59_999)
    assert store.unfinished() == [(str(store.slot()), 1, 0.001)]
    store.advance(1)
    assert store.unfinished() == [(str(store.slot()), 1, 0.0)]


def test_reader_shows_no_more_lease_than_the_next_claim_would_leave(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=60_000)
    store.step(-3_600_000)
    assert store.unfinished() == [(str(store.slot()), 1, 60.0)]


def test_lease_is_cut_to_the_length_of_its_last_renewal(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=60_000)
    store.heartbeat(store.slot(), "a", lease_ms=5_000)
    store.step(-3_600_000)
    store.heartbeat("nobody", "x")
    store.advance(5_000)
    assert store.unfinished() == [(str(store.slot()), 1, 0.0)]


def test_clock_that_steps_back_revives_no_lease_that_a_grant_found_over(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=10_000)
    store.advance(10_000)
    store.won("m", "m", lease_ms=2_000)
    store.step(-5_000)
    assert store.unfinished() == [("m", 1, 2.0), (str(slot), 1, 0.0)]
    store.finish("m", "m")
    assert store.claim(slot, "b").attempt == 2


@pytest.mark.parametrize("how", ["takeover", "heartbeat", "late repeat"])
def test_clock_that_steps_back_revives_no_lease_that_a_return_to_life_found_over(store: Harness, how: str) -> None:
    slot = store.slot()
    store.won(slot, "a", overlap="allow", lease_ms=1_000)
    store.won("m", "m", overlap="allow", lease_ms=5_000)
    store.advance(5_000)
    if how == "heartbeat":
        assert store.heartbeat(slot, "a") is Verdict.OK
    else:
        store.won(slot, "b" if how == "takeover" else "a", overlap="allow")
    store.step(-3_000)
    assert {run: left for run, _, left in store.unfinished()} == {"m": 0.0, str(slot): 30.0}


def test_holder_whose_lease_was_ended_for_good_may_still_renew_it(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=10_000)
    store.advance(10_000)
    store.won("m", "m")
    store.finish("m", "m")
    assert store.heartbeat(slot, "a") is Verdict.OK
    assert store.unfinished() == [(str(slot), 1, 30.0)]
