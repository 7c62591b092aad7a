"""The claim table of docs/protocol.rst, line by line, on every lease backend.

Most tests compare the whole answer, the store's time and ``latest`` included. Lines 9 to 14 are in the next file.
"""

from __future__ import annotations

import pytest
from harness import Harness

from anarchon.durations import from_ms
from anarchon.records import ClaimReply, DoneReason, Holder, Mode, Outcome, RunRecord, Verdict

# -- line 1: finished


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("token", ["a", "b"])
def test_finished_run_is_done_to_everyone_who_asks_again(store: Harness, mode: Mode, token: str) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.finish(slot, "a")
    done = store.reply(Outcome.DONE, latest_ms=slot, done=DoneReason.FINISHED)
    assert store.claim(slot, token, mode=mode, overlap="allow", max_attempts=9) == done


def test_finished_manual_run_is_done_when_it_is_asked_for_again(store: Harness) -> None:
    store.won("m", "a")
    store.finish("m", "a")
    assert store.claim("m", "b") == store.reply(Outcome.DONE, done=DoneReason.FINISHED)


def test_finished_run_stays_finished_when_the_clock_steps_back(store: Harness) -> None:
    store.won(store.slot(), "a")
    store.finish(store.slot(), "a")
    store.step(-9 * 60_000)
    assert store.claim(store.slot(), "b", window_ms=3_600_000).done is DoneReason.FINISHED


# -- line 2: unfinished, lease live, same token


def test_repeated_claim_gets_the_same_attempt_and_a_fresh_lease(store: Harness) -> None:
    slot, before = store.slot(), store.slot(-1)
    store.won(before, "z")
    store.finish(before, "z")
    first = store.won(slot, "a")
    store.advance(29_999)
    again = store.reply(Outcome.WON, latest_ms=before, attempt=1, fence=first.fence)
    assert store.claim(slot, "a") == again
    assert store.unfinished() == [(str(slot), 1, 30.0)]
    assert store.story() == [(str(before), 1, "success")]


def test_repeated_claim_of_a_second_attempt_is_that_attempt_again(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    store.advance(5_000)
    second = store.won(slot, "b")
    store.advance(1_000)
    assert store.claim(slot, "b") == store.reply(Outcome.WON, latest_ms=slot, attempt=2, fence=second.fence)
    assert store.story() == [(str(slot), 1, "lost")]


def test_repeated_claim_takes_the_lease_that_it_asks_for(store: Harness) -> None:
    store.won(store.slot(), "a", lease_ms=5_000)
    store.won(store.slot(), "a", lease_ms=60_000)
    store.advance(59_999)
    assert store.unfinished() == [(str(store.slot()), 1, 0.001)]


def test_repeated_claim_is_granted_beside_another_live_run(store: Harness) -> None:
    store.won(store.slot(), "a", overlap="allow")
    store.won("m", "m", overlap="allow")
    assert store.claim(store.slot(), "a", overlap="allow").outcome is Outcome.WON


# -- line 3: unfinished, lease live, other token


@pytest.mark.parametrize("mode", Mode)
def test_live_run_is_running_to_everybody_else(store: Harness, mode: Mode) -> None:
    slot = store.slot()
    store.won(slot, "a", instance_id="host-a")
    store.advance(10_000)
    holder = Holder(str(slot), slot, 1, "host-a", lease_left_ms=20_000)
    running = store.reply(Outcome.RUNNING, latest_ms=slot, holder=holder)
    assert store.claim(slot, "b", mode=mode, overlap="allow", window_ms=0) == running


def test_run_that_was_taken_over_is_running_to_its_first_holder(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000, instance_id="host-a")
    store.advance(5_000)
    store.won(slot, "b", lease_ms=8_000, instance_id="host-b")
    holder = Holder(str(slot), slot, 2, "host-b", lease_left_ms=8_000)
    assert store.claim(slot, "a") == store.reply(Outcome.RUNNING, latest_ms=slot, holder=holder)


def test_lease_is_live_until_its_last_millisecond_and_over_at_its_end(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    store.advance(4_999)
    assert store.claim(slot, "b").outcome is Outcome.RUNNING
    store.advance(1)
    assert store.claim(slot, "b").outcome is Outcome.WON


def test_live_manual_run_is_running_to_another_token(store: Harness) -> None:
    store.won("m", "a", instance_id="host-a")
    holder = Holder("m", store.slot(), 1, "host-a", lease_left_ms=30_000)
    assert store.claim("m", "b") == store.reply(Outcome.RUNNING, holder=holder)


# -- line 4: unfinished, lease over, slot older than latest


def begin_an_older_run_whose_lease_ends(store: Harness) -> ClaimReply:
    """Slot -1 is unfinished and its lease over, while slot 0 has been granted beside it and still runs."""
    older = store.won(store.slot(-1), "a", overlap="allow", lease_ms=5_000, instance_id="host-a", trigger="catch-up")
    store.won(store.slot(), "b", overlap="allow")
    store.advance(5_000)
    return older


def test_dead_run_is_superseded_once_a_newer_slot_was_granted(store: Harness) -> None:
    older = begin_an_older_run_whose_lease_ends(store)
    slot, newer = store.slot(-1), store.slot()
    superseded = store.reply(Outcome.DONE, latest_ms=newer, done=DoneReason.SUPERSEDED)
    assert store.claim(slot, "c", overlap="allow") == superseded
    assert store.unfinished() == [(str(newer), 1, 25.0)]
    assert store.history() == [
        RunRecord(
            job="job",
            slot=from_ms(slot),
            run_id=str(slot),
            attempt=1,
            trigger="catch-up",
            status="lost",
            instance_id="host-a",
            fence=older.fence or 0,
            started_at=from_ms(store.slot()),
            finished_at=from_ms(store.slot() + 5_000),
            duration=5.0,
            error=None,
            lease_lost=False,
        )
    ]


def test_superseded_run_is_closed_for_its_own_holder_too(store: Harness) -> None:
    begin_an_older_run_whose_lease_ends(store)
    assert store.claim(store.slot(-1), "a", overlap="allow").done is DoneReason.SUPERSEDED
    assert store.heartbeat(store.slot(-1), "a") is Verdict.LOST
    assert store.finish(store.slot(-1), "a") is Verdict.LOST
    assert store.claim(store.slot(-1), "a", overlap="allow").done is DoneReason.FINISHED
    assert store.story() == [(str(store.slot(-1)), 1, "lost")]


def test_superseded_run_that_was_released_is_not_recorded_lost(store: Harness) -> None:
    store.won(store.slot(-1), "a", overlap="allow")
    store.won(store.slot(), "b", overlap="allow")
    store.release(store.slot(-1), "a")
    assert store.claim(store.slot(-1), "c", overlap="allow").done is DoneReason.SUPERSEDED
    assert store.story() == [(str(store.slot(-1)), 1, "interrupted")]


def test_lost_is_not_recorded_over_a_result_that_is_there_already(store: Harness) -> None:
    older = begin_an_older_run_whose_lease_ends(store)
    store.save_result(store.slot(-1), older, status="failed", error="ValueError: told by the holder itself")
    told = store.history()
    assert store.claim(store.slot(-1), "c").done is DoneReason.SUPERSEDED
    assert store.history() == told
    assert told[0].error == "ValueError: told by the holder itself"


def test_superseded_comes_before_overlap_and_before_exhausted(store: Harness) -> None:
    begin_an_older_run_whose_lease_ends(store)
    assert store.claim(store.slot(-1), "c", overlap="skip", max_attempts=1).done is DoneReason.SUPERSEDED


def test_manual_run_is_not_superseded_by_a_newer_slot(store: Harness) -> None:
    begin_a_manual_run_that_a_newer_slot_outlives(store)
    assert store.claim("m", "a", overlap="allow").outcome is Outcome.WON
    store.advance(30_000)
    assert store.claim("m", "c", overlap="allow").done is DoneReason.EXHAUSTED


def begin_a_manual_run_that_a_newer_slot_outlives(store: Harness) -> None:
    """Manual run m is unfinished and its lease over, while slot 1 has been granted beside it and still runs."""
    store.won("m", "a", overlap="allow", lease_ms=12_000)
    store.advance(10_000)
    store.won(store.slot(1), "b", overlap="allow", lease_ms=60_000)
    store.advance(2_000)


# -- line 5: unfinished, lease over, the token has held this run before


def test_holders_late_repeat_revives_its_lease_while_it_is_free(store: Harness) -> None:
    slot = store.slot()
    first = store.won(slot, "a")
    store.advance(600_000)
    again = store.reply(Outcome.WON, latest_ms=None, attempt=1, fence=first.fence)
    assert store.claim(slot, "a", window_ms=0, max_attempts=1) == again
    assert store.unfinished() == [(str(slot), 1, 30.0)]
    assert store.story() == []


def test_holders_late_repeat_meets_an_overlapping_run(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    store.advance(5_000)
    store.won("m", "m", instance_id="host-m")
    holder = Holder("m", store.now, 1, "host-m", lease_left_ms=30_000)
    assert store.claim(slot, "a") == store.reply(Outcome.OVERLAP, latest_ms=slot, holder=holder)
    store.finish("m", "m")
    assert store.claim(slot, "a").outcome is Outcome.WON


def test_late_repeat_of_a_released_claim_starts_nothing(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.release(slot, "a")
    assert store.claim(slot, "a") == store.reply(Outcome.NONE, latest_ms=slot)
    assert store.unfinished() == [(str(slot), 1, 0.0)]
    assert store.claim(slot, "b").attempt == 2


@pytest.mark.parametrize("released", [True, False])
def test_late_repeat_of_an_earlier_attempt_starts_nothing(store: Harness, released: bool) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    if released:
        store.release(slot, "a")
    store.advance(5_000)
    store.won(slot, "b", lease_ms=5_000)
    store.advance(5_000)
    assert store.claim(slot, "a") == store.reply(Outcome.NONE, latest_ms=slot)
    assert store.unfinished() == [(str(slot), 2, 0.0)]
    assert store.claim(slot, "c").attempt == 3
    store.advance(30_000)
    assert store.claim(slot, "a", max_attempts=9).outcome is Outcome.NONE
    assert store.claim(slot, "b", max_attempts=9).outcome is Outcome.NONE


def test_late_repeat_is_refused_before_attempts_are_counted(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=5_000)
    store.advance(5_000)
    store.won(slot, "b", lease_ms=5_000)
    store.advance(5_000)
    assert store.claim(slot, "a", max_attempts=1).outcome is Outcome.NONE
    assert store.unfinished() == [(str(slot), 2, 0.0)]


# -- line 6: unfinished, lease over, counted attempts used up


def die(store: Harness, token: str, **options: object) -> None:
    """One more attempt of slot 0 whose holder is never heard of again."""
    store.won(store.slot(), token, lease_ms=1_000, **options)
    store.advance(1_000)


def test_run_is_exhausted_when_its_attempts_are_used_up(store: Harness) -> None:
    slot = store.slot()
    for token in "abc":
        die(store, token)
    exhausted = store.reply(Outcome.DONE, latest_ms=slot, done=DoneReason.EXHAUSTED)
    assert store.claim(slot, "d", max_attempts=3) == exhausted
    assert store.unfinished() == []
    assert store.story() == [(str(slot), 3, "lost"), (str(slot), 2, "lost"), (str(slot), 1, "lost")]
    assert store.claim(slot, "e", max_attempts=9).done is DoneReason.FINISHED


def test_attempts_allowed_are_those_of_the_instance_that_asks(store: Harness) -> None:
    die(store, "a", max_attempts=1)
    die(store, "b", max_attempts=2)
    assert store.claim(store.slot(), "c", max_attempts=2).done is DoneReason.EXHAUSTED


def test_attempt_released_by_a_stop_does_not_count(store: Harness) -> None:
    slot = store.slot()
    for number in range(10):
        assert store.won(slot, f"t{number}", max_attempts=1).attempt == number + 1
        store.release(slot, f"t{number}", counts=False)
    assert store.won(slot, "last", max_attempts=1).attempt == 11


def test_attempt_released_after_a_lost_lease_counts(store: Harness) -> None:
    slot = store.slot()
    for token in "ab":
        store.won(slot, token, max_attempts=2)
        store.release(slot, token, counts=True)
    assert store.claim(slot, "c", max_attempts=2).done is DoneReason.EXHAUSTED
    assert store.story() == [(str(slot), 2, "interrupted"), (str(slot), 1, "interrupted")]


def test_exhausted_comes_before_overlap(store: Harness) -> None:
    die(store, "a")
    store.won("m", "m")
    assert store.claim(store.slot(), "b", max_attempts=1).done is DoneReason.EXHAUSTED


def test_manual_run_has_one_attempt_whatever_is_asked(store: Harness) -> None:
    store.won("m", "a", lease_ms=1_000, max_attempts=9)
    store.advance(1_000)
    assert store.claim("m", "b", max_attempts=9) == store.reply(Outcome.DONE, done=DoneReason.EXHAUSTED)
    assert store.story() == [("m", 1, "lost")]
    assert store.unfinished() == []


# -- line 7: unfinished, lease over, another run has a live lease


@pytest.mark.parametrize("asker, other", [("skip", "skip"), ("skip", "allow"), ("allow", "skip")])
def test_takeover_waits_where_either_side_forbids_an_overlap(store: Harness, asker: str, other: str) -> None:
    slot = store.slot()
    die(store, "a", overlap="allow")
    store.won("m", "m", overlap=other, instance_id="host-m")
    holder = Holder("m", store.now, 1, "host-m", lease_left_ms=30_000)
    answer = store.claim(slot, "b", overlap=asker, mode=Mode.TAKEOVER)
    assert answer == store.reply(Outcome.OVERLAP, latest_ms=slot, holder=holder)
    assert store.unfinished() == [("m", 1, 30.0), (str(slot), 1, 0.0)]


def test_takeover_beside_another_run_where_both_allow_it(store: Harness) -> None:
    die(store, "a", overlap="skip")  # what the dead attempt said does not matter any more
    store.won("m", "m", overlap="allow")
    assert store.claim(store.slot(), "b", overlap="allow").attempt == 2


@pytest.mark.parametrize("gone", ["finished", "over"])
def test_takeover_is_free_once_the_other_run_is_gone(store: Harness, gone: str) -> None:
    die(store, "a")
    store.won("m", "m", lease_ms=2_000)
    if gone == "finished":
        store.finish("m", "m")
    else:
        store.advance(2_000)
    assert store.claim(store.slot(), "b").attempt == 2


def test_takeover_names_the_newest_of_the_runs_in_the_way(store: Harness) -> None:
    die(store, "a")
    for name, overlap in (("m1", "allow"), ("m2", "allow"), ("m3", "allow")):
        store.won(name, name, overlap=overlap)
    holder = store.claim(store.slot(), "b").holder
    assert holder is not None and holder.run_id == "m3"
    store.finish("m3", "m3")
    holder = store.claim(store.slot(), "b").holder
    assert holder is not None and holder.run_id == "m2"


# -- line 8: unfinished, lease over


@pytest.mark.parametrize("mode", Mode)
def test_dead_run_is_taken_over_with_the_next_attempt_and_fence(store: Harness, mode: Mode) -> None:
    slot = store.slot()
    first = store.won(slot, "a", lease_ms=5_000, instance_id="host-a")
    store.advance(8_000)
    # The window is for first attempts alone.
    second = store.claim(slot, "b", mode=mode, window_ms=0, trigger="takeover", instance_id="host-b")
    assert second == store.reply(Outcome.WON, latest_ms=slot, attempt=2, fence=store.slot() + 8_000)
    assert first.fence == slot
    (run,) = store.backend.active("job")
    assert (run.attempt, run.fence, run.trigger, run.instance_id) == (2, second.fence, "takeover", "host-b")
    assert (run.started_at, run.lease_left, run.slot) == (from_ms(store.now), 30.0, from_ms(slot))
    (lost,) = store.history()
    assert (lost.attempt, lost.status, lost.fence, lost.instance_id) == (1, "lost", first.fence, "host-a")
    assert (lost.started_at, lost.finished_at, lost.duration) == (from_ms(slot), from_ms(slot + 8_000), 8.0)


def test_released_run_is_taken_over_and_nothing_is_recorded_lost(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.release(slot, "a")
    assert store.claim(slot, "b", mode=Mode.TAKEOVER).attempt == 2
    assert store.story() == [(str(slot), 1, "interrupted")]


def test_released_attempt_is_not_recorded_lost_even_where_its_record_has_been_cut(store: Harness) -> None:
    store.won(store.slot(), "a", history_limit=9)
    store.release(store.slot(), "a")
    store.won("m", "m", history_limit=1)
    store.finish("m", "m")
    assert store.won(store.slot(), "b", history_limit=9).attempt == 2
    assert store.story() == [("m", 1, "success")]


def test_takeover_keeps_a_result_that_is_there_already(store: Harness) -> None:
    slot = store.slot()
    first = store.won(slot, "a", lease_ms=5_000)
    store.advance(5_000)
    store.save_result(slot, first)
    assert store.won(slot, "b").attempt == 2
    assert store.story() == [(str(slot), 1, "success")]


def test_takeover_brings_the_options_of_its_own_claim(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a", lease_ms=1_000, overlap="allow")
    store.advance(1_000)
    store.won(slot, "b", lease_ms=9_000, overlap="skip")
    assert store.claim("m", "m", overlap="allow").outcome is Outcome.OVERLAP
    assert store.unfinished() == [(str(slot), 2, 9.0)]


def test_fence_grows_by_one_where_the_clock_has_not_moved(store: Harness) -> None:
    first = store.won(store.slot(), "a")
    store.release(store.slot(), "a")
    second = store.won(store.slot(), "b")
    manual = store.claim("m", "m", overlap="allow")
    assert (first.fence, second.fence, manual.fence) == (store.now, store.now + 1, None)
    store.finish(store.slot(), "b")
    assert store.won("m", "m").fence == store.now + 2


def test_fence_grows_where_the_clock_has_stepped_back(store: Harness) -> None:
    first = store.won("m1", "a")
    store.finish("m1", "a")
    store.step(-3_600_000)
    assert store.won("m2", "b").fence == (first.fence or 0) + 1


def test_dead_run_is_taken_over_a_week_later(store: Harness) -> None:
    slot = store.slot()
    store.won(slot, "a")
    store.advance(7 * 86_400_000)
    assert store.claim(slot, "b", mode=Mode.TAKEOVER).attempt == 2
