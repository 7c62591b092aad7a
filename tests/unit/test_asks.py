"""Asks: short calls to the store, in the order in which they came due, by a bounded number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from parts import Bench
from world import World

from anarchon.runners.asks import Asks


@pytest.fixture
def bench(world: World) -> Iterator[Bench]:
    bench = Bench(world)
    yield bench
    bench.end()


def test_asks_begin_in_the_order_in_which_they_came_due(world: World, bench: Bench) -> None:
    asks = Asks(world.clock, bench.threads, bench.alarms, limit=1)
    asked: list[str] = []
    asks.after(2_000, lambda: asked.append("second"))
    asks.after(1_000, lambda: asked.append("first"))
    asks.soon(lambda: asked.append("at once"))
    world.pass_time("3s")
    assert asked == ["at once", "first", "second"]


def test_a_cancelled_ask_is_not_made(world: World, bench: Bench) -> None:
    asked: list[str] = []
    bench.asks.after(1_000, lambda: asked.append("cancelled")).cancel()
    world.pass_time("2s")
    assert asked == []


def test_however_many_asks_hang_there_are_eight_threads(world: World, bench: Bench) -> None:
    gate = world.clock.event()
    asked: list[int] = []
    for number in range(1_000):
        bench.asks.soon(lambda number=number: (asked.append(number), world.clock.wait(gate, None)))
    world.settle()
    # Each on a thread of its own: whose turn it is between taking an ask and making it is the machine's to say.
    assert sorted(asked) == list(range(8))
    assert world.alive() == 8 + 1  # and the alarms'
    gate.set()
    world.settle()
    assert sorted(asked) == list(range(1_000))


def test_a_thread_that_is_relieved_makes_the_ask_itself_if_there_may_be_one_more(world: World, bench: Bench) -> None:
    asks = Asks(world.clock, bench.threads, bench.alarms, limit=1)
    asked: list[str] = []
    relieved: list[str] = []
    work = asks.here(lambda: asked.append("first"), lambda: relieved.append("first"))
    # The one thread that may ask is this one; it has yet to begin.
    assert asks.here(lambda: asked.append("second"), lambda: relieved.append("second")) is None
    assert (asked, relieved) == ([], ["first"])
    assert not asks.idle()
    assert work is not None
    work()
    assert (asked, relieved) == (["first", "second"], ["first"])
    assert asks.idle()


def test_a_thread_that_cannot_be_relieved_leaves_the_ask_to_the_next_that_can_be_had(
    world: World, bench: Bench
) -> None:
    asked: list[str] = []

    def relieve() -> None:
        raise RuntimeError("can't start new thread")

    assert bench.asks.here(lambda: asked.append("first"), relieve) is None
    world.settle()
    assert asked == []
    world.pass_time("1s")
    assert asked == ["first"]
    assert bench.asks.idle()


def test_after_close_no_thread_is_relieved(bench: Bench) -> None:
    relieved: list[str] = []
    bench.asks.close()
    assert bench.asks.here(lambda: None, lambda: relieved.append("first")) is None
    assert relieved == []


def test_an_ask_that_raises_is_told_and_the_next_one_is_made(
    world: World, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr("threading.excepthook", lambda args: told.append(args.exc_type))
    asked: list[str] = []
    asks = Asks(world.clock, bench.threads, bench.alarms, limit=1)
    asks.soon(lambda: 1 / 0)
    asks.soon(lambda: asked.append("next"))
    world.settle()
    assert (told, asked) == ([ZeroDivisionError], ["next"])
    assert asks.idle()


def test_after_close_none_begins_and_what_has_begun_goes_on(world: World, bench: Bench) -> None:
    gate = world.clock.event()
    asked: list[str] = []
    asks = Asks(world.clock, bench.threads, bench.alarms, limit=1)
    asks.soon(lambda: (world.clock.wait(gate, None), asked.append("had begun")))
    asks.soon(lambda: asked.append("queued"))
    asks.after(1_000, lambda: asked.append("later"))
    world.settle()
    asks.close()
    asks.soon(lambda: asked.append("too late"))
    gate.set()
    world.pass_time("5s")
    assert asked == ["had begun"]


# -- waiting for them


def test_whoever_waits_is_woken_when_the_last_ask_has_ended(world: World, bench: Bench) -> None:
    gates = [world.clock.event() for _ in range(2)]
    for gate in gates:
        bench.asks.soon(lambda gate=gate: world.clock.wait(gate, None))
    waiting = [world.spawn(lambda: bench.asks.wait_until_idle(None)) for _ in range(3)]
    gates[0].set()
    world.settle()
    assert not any(task.done for task in waiting)
    gates[1].set()
    world.settle()
    assert [task.result() for task in waiting] == [True] * 3


def test_a_wait_that_is_too_short_says_so(world: World, bench: Bench) -> None:
    gate = world.clock.event()
    bench.asks.soon(lambda: world.clock.wait(gate, None))
    waiting = world.spawn(lambda: bench.asks.wait_until_idle(2_500))
    assert world.until(lambda: waiting.done) == 2_500
    assert waiting.result() is False
    gate.set()


def test_an_ask_made_apart_is_waited_for_and_none_begins_after_close(world: World, bench: Bench) -> None:
    gate = world.clock.event()

    def ask() -> bool:
        with bench.asks.apart() as may:
            world.clock.wait(gate, None)
            return may

    asking = world.spawn(ask)
    waiting = world.spawn(lambda: bench.asks.wait_until_idle(None))
    assert not waiting.done
    gate.set()
    world.settle()
    assert (asking.result(), waiting.result()) == (True, True)
    bench.asks.close()
    assert world.run(ask) is False
    assert bench.asks.idle()


def test_an_ask_that_waits_for_the_others_does_not_wait_for_itself(world: World, bench: Bench) -> None:
    results: list[bool] = []

    def ask() -> None:
        with bench.asks.excused() as mine:
            results.append(bench.asks.wait_until_idle(None, but_for_excused=mine))

    bench.asks.soon(ask)
    world.settle()
    assert results == [True]


def test_two_asks_that_wait_do_not_wait_for_each_other_and_a_stranger_waits_for_both(
    world: World, bench: Bench
) -> None:
    """
    1. two asks are at work; each comes to a listener that stops the scheduler
    2. each is excused, so the other need not wait for it
    3. whoever waits from outside waits until both have ended
    """
    gates = [world.clock.event() for _ in range(2)]
    results: list[bool] = []
    inside = world.clock.event()

    def ask(last: bool) -> None:
        world.clock.wait(gates[last], None)
        with bench.asks.excused() as mine:
            results.append(bench.asks.wait_until_idle(None, but_for_excused=mine))
            world.clock.wait(inside, None)

    bench.asks.soon(lambda: ask(False))
    bench.asks.soon(lambda: ask(True))
    outside = world.spawn(lambda: bench.asks.wait_until_idle(None))
    gates[0].set()
    world.settle()
    assert results == []  # the other one is still at work
    gates[1].set()
    world.settle()
    assert (results, outside.done) == ([True, True], False)
    inside.set()
    world.settle()
    assert outside.result() is True


# -- no thread to be had


def test_an_ask_that_finds_no_thread_is_made_by_one_that_is_at_work(
    world: World, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = world.clock.event()
    asked: list[str] = []
    bench.asks.soon(lambda: world.clock.wait(gate, None))
    world.settle()
    monkeypatch.setattr(bench.threads, "start", no_thread)
    bench.asks.soon(lambda: asked.append("taken"))
    gate.set()
    world.settle()
    assert asked == ["taken"]


def test_an_ask_that_finds_no_thread_at_all_is_made_as_soon_as_there_is_one(
    world: World, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = bench.threads.start
    monkeypatch.setattr(bench.threads, "start", no_thread)
    asked: list[str] = []
    bench.asks.soon(lambda: asked.append("late, but made"))
    world.pass_time("10s")
    assert (asked, bench.asks.idle()) == ([], True)
    monkeypatch.setattr(bench.threads, "start", start)
    world.pass_time("1s")
    assert asked == ["late, but made"]


def no_thread(name: str, work: object) -> None:
    raise RuntimeError("can't start new thread")
