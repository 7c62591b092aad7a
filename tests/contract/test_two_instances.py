"""Several instances on one store: clocks that disagree, and a counter that nothing but the claim guards."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

from harness import Harness

from anarchon.records import ClaimRequest, DoneReason, Outcome, Verdict

HOUR_MS = 3_600_000


def test_request_carries_no_time_of_its_instance() -> None:
    # The slot is the schedule's; the two others are durations, which the store adds to its own time.
    assert {f.name for f in fields(ClaimRequest) if "_ms" in f.name} == {"slot_ms", "lease_ms", "window_ms"}


def test_instance_an_hour_ahead_is_told_how_long_to_wait_and_starts_on_time(store: Harness) -> None:
    believed = store.slot() + HOUR_MS  # the newest slot by its own clock
    waiting = store.claim(believed, "fast")
    assert waiting == store.reply(Outcome.NONE, wait_ms=HOUR_MS)
    store.advance(HOUR_MS - 1)
    assert store.claim(believed, "fast") == store.reply(Outcome.NONE, wait_ms=1)
    store.advance(1)
    assert store.claim(believed, "fast").outcome is Outcome.WON


def test_instance_an_hour_behind_starts_nothing_that_the_store_finds_too_old(store: Harness) -> None:
    believed = store.slot() - HOUR_MS
    assert store.claim(believed, "slow") == store.reply(Outcome.LATE)
    store.won(store.slot(), "right")
    assert store.claim(believed, "slow", window_ms=2 * HOUR_MS).done is DoneReason.PASSED


def test_two_instances_two_hours_apart_agree_on_who_runs_a_slot(store: Harness) -> None:
    """Whoever asks for the slot that is due wins it, once, whatever else its clock made it ask for before."""
    winners = []
    for number in range(1, 7):
        store.advance(10_000)
        askers = ("fast", "slow") if number % 2 else ("slow", "fast")
        for name in askers:
            wrong = store.slot(number) + (HOUR_MS if name == "fast" else -HOUR_MS)
            assert store.claim(wrong, f"{name}-wrong-{number}", instance_id=name).outcome is not Outcome.WON
            if store.claim(store.slot(number), f"{name}-{number}", instance_id=name).outcome is Outcome.WON:
                winners.append(name)
                store.finish(store.slot(number), f"{name}-{number}", instance_id=name)
    assert winners == ["fast", "slow"] * 3


THREADS = 8
SLOTS = 30


def test_counter_that_only_the_claim_guards_loses_no_addition(store: Harness) -> None:
    """Each thread is an instance. Whoever wins a slot reads the counter, yields, and writes it back plus one."""
    backends = [store.backend, store.another()]
    store.advance(SLOTS * 10_000)
    start = threading.Barrier(THREADS)
    ended = threading.Condition()
    counter, ends = 0, 0

    def instance(number: int) -> list[int]:
        nonlocal counter, ends
        backend, won = backends[number % 2], []
        start.wait()
        for slot in map(store.slot, range(SLOTS)):
            request = store.request(slot, f"{number}-{slot}", window_ms=HOUR_MS, instance_id=f"host-{number}")
            while True:
                ends_seen = ends
                outcome = backend.claim(request).outcome
                if outcome is not Outcome.OVERLAP:
                    break
                with ended:  # an older slot is still running: ask again once a run has ended
                    while ends == ends_seen:
                        assert ended.wait(timeout=30)
            if outcome is Outcome.WON:
                read = counter
                time.sleep(0)
                counter = read + 1
                assert backend.finish("job", str(slot), request.token, store.record(slot)) is Verdict.OK
                won.append(slot)
                with ended:
                    ends += 1
                    ended.notify_all()
        return won

    with ThreadPoolExecutor(THREADS) as pool:
        won = [slot for slots in pool.map(instance, range(THREADS)) for slot in slots]
    assert counter == len(won) == len(set(won))
    assert store.slot(SLOTS - 1) in won
    assert sorted(won) == sorted(int(run) for run, _, _ in store.story())
