"""One instance's way to its store: failures are told once, calls are bounded, repeats carry the same token."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from fakes import FirstComeBackend, Hang, ScriptedBackend
from world import REAL_SECONDS, World, in_time

from anarchon import BackendError, RunRecord
from anarchon.durations import from_ms
from anarchon.records import ClaimRequest, Mode, Outcome, Verdict
from anarchon.store import ASKS_IN_FLIGHT, ClaimOnlyStore, Store, pause_ms


class Told(list[tuple[str, str, BaseException]]):
    def __call__(self, operation: str, job: str, error: BaseException) -> None:
        self.append((operation, job, error))

    def words(self) -> list[str]:
        return [f"{operation} {job}" for operation, job, _ in self]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def store(world: World, told: Told) -> Store:
    return Store(world.backend, world.sources(), told)


def request(world: World, job: str = "x", token: str = "t", **fields: Any) -> ClaimRequest:
    values: dict[str, Any] = dict(
        job=job, slot_ms=world.now_ms, run_id=str(world.now_ms), token=token, instance_id="a", lease_ms=30_000,
        overlap="skip", max_attempts=3, window_ms=60_000, mode=Mode.START, trigger="scheduled", history_limit=10,
    )  # fmt: skip
    return ClaimRequest(**{**values, **fields})


def record(world: World, **fields: Any) -> RunRecord:
    values: dict[str, Any] = dict(
        job="x", slot=from_ms(world.now_ms), run_id=str(world.now_ms), attempt=1, trigger="scheduled",
        status="success", instance_id="a", fence=1, started_at=from_ms(world.now_ms),
        finished_at=from_ms(world.now_ms), duration=0.0,
    )  # fmt: skip
    return RunRecord(**{**values, **fields})


def failing(store: Store, *jobs: str) -> None:
    for job in jobs:
        with pytest.raises(BackendError):
            store.active(job)


# -- outages


def test_an_outage_is_told_once_and_not_with_each_repeat(world: World, store: Store, told: Told) -> None:
    world.script.down = True
    failing(store, "x", "x", "y", "x")
    assert told.words() == ["active x"]
    assert str(told[0][2]) == "the store is down"


def test_each_operation_tells_an_outage_of_its_own(world: World, store: Store, told: Told) -> None:
    world.script.down = True
    failing(store, "x")
    with pytest.raises(BackendError):
        store.history("x", 1)
    with pytest.raises(BackendError):
        store.claim(request(world))
    assert told.words() == ["active x", "history x", "claim x"]


def test_the_next_outage_is_told_again_and_the_end_of_one_is_logged_once(
    world: World, store: Store, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "anarchon"):
        for _ in range(2):
            world.script.down = True
            failing(store, "x", "y")
            world.script.down = False
            store.active("x")
            store.active("y")
            store.active("y")
    assert told.words() == ["active x", "active x"]
    assert caplog.messages == ["The store answers again: active."] * 2


def test_one_broken_job_does_not_silence_a_store_that_goes_away(world: World, store: Store, told: Told) -> None:
    world.script.next("active", ValueError("corrupt"), ConnectionError("gone"), ValueError("corrupt"))
    failing(store, "broken", "x", "broken")
    assert told.words() == ["active broken", "active x"]


def test_a_job_that_nobody_asks_for_any_more_does_not_silence_later_outages(
    world: World, store: Store, told: Told
) -> None:
    world.script.next("active", ConnectionError("gone"))
    failing(store, "once")
    world.pass_time("3m")
    world.script.next("active", ConnectionError("gone"))
    failing(store, "x")
    assert told.words() == ["active once", "active x"]


def test_what_the_report_is_told_carries_the_drivers_error(world: World, store: Store, told: Told) -> None:
    cause = ConnectionError("refused")
    world.script.next("active", cause)
    failing(store, "x")
    assert told[0][2].__cause__ is cause


# -- what a backend may raise


class Odd(BaseException):
    """What is not even an Exception, and has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("odd"), "active failed in the backend: ValueError: odd"),
        (KeyError("x"), "active failed in the backend: KeyError: 'x'"),
        (BackendError("as it is"), "as it is"),
    ],
)
def test_whatever_a_backend_raises_becomes_a_backend_error(
    world: World, store: Store, error: Exception, text: str
) -> None:
    world.script.next("active", error)
    with pytest.raises(BackendError) as raised:
        store.active("x")
    assert str(raised.value) == text
    assert raised.value is error or raised.value.__cause__ is error


@pytest.mark.parametrize("error", [Odd(), SystemExit(1), KeyboardInterrupt()])
def test_on_a_librarys_thread_not_even_a_base_exception_gets_through(
    world: World, store: Store, error: BaseException
) -> None:
    world.script.next("active", error)
    with pytest.raises(BackendError, match=f"active failed in the backend: {type(error).__name__}"):
        world.run(lambda: store.active("x"))


def test_ctrl_c_gets_through_on_the_main_thread(world: World, store: Store, told: Told) -> None:
    world.script.next("active", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.active("x")
    assert told == []


# -- repeats


def test_finish_is_repeated_with_the_same_token_until_it_is_answered(world: World, store: Store, told: Told) -> None:
    store.claim(request(world))
    world.script.next("finish", "fail", "lose", "fail")
    assert world.run(lambda: store.finish("x", str(world.now_ms), "t", record(world))) is Verdict.OK
    sent = world.script.sent("finish")
    assert len(sent) == 4 and all(given == sent[0] for given in sent)
    assert told.words() == ["finish x"]
    assert len(world.store.history("x", 10)) == 1


def test_release_and_save_result_are_repeated_likewise(world: World, store: Store) -> None:
    store.claim(request(world))
    world.script.next("release", "fail", "lose")
    world.script.next("save_result", "lose", "fail")
    run_id = str(world.now_ms)
    interrupted = record(world, status="interrupted")
    assert world.run(lambda: store.release("x", run_id, "t", interrupted, False)) is Verdict.OK
    world.run(lambda: store.save_result("x", interrupted))
    assert len(world.script.sent("release")) == len(world.script.sent("save_result")) == 3


def test_pauses_between_repeats_grow_to_five_seconds_and_are_jittered(world: World) -> None:
    sources = world.sources()
    world.chance.draws.clear()
    for tries in (1, 2, 3, 4, 5, 6, 7, 20, 10_000):
        pause_ms(sources, tries)
    assert world.chance.draws == [
        (50, 100), (100, 200), (200, 400), (400, 800), (800, 1600), (1600, 3200), (2500, 5000), (2500, 5000),
        (2500, 5000),
    ]  # fmt: skip


def test_only_what_ends_a_run_is_repeated(world: World, store: Store) -> None:
    calls = [
        lambda: store.claim(request(world)),
        lambda: store.heartbeat("x", "1", "t", 30_000),
        lambda: store.active("x"),
        lambda: store.history("x", 1),
        lambda: store.forget("x"),
        lambda: store.read_time("x"),
    ]
    world.script.down = True
    for call in calls:
        with pytest.raises(BackendError):
            call()
    assert len(world.script.calls) == len(calls)


# -- the clock


def test_every_claim_is_a_sample_of_the_stores_clock(world: World, told: Told) -> None:
    store = Store(world.backend, world.sources(world.skewed_clock("1h")), told)
    store.claim(request(world))
    assert store.clock.now_ms("x") == world.now_ms
    assert world.script.sent("time") == []


def test_reading_the_time_is_a_sample_too(world: World, told: Told) -> None:
    store = Store(world.backend, world.sources(world.skewed_clock("-1h")), told)
    store.clock.refresh("x")
    assert store.clock.now_ms("x") == world.now_ms


# -- how many at once


def test_questions_in_flight_are_bounded_and_hold_up_no_holder_and_no_other_store(world: World) -> None:
    """
    1. a store hangs: as many questions as may be are on their way, and more wait their turn
    2. the holder of a lease renews it all the same, and finishes its run
    3. another store of this process answers all the same
    4. the store wakes up: every question is asked, never more at once than may be
    """
    gate = threading.Event()
    full = threading.Event()
    lock = threading.Lock()
    in_flight = most = 0

    def hang() -> None:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
            if in_flight == ASKS_IN_FLIGHT:
                full.set()
        gate.wait()
        with lock:
            in_flight -= 1

    def hold_and_ask_another() -> None:
        assert store.heartbeat("x", request(world).run_id, "t", 30_000) is Verdict.OK
        assert store.finish("x", request(world).run_id, "t", record(world)) is Verdict.OK
        assert Store(ScriptedBackend(world.store), world.sources(), Told()).active("x") == []

    backend = ScriptedBackend(world.store)
    store = Store(backend, world.sources(), Told())
    assert store.claim(request(world)).outcome is Outcome.WON
    backend.script.next("active", *[hang] * (ASKS_IN_FLIGHT + 8))
    threads = [threading.Thread(target=store.active, args=("x",), daemon=True) for _ in range(ASKS_IN_FLIGHT + 8)]
    for thread in threads:
        thread.start()
    try:
        assert full.wait(REAL_SECONDS)
        in_time(hold_and_ask_another)
    finally:
        gate.set()
        for thread in threads:
            thread.join(REAL_SECONDS)
    assert most == ASKS_IN_FLIGHT
    assert len([call for call in backend.script.calls if call[0] == "active"]) == ASKS_IN_FLIGHT + 8


# -- claim-only


def test_a_claim_only_store_answers_won_or_done(world: World, told: Told) -> None:
    store = ClaimOnlyStore(FirstComeBackend(), world.sources(), told)
    first, second = store.claim(request(world, token="a")), store.claim(request(world, token="b"))
    assert (first.outcome, first.attempt, second.outcome) == (Outcome.WON, 1, Outcome.DONE)
    assert store.active("x") == []
    assert store.clock.now_ms("x") == world.now_ms


def test_a_claim_only_store_is_not_asked_for_a_slot_that_is_late(world: World, told: Told) -> None:
    backend = FirstComeBackend()
    store = ClaimOnlyStore(backend, world.sources(), told)
    assert store.claim(request(world, slot_ms=world.now_ms - 60_000)).outcome is Outcome.WON
    assert store.claim(request(world, slot_ms=world.now_ms - 60_001)).outcome is Outcome.LATE
    assert len(backend.script.calls) == 1


@pytest.mark.parametrize(("minutes", "outcome"), [(11, Outcome.WON), (11.1, Outcome.LATE)])
def test_a_grant_that_took_so_long_that_the_claim_of_another_may_be_gone_is_given_up(
    world: World, told: Told, minutes: float, outcome: Outcome
) -> None:
    backend = FirstComeBackend()
    store = ClaimOnlyStore(backend, world.sources(), told)
    slot_ms = world.now_ms
    backend.script.next("claim", lambda: world.clock.advance(minutes * 60))
    assert store.claim(request(world, slot_ms=slot_ms, window_ms=60_000)).outcome is outcome


def test_a_claim_only_store_repeats_its_results_and_tells_outages(world: World, told: Told) -> None:
    backend = FirstComeBackend()
    store = ClaimOnlyStore(backend, world.sources(), told)
    backend.script.next("save_result", "fail", "fail")
    world.run(lambda: store.save_result("x", record(world), 5))
    assert told.words() == ["save_result x"]
    assert len(store.history("x", 9)) == 1
    store.forget("x")
    assert store.history("x", 9) == []
    backend.script.down = True
    with pytest.raises(BackendError):
        store.claim(request(world))


def test_a_call_that_hangs_holds_up_no_other(world: World, store: Store) -> None:
    hang = Hang(world.clock)
    world.script.next("active", hang)
    task = world.spawn(lambda: store.active("x"))
    assert store.history("x", 1) == []
    assert not task.done
    hang.let_go()
    world.settle()
    assert task.result() == []
