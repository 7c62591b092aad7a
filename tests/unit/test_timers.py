"""Timers: each slot is fired once, when it is due on the store's clock, whatever the clocks and the schedule do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import Hang
from parts import job_of, nothing
from world import World

from anarchon.job import Job, make_call
from anarchon.options import parse_options, resolve_options
from anarchon.schedules import Schedule, cron
from anarchon.store_clock import StoreClock
from anarchon.testing import ManualClock
from anarchon.timers import JobTimers


class Timing:
    """Timers on a host's clock, and what they fire, in seconds since the start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock: ManualClock = world.skewed_clock()
        self.start_ms = self.clock.now_ms()
        self.store_clock = StoreClock(self.clock)
        self.threads = world.make_threads(self.clock)
        self.fired: list[tuple[float, float]] = []
        self.missed: list[tuple[float, float]] = []
        self.failed: list[tuple[str, Exception]] = []
        self.fire: Callable[[Job, int], None] = self.note
        #: What the thread that kept the time is to go on with, where a test wants it to.
        self.then: Callable[[], None] | None = None
        sources = world.sources(self.clock)
        self.timers = JobTimers(
            sources,
            self.threads,
            self.store_clock,
            lambda work: self.threads.start("elsewhere", work),
            self.due,
            lambda job, error: self.failed.append((job.name, error)),
        )

    def due(
        self, job: Job, first_ms: int, newest_ms: int, relieve: Callable[[], None] | None
    ) -> Callable[[], None] | None:
        if first_ms < newest_ms:
            self.missed.append((self.s(first_ms), self.s(newest_ms)))
        self.fire(job, newest_ms)
        if self.then is not None and relieve is not None:
            relieve()
            return self.then
        return None

    def s(self, instant_ms: int) -> float:
        return (instant_ms - self.start_ms) / 1000

    @property
    def now_s(self) -> float:
        return self.s(self.clock.now_ms())

    def note(self, job: Job, slot_ms: int) -> None:
        self.fired.append((self.now_s, self.s(slot_ms)))

    def arm(self, job: Job | None = None) -> None:
        self.timers.arm(job or job_of(), self.clock.now_ms())
        self.world.settle()

    def slots(self) -> list[float]:
        return [slot for _, slot in self.fired]


@pytest.fixture
def timing(world: World) -> Iterator[Timing]:
    timing = Timing(world)
    yield timing
    timing.timers.stop()
    world.settle()


def job_with(schedule: Any, **options: Any) -> Job:
    options = {"jitter": 0, **options}
    resolved = resolve_options({}, parse_options(options), schedule.interval_ms)
    return Job("x", schedule, nothing, make_call(nothing, "x"), resolved)


class Scheduled:
    """A schedule of every ten seconds that can be made to raise."""

    interval_ms: int | None = 10_000

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.raises: list[Exception | None] = []

    def _ask(self, what: str, instant_ms: int) -> None:
        self.asked.append((what, instant_ms))
        if self.raises and (error := self.raises.pop(0)) is not None:
            raise error

    def next_after(self, instant_ms: int) -> int:
        self._ask("next_after", instant_ms)
        return (instant_ms // 10_000 + 1) * 10_000

    def newest_at(self, instant_ms: int) -> int:
        self._ask("newest_at", instant_ms)
        return instant_ms // 10_000 * 10_000


# -- the plain case


def test_each_slot_is_fired_once_when_it_is_due(world: World, timing: Timing) -> None:
    timing.arm()
    world.pass_time("1m")
    assert timing.fired == [(at, at) for at in (10, 20, 30, 40, 50, 60)]
    assert (timing.missed, timing.failed) == ([], [])


def test_the_first_slot_is_the_first_one_after_the_arming_and_never_the_instant_itself(
    world: World, timing: Timing
) -> None:
    timing.arm()  # the start is a slot itself
    world.pass_time("10s")
    assert timing.slots() == [10]


def test_a_job_is_armed_once_and_all_jobs_have_one_thread(world: World, timing: Timing) -> None:
    job = job_of()
    for _ in range(3):
        timing.arm(job)
    timing.arm(job_of("y", interval="1d"))
    world.pass_time("20s")
    assert timing.slots() == [10, 20]
    assert [worker.name for worker in timing.threads._workers] == ["anarchon-timers"]


def test_the_thread_that_kept_the_time_goes_on_with_a_slot_and_another_keeps_it(world: World, timing: Timing) -> None:
    """
    1. the slot of 10 s comes due; its thread is relieved, and goes on with what hangs
    2. the slot of 20 s comes due: it is fired by the other, which is relieved in its turn
    3. both let go: neither of them keeps the time again beside the third
    """
    hang = Hang(world.clock)
    going_on: list[str] = []

    def go_on() -> None:
        going_on.append(threading.current_thread().name)
        hang()

    timing.then = go_on
    timing.arm()
    world.pass_time("20s")
    assert timing.slots() == [10, 20]
    assert going_on == ["anarchon-ask"] * 2
    assert world.alive() == 3
    hang.let_go()
    world.settle()
    timing.then = None
    world.pass_time("20s")
    assert timing.slots() == [10, 20, 30, 40]


def test_the_next_slot_is_known_before_this_one_is_fired(world: World, timing: Timing) -> None:
    schedule = Scheduled()
    known: list[bool] = []
    timing.fire = lambda job, slot_ms: known.append(("next_after", slot_ms) in schedule.asked)
    timing.arm(job_with(schedule))
    world.pass_time("30s")
    assert known == [True] * 3


def test_a_wait_is_never_longer_than_a_minute(world: World, timing: Timing) -> None:
    timing.arm(job_of(interval="1d"))
    with timing.clock._moved:
        [(_, end_ms)] = timing.clock._waits.values()
    assert end_ms == timing.clock._monotonic_ms + 60_000


def test_stop_wakes_every_timer_and_none_fires_after_it(world: World, timing: Timing) -> None:
    for number in range(100):
        timing.arm(job_of(f"job-{number}", interval="1d"))
    timing.timers.stop()
    world.settle()
    timing.arm(job_of("late"))
    world.pass_time("2d")
    assert timing.fired == []
    assert world.alive() == 0


def test_a_stop_between_the_wait_and_the_firing_is_heeded(world: World, timing: Timing) -> None:
    """
    1. a slot is due: the timer's wait is over
    2. a stop begins while it looks at the clock
    3. nothing is fired
    """

    def stop_meanwhile(job: str) -> bool:
        timing.timers.stop()
        return True

    timing.store_clock.is_fresh = stop_meanwhile  # type: ignore[method-assign]
    timing.arm()
    world.pass_time("10s")
    assert timing.fired == []


# -- jitter


def test_jitter_delays_the_timer_within_its_bounds_and_never_the_slot(world: World, timing: Timing) -> None:
    timing.arm(job_of(jitter="4s"))
    world.pass_time("10m")
    late = [at - slot for at, slot in timing.fired]
    assert timing.slots() == [10.0 * n for n in range(1, len(late) + 1)]
    assert all(0 <= ms <= 4 for ms in late)
    assert min(late) < 1 and max(late) > 3


def test_jitter_of_a_cron_job_does_not_delay_a_slot_past_the_next(world: World, timing: Timing) -> None:
    world.chance.pick = lambda low_ms, high_ms: high_ms
    timing.arm(job_with(cron("* * * * * *", seconds=True), jitter="30s"))
    world.pass_time("10s")
    assert [at - slot for at, slot in timing.fired] == [0.5] * 9
    assert timing.missed == []


# -- clocks


def test_a_suspended_machine_fires_the_newest_slot_and_tells_of_the_others(world: World, timing: Timing) -> None:
    """
    1. the timer waits for the slot of 10 s
    2. the machine is suspended for an hour: both clocks jump, and only the wait that was set then ends
    3. the newest slot is fired; the others before it are handed over by calculation, not one by one
    """
    timing.arm()
    timing.clock.advance("1h5s")
    world.settle()
    assert timing.fired == [(3_605, 3_600)]
    assert timing.missed == [(10, 3_600)]
    world.pass_time("5s")
    assert timing.slots() == [3_600, 3_610]


def test_a_clock_set_ahead_by_a_year_fires_once(world: World, timing: Timing) -> None:
    timing.arm()
    timing.clock.step_wall("365d")
    world.pass_time("10s")
    assert timing.slots() == [31_536_010]
    assert timing.missed == [(10, 31_536_010)]
    world.pass_time("10s")
    assert timing.slots()[1:] == [31_536_020]


def test_a_clock_set_back_runs_at_the_next_slot_of_the_new_time(world: World, timing: Timing) -> None:
    timing.arm()
    world.pass_time("25s")
    timing.clock.step_wall("-57m")
    world.pass_time("30s")
    assert timing.slots() == [10, 20, -3_390, -3_380, -3_370]
    assert timing.missed == []


def test_a_clock_set_back_during_the_wait_of_a_daily_job_is_noticed_within_a_minute(
    world: World, timing: Timing
) -> None:
    timing.arm(job_with(cron("5 0 * * *")))
    world.pass_time("6m")
    assert timing.slots() == [300]
    timing.clock.step_wall("-10m")  # four minutes before midnight, nine before the next slot
    world.pass_time("9m")
    assert timing.slots() == [300, 300]


def test_a_clock_that_is_stepped_every_hour_loses_no_slot_and_fires_none_early(world: World, timing: Timing) -> None:
    timing.arm(job_of(interval="5m"))
    for step in ("2m", "-2m", "90s", "-90s", "-7m", "7m"):
        world.pass_time("1h")
        timing.clock.step_wall(step)
    world.pass_time("1h")
    assert all(slot <= at for at, slot in timing.fired)
    fired = set(timing.slots()) | {
        missed for first, newest in timing.missed for missed in range(int(first), int(newest), 300)
    }  # fmt: skip
    assert fired == set(range(300, int(timing.now_s) + 1, 300))


def test_a_small_step_back_fires_no_slot_twice(world: World, timing: Timing) -> None:
    timing.arm()
    world.pass_time("10s")
    for _ in range(5):
        timing.clock.step_wall("-900ms")
        world.pass_time("10s")
    assert timing.slots() == [10, 20, 30, 40, 50]


def test_slots_are_those_of_the_stores_clock(world: World) -> None:
    """The host's clock is an hour ahead; the store's time is known; the host's is stepped again, meanwhile."""
    timing = Timing(world)
    timing.clock.step_wall("1h")
    timing.store_clock._ask = lambda job: timing.store_clock.observe(
        job, timing.clock.monotonic_ms(), world.now_ms
    )  # fmt: skip
    timing.store_clock.look("x")
    timing.fire = lambda job, slot_ms: timing.fired.append((world.now_ms - slot_ms, timing.s(slot_ms)))
    timing.timers.arm(job_of(), world.now_ms)
    world.pass_time("20s")
    timing.clock.step_wall("-3h")
    world.pass_time("20s")
    assert timing.fired == [(0, 10), (0, 20), (0, 30), (0, 40)]
    timing.timers.stop()


# -- faults


@pytest.mark.parametrize("error", [RuntimeError("fire"), KeyError("x")])
def test_a_fire_that_raises_is_told_and_the_next_slot_comes(world: World, timing: Timing, error: Exception) -> None:
    def broken(job: Job, slot_ms: int) -> None:
        timing.note(job, slot_ms)
        raise error

    timing.fire = broken
    timing.arm(job_of(interval="1s"))
    world.pass_time("5s")
    assert timing.slots() == [1, 2, 3, 4, 5]
    assert timing.failed == [("x", error)] * 5


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_schedule_that_raises_once_loses_no_slot(world: World, timing: Timing, calls: int) -> None:
    schedule = Scheduled()
    schedule.raises = [*[None] * (calls - 1), OverflowError("no slot")]
    timing.arm(job_with(schedule))
    world.pass_time("1m")
    assert timing.slots() == [10, 20, 30, 40, 50, 60]
    # Where it raises while there is time, it is asked again in its time, and nothing is to be told.
    assert [type(error) for _, error in timing.failed] == [OverflowError] * (calls == 1)
    assert timing.missed == []


@pytest.mark.parametrize("calls", range(1, 20))
def test_a_store_that_does_not_know_its_clock_for_once_ends_no_timer(world: World, calls: int) -> None:
    """A backend that somebody else wrote names the clock of a job, and raises; a thread keeps the time of all jobs."""
    timing = Timing(world)
    names = iter([*["clock"] * calls, None])

    def clock_of(job: str) -> str:
        if (name := next(names, "clock")) is None:
            raise KeyError(job)
        return name

    timing.store_clock.clock_of = clock_of
    timing.arm(job_of("x"))
    timing.arm(job_of("y"))
    world.pass_time("2m")
    assert {at for at, _ in timing.fired} >= {10 * number for number in range(2, 13)}
    assert len(timing.fired) == 2 * 12
    timing.timers.stop()


def test_a_schedule_that_goes_on_raising_is_tried_less_and_less_often(world: World, timing: Timing) -> None:
    schedule = Scheduled()
    schedule.raises = [OverflowError("no slot") for _ in range(1_000)]
    timing.arm(job_with(schedule))
    times = []
    for _ in range(12):
        tries = len(timing.failed)
        world.until(lambda tries=tries: len(timing.failed) > tries)
        times.append(timing.now_s)
    assert [b - a for a, b in itertools.pairwise(times)] == [2, 4, 8, 16, 32] + [60] * 6
    schedule.raises.clear()
    world.pass_time("2m")
    assert timing.fired


def test_one_broken_job_does_not_hold_up_another(world: World, timing: Timing) -> None:
    schedule = Scheduled()
    schedule.raises = [OverflowError("no slot") for _ in range(1_000)]
    timing.arm(job_with(schedule))
    timing.arm(job_of("fine"))
    world.pass_time("30s")
    assert timing.slots() == [10, 20, 30]


def test_a_timer_that_finds_no_thread_may_be_armed_again(
    world: World, timing: Timing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError):
        timing.timers.arm(job_of(), timing.clock.now_ms())
    monkeypatch.undo()
    timing.arm()
    world.pass_time("10s")
    assert timing.slots() == [10]


# -- cron


def test_a_cron_job_fires_through_a_clock_change(world: World) -> None:
    """At one o'clock UTC on 29 March 2026 the clocks of Athens go from three to four."""
    start = datetime(2026, 3, 29, 0, 50, tzinfo=timezone.utc)
    world = World(start)
    timing = Timing(world)
    schedule: Schedule = cron("*/15 * * * *", "Europe/Athens")
    timing.arm(job_with(schedule))
    world.pass_time("40m")
    assert timing.slots() == [600, 1_500, 2_400]
    timing.timers.stop()
    world.close()
