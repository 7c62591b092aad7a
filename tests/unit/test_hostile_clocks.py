"""Whole schedulers under hostile clocks: set back an hour, set ahead a year, stepped each hour, suspended for a day.

Where the store keeps the host's time it is stepped with it; where it keeps its own, only the host's clock moves. Either
way: the newest slot is calculated and nothing is enumerated; no slot that a clock showed is passed over in silence,
none runs early by the store's clock, and the schedule goes on with the next slot. Work is counted, never timed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from fakes import ScriptedBackend
from freezegun import freeze_time
from world import REAL_SECONDS, Heard, World

from anarchon import Event, MemoryBackend, RunContext, Scheduler
from anarchon.clock import SystemClock
from anarchon.durations import Duration, parse_duration, to_ms
from anarchon.events import EVENT_TYPES
from anarchon.schedules import Cron, Every
from anarchon.sources import Sources
from anarchon.testing import ManualClock

START = datetime(2026, 3, 10, 7, 30, tzinfo=timezone.utc)
A_YEAR = "365d"


class HostileClock(ManualClock):
    """A host's clock. Its waits are counted, and like an Event's they stand still while the machine is suspended."""

    def __init__(self, start: datetime) -> None:
        super().__init__(start)
        self.timer_waits = 0
        self._suspended_ms = 0

    def monotonic_ms(self) -> int:
        with self._moved:
            return super().monotonic_ms() + self._suspended_ms

    def wait(self, event: threading.Event, timeout_ms: int | None) -> bool:
        if threading.current_thread().name.startswith("anarchon-timer"):
            with self._moved:
                self.timer_waits += 1
        return super().wait(event, timeout_ms)

    def suspend(self, duration: Duration) -> None:
        with self._moved:
            self.step_wall(duration)
            self._suspended_ms += parse_duration(duration, "duration")


class Host:
    """A scheduler with a job of each kind on a hostile clock, its store on the same or on a clock of its own."""

    def __init__(self, world: World, own_clock: bool) -> None:
        self.world = world
        self.clock = HostileClock(START)
        world._clocks.append(self.clock)
        self.store_clock = world.clock if own_clock else self.clock
        self.backend = ScriptedBackend(MemoryBackend(self.store_clock))
        self.runs: list[tuple[str, int, int]] = []
        self.scheduler = world.scheduler("a", self.backend, self.clock)
        self.heard: Heard = self.scheduler.heard

    def start(self, **texts: str) -> None:
        for name, text in texts.items():
            if " " in text:
                self.scheduler.cron(name, text, self._run)
            else:
                self.scheduler.every(name, text, self._run)
        self.scheduler.start()
        self.world.settle()

    def _run(self, ctx: RunContext) -> None:
        self.runs.append((ctx.job, to_ms(ctx.slot), self.store_clock.now_ms()))

    def step(self, duration: Duration) -> None:
        self.clock.step_wall(duration)

    def suspend(self, duration: Duration) -> None:
        self.clock.suspend(duration)
        if self.store_clock is not self.clock:
            self.store_clock.advance(duration)

    def ran(self, job: str) -> list[str]:
        """The slots that were run, in order; none of them early."""
        assert [(slot_ms, at_ms) for _, slot_ms, at_ms in self.runs if at_ms < slot_ms] == []
        return [clock_face(slot_ms) for name, slot_ms, _ in self.runs if name == job]

    def skipped(self, job: str) -> list[tuple[str, str | None, int | None]]:
        return [
            (clock_face(to_ms(event.slot)), event.reason, event.count)
            for event in self.heard.of("skip")
            if event.job == job and event.slot is not None
        ]

    def late(self, job: str) -> list[tuple[str, int | None]]:
        return [(slot, count) for slot, reason, count in self.skipped(job) if reason == "late"]

    def taken(self, job: str) -> list[str]:
        return [slot for slot, reason, _ in self.skipped(job) if reason == "taken"]


def clock_face(instant_ms: int) -> str:
    """``"10 08:02:10"``: the day of the month and the time."""
    return f"{datetime.fromtimestamp(instant_ms / 1000, timezone.utc):%d %H:%M:%S}"


def slots(first: str, newest: str, seconds: int) -> list[str]:
    """Every so many seconds from the one to the other, both included; all in March."""
    low, high = (to_ms(datetime.strptime(f"2026-03-{face}+0000", "%Y-%m-%d %H:%M:%S%z")) for face in (first, newest))
    return [clock_face(ms) for ms in range(low, high + 1, seconds * 1000)]


@pytest.fixture
def world() -> Iterator[World]:
    world = World(START)
    yield world
    world.close()


@pytest.fixture(params=[False, True], ids=["store on the host's clock", "store on its own clock"])
def any_host(world: World, request: pytest.FixtureRequest) -> Host:
    return Host(world, request.param)


@pytest.fixture
def host(world: World) -> Host:
    """Its store keeps the host's time."""
    return Host(world, own_clock=False)


@pytest.fixture
def lone_host(world: World) -> Host:
    """Its store has a clock of its own, which nobody steps."""
    return Host(world, own_clock=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often any schedule was asked for anything."""
    calls: Counter[str] = Counter()

    def count(kind: type, method: str) -> None:
        original: Callable[..., Any] = getattr(kind, method)

        def counted(self: object, *instants: int) -> Any:
            calls[f"{kind.__name__}.{method}"] += 1
            return original(self, *instants)

        monkeypatch.setattr(kind, method, counted)

    for kind in (Every, Cron):
        for method in ("next_after", "newest_at", "count"):
            count(kind, method)
    return calls


JOBS = {"ten": "10s", "five": "*/5 * * * *", "hourly": "0 * * * *"}


# -- set back by an hour


def test_set_back_an_hour_the_jobs_go_on_at_the_next_slot_of_the_new_time(host: Host, world: World) -> None:
    """apscheduler#351, schedule#323: nothing ran until the old time had come round again.

    07:30:00  started
    08:02:03  set back to 07:02:03, the store's clock with it
    """
    host.start(**JOBS)
    world.pass_time("32m3s")
    before = {job: host.ran(job) for job in JOBS}
    host.step("-1h")
    world.pass_time("27m57s")
    after = {job: host.ran(job)[len(before[job]) :] for job in JOBS}
    assert before == {
        "ten": slots("10 07:30:10", "10 08:02:00", 10),
        "five": slots("10 07:35:00", "10 08:00:00", 300),
        "hourly": ["10 08:00:00"],
    }
    assert after == {
        "ten": slots("10 07:02:10", "10 07:30:00", 10),
        "five": slots("10 07:05:00", "10 07:30:00", 300),
        "hourly": [],
    }
    assert host.heard.of("skip") == []


def test_the_hour_that_comes_again_runs_no_slot_twice_that_the_store_remembers(host: Host, world: World) -> None:
    """A finished run is remembered for ten minutes, and the 16 newest of a job whatever their age. What is older may
    run once more when the store's own clock is set back: its owner wants a job that runs, not one that waits an hour.
    """
    host.start(**JOBS)
    world.pass_time("32m3s")
    host.step("-1h")
    world.pass_time("1h10m")
    for job, first, newest, seconds in (
        ("ten", "10 07:52:10", "10 08:02:00", 10),
        ("five", "10 07:35:00", "10 08:00:00", 300),
        ("hourly", "10 08:00:00", "10 08:00:00", 3600),
    ):
        remembered, ran = slots(first, newest, seconds), Counter(host.ran(job))
        assert host.taken(job)[-len(remembered) :] == remembered
        assert {ran[slot] for slot in remembered} == {1}
        assert max(ran.values()) <= 2
    # And on it goes, past the time of the step.
    assert host.ran("ten")[-60:] == slots("10 08:02:10", "10 08:12:00", 10)
    assert host.ran("five")[-2:] == slots("10 08:05:00", "10 08:10:00", 300)
    assert {reason for job in JOBS for _, reason, _ in host.skipped(job)} == {"taken"}


def test_a_slot_that_comes_due_before_the_step_back_is_noticed_is_not_passed_over(host: Host, world: World) -> None:
    """
    08:30:30  the timer of an hourly job, started at 08:30, is in the midst of a wait of a minute
    08:30:30  set back to 07:59:50
    08:00:20  the wait is over: eight o'clock was ten seconds after the step
    """
    world.pass_time("1h")
    host.start(**JOBS)
    world.pass_time("30s")
    host.step("-30m40s")
    world.pass_time("1m")
    assert host.ran("hourly") == host.ran("five") == ["10 08:00:00"]
    assert host.ran("ten") == slots("10 08:30:10", "10 08:30:30", 10) + slots("10 08:00:00", "10 08:00:50", 10)


def test_a_clock_set_back_while_a_slot_is_being_told_stalls_nothing(host: Host, world: World) -> None:
    """
    08:38:00  an hour's suspension is noticed: the slot of 08:35 is told as late
    08:38:00  set back to 07:38:00, after the look that found it late and before the wait for 08:40
    """

    def set_back(event: Event) -> None:
        if event.slot == START + timedelta(hours=1, minutes=5):
            host.step("-1h")

    host.start(five="*/5 * * * *")
    world.pass_time("7m")
    host.suspend("1h")
    host.scheduler.on("skip", set_back)
    world.pass_time("13m")
    assert host.ran("five") == slots("10 07:35:00", "10 07:50:00", 300)


def test_a_schedule_that_fails_over_a_clock_set_back_passes_over_no_slot_of_the_new_time(
    host: Host, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.start(ten="10s")
    world.pass_time("1m3s")
    next_after = Every.next_after
    errors: list[Exception] = [OverflowError("no slot")]

    def broken(self: Every, instant_ms: int) -> int:
        if errors:
            raise errors.pop()
        return next_after(self, instant_ms)

    host.step("-1h")
    monkeypatch.setattr(Every, "next_after", broken)
    world.pass_time("30s")
    assert host.ran("ten")[6:] == slots("10 06:31:10", "10 06:31:30", 10)
    assert host.heard.words("start", "success") == ["error"]


# -- set ahead by a year


def test_set_ahead_a_year_the_newest_slot_is_calculated_and_the_rest_is_a_count(
    host: Host, world: World, asked: Counter[str]
) -> None:
    """apscheduler#526, #1066: every missed slot was listed, and memory was full.
    kubernetes#42649: more than a hundred missed, and the job never ran again.

    08:02:03  set ahead by 365 days, the store's clock with it
    08:02:10  the wait of the job of every ten seconds is over
    08:03:00  those of the cron jobs are; their newest slots are three minutes old
    """
    host.start(**JOBS)
    world.pass_time("32m3s")
    ran = {job: len(host.ran(job)) for job in JOBS}
    host.step(A_YEAR)
    asked.clear()
    waits = host.clock.timer_waits
    world.pass_time("57s")
    assert host.ran("ten")[ran["ten"] :] == slots("10 08:02:10", "10 08:03:00", 10)
    # A question a slot, as in any other minute, a hundred for those that are told one by one, and three for the rest.
    assert (asked["Every.newest_at"], asked["Every.next_after"], asked["Every.count"]) == (1, 107, 1)
    assert asked["Cron.next_after"] <= 2 * 110
    assert host.clock.timer_waits - waits <= 6 + 2
    world.pass_time("1h")
    assert host.ran("five")[ran["five"] :] == slots("10 08:05:00", "10 09:00:00", 300)
    assert host.ran("hourly")[ran["hourly"] :] == ["10 09:00:00"]
    late = host.late("ten")
    assert late[:100] == [(slot, 1) for slot in slots("10 08:02:10", "10 08:18:40", 10)]
    assert late[100:] == [("10 08:18:50", 365 * 8_640 - 100)]
    assert host.late("five")[:100] == [(slot, 1) for slot in slots("10 08:05:00", "10 16:20:00", 300)]
    assert host.late("five")[100:] == [("10 16:25:00", None), ("10 08:00:00", 1)]
    assert host.late("hourly")[:100] == [(slot, 1) for slot in slots("10 09:00:00", "14 12:00:00", 3600)]
    assert host.late("hourly")[100:] == [("14 13:00:00", None), ("10 08:00:00", 1)]


def test_a_year_ahead_and_back_again_runs_on_as_if_nothing_had_been(host: Host, world: World) -> None:
    """A slot granted a year ahead is the newest that the store knows of, and stops nobody."""
    host.start(**JOBS)
    world.pass_time("32m3s")
    host.step(A_YEAR)
    world.pass_time("2m")
    ran = {job: len(host.ran(job)) for job in JOBS}
    host.step("-365d")
    world.pass_time("1h")
    assert host.ran("ten")[ran["ten"] :] == slots("10 08:04:10", "10 09:04:00", 10)
    assert host.ran("five")[ran["five"] :] == slots("10 08:05:00", "10 09:00:00", 300)
    assert host.ran("hourly")[ran["hourly"] :] == ["10 09:00:00"]


# -- stepped every hour


STEPS = ("2s", "-2s", "90s", "-90s", "1500ms", "-700ms", "-700ms", "4m", "-4m", "-61s")


def test_stepped_every_hour_every_slot_is_run_once_or_told(host: Host, world: World) -> None:
    """Every slot that the clock showed was run, once; or, where the step took the clock past it, told as late."""
    host.start(five="*/5 * * * *", quarter="15m")
    since_ms = host.clock.now_ms()
    world.pass_time("34m10s")
    for step in STEPS:
        host.step(step)
        world.pass_time("1h")
    until_ms = host.clock.now_ms()
    for job, interval_ms in (("five", 300_000), ("quarter", 900_000)):
        all_slots = [clock_face(ms) for ms in range(since_ms + interval_ms, until_ms, interval_ms)]
        run, late = host.ran(job), [slot for slot, _ in host.late(job)]
        assert Counter(run + late) == Counter(all_slots)
        assert len(late) <= sum(not step.startswith("-") for step in STEPS)
        assert set(host.taken(job)) <= set(run)
        assert len(host.taken(job)) <= sum(step.startswith("-") for step in STEPS)


# -- where only the host's clock is set


@pytest.mark.parametrize("steps", [["-1h"], [A_YEAR], [A_YEAR, "-365d"], STEPS], ids=["back", "ahead", "both", "ntp"])
def test_where_only_the_hosts_clock_is_set_every_slot_runs_once_when_it_is_due(
    lone_host: Host, world: World, asked: Counter[str], steps: Iterable[str]
) -> None:
    """apscheduler#351, #526, #1066 and kubernetes#42649 once more, for a host that is alone with its wrong clock."""
    host = lone_host
    host.start(minutely="1m", five="*/5 * * * *", hourly="0 * * * *")
    asks = len(host.backend.script.sent("time"))
    assert asks <= 3  # one a job: whichever is asked about before another has its answer
    world.pass_time("32m3s")
    for step in steps:
        host.step(step)
        world.pass_time("61m1s")
    until_ms = world.now_ms
    for job, seconds in (("minutely", 60), ("five", 300), ("hourly", 3600)):
        first_ms = (to_ms(START) // (seconds * 1000) + 1) * seconds * 1000
        assert host.ran(job) == [clock_face(ms) for ms in range(first_ms, until_ms, seconds * 1000)]
    # A step of less than a second cannot be seen; the next answer of the store undoes it.
    unseen_ms = 1_000 if "-700ms" in steps else 0
    assert {0} <= {at_ms - slot_ms for _, slot_ms, at_ms in host.runs} <= set(range(unseen_ms + 1))
    assert host.heard.words("start", "success") == []
    # One ask for the time a step that can be seen, and none of the schedules beyond what their slots cost.
    assert len(host.backend.script.sent("time")) - asks <= len(list(steps))
    assert asked["Every.next_after"] <= len(host.ran("minutely")) + 10


@pytest.mark.parametrize("step", [A_YEAR, "-1h"])
def test_a_step_of_the_hosts_clock_while_a_slot_is_being_told_fires_nothing_of_another_time(
    lone_host: Host, world: World, step: str
) -> None:
    """As above: between the look of one wait and the beginning of the next. The store's clock is where it was."""
    host = lone_host

    def set_host(event: Event) -> None:
        if event.slot == START + timedelta(hours=1, minutes=5):
            host.step(step)

    host.start(five="*/5 * * * *")
    world.pass_time("7m")
    host.suspend("1h")
    host.scheduler.on("skip", set_host)
    world.pass_time("13m")
    assert host.ran("five") == ["10 07:35:00", *slots("10 08:40:00", "10 08:50:00", 300)]
    assert host.late("five") == [(slot, 1) for slot in slots("10 07:40:00", "10 08:35:00", 300)]
    assert {at_ms - slot_ms for _, slot_ms, at_ms in host.runs} == {0}


# -- suspended for a day


def test_suspended_for_a_day_the_jobs_go_on_within_a_minute(any_host: Host, world: World, asked: Counter[str]) -> None:
    """apscheduler#794, nodel#13: one long sleep ended far too late.
    kubernetes#42649: more than a hundred missed, and the job never ran again.

    08:02:03  suspended for a day; the waits stand still meanwhile
    08:02:10  a day later, the wait of the job of every ten seconds has its last seven seconds behind it
    08:03:00  the waits of the cron jobs are over; their newest slots are three minutes old
    """
    host = any_host
    host.start(**JOBS)
    world.pass_time("32m3s")
    ran = {job: len(host.ran(job)) for job in JOBS}
    host.suspend("1d")
    asked.clear()
    waits = host.clock.timer_waits
    world.pass_time("57s")
    assert (asked["Every.newest_at"], asked["Every.next_after"], asked["Every.count"]) == (1, 107, 1)
    assert asked["Cron.next_after"] <= 2 * 110
    assert host.clock.timer_waits - waits <= 6 + 2
    world.pass_time("1h")
    assert host.ran("ten")[ran["ten"] :] == slots("11 08:02:10", "11 09:03:00", 10)
    assert host.ran("five")[ran["five"] :] == slots("11 08:05:00", "11 09:00:00", 300)
    assert host.ran("hourly")[ran["hourly"] :] == ["11 09:00:00"]
    late = host.late("ten")
    assert late[:100] == [(slot, 1) for slot in slots("10 08:02:10", "10 08:18:40", 10)]
    assert late[100:] == [("10 08:18:50", 8_640 - 100)]
    assert host.late("five")[100:] == [("10 16:25:00", None), ("11 08:00:00", 1)]
    assert host.late("hourly") == [(slot, 1) for slot in slots("10 09:00:00", "11 08:00:00", 3600)]


def test_a_run_that_fails_over_a_hostile_clock_does_not_end_its_schedule(any_host: Host, world: World) -> None:
    """bullmq#3272: each run made the next: one failure, and silence for ever."""

    def failing(ctx: RunContext) -> None:
        host._run(ctx)
        raise ValueError("always")

    host = any_host
    host.scheduler.every("ten", "10s", failing)
    host.start()
    for hostile in (lambda: host.step("-1h"), lambda: host.step(A_YEAR), lambda: host.suspend("1d")):
        world.pass_time("33s")
        ran = len(host.ran("ten"))
        hostile()
        world.pass_time("30s")
        assert len(host.ran("ten")) == ran + 3
    assert len(host.heard.of("failure")) == len(host.runs) == len(set(host.ran("ten"))) == 18


# -- freezegun: datetime.now() is the test's on every thread; the monotonic clock and the waits stay real


class HeldClock(SystemClock):
    """The real clock, which stands still until it is let go; its waits end early, as they may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead_ns = 0
        self._held_ns: int | None = super()._monotonic_ns()

    def _monotonic_ns(self) -> int:
        with self._lock:
            return self._ahead_ns + (super()._monotonic_ns() if self._held_ns is None else self._held_ns)

    def let_go(self) -> None:
        with self._lock:
            assert self._held_ns is not None
            self._ahead_ns += self._held_ns - super()._monotonic_ns()
            self._held_ns = None

    def wait(self, event: threading.Event, timeout_ms: int | None) -> bool:
        return super().wait(event, None if timeout_ms is None else min(timeout_ms, 10))

    def suspend(self, duration: timedelta) -> None:
        with self._lock:
            self._ahead_ns += duration // timedelta(microseconds=1) * 1000


#: In the middle between two slots, and so is each new time: until a timer has looked, the monotonic clock goes on,
#: though the time does not.
FROZEN = START + timedelta(seconds=5)


class Frozen:
    """A scheduler in frozen time, with a job of each kind; what it did is told in a few words."""

    def __init__(self, frozen: Any, store_clock: ManualClock | None) -> None:
        self._frozen = frozen
        self._clock = HeldClock()
        self._store_clock = store_clock
        self._told: list[str] = []
        self._more = threading.Condition()
        backend = MemoryBackend(store_clock or self._clock)
        self.scheduler = Scheduler(backend, sources=Sources(clock=self._clock), jitter=0)
        self.scheduler.every("ten", "10s", lambda: None).cron("minutely", "* * * * *", lambda: None)
        for type in EVENT_TYPES:
            self.scheduler.on(type, self._tell)
        self.scheduler.start()
        self._let_look(timers=2)
        # Not before: a start that takes five seconds, as they go by on this clock, has missed a slot by then.
        self._clock.let_go()

    def _let_look(self, timers: int) -> None:
        """Has each timer look at the time as it is now, and not within a minute. One that does so waits for nothing."""
        assert self.scheduler._engine is not None
        kept = self.scheduler._engine._timers
        end = time.monotonic() + REAL_SECONDS
        asked = False
        while time.monotonic() < end:
            with kept._lock:
                waiting = [timer for _, _, timer in kept._heap]
                if asked and len(waiting) == timers and all(timer.look_ms for timer in waiting):
                    return
                if not asked and len(waiting) == timers:
                    for number, timer in enumerate(waiting):
                        timer.look_ms = 0
                        kept._heap[number] = (0, number - timers, timer)
                    asked = True
                    kept._woken.set()
            time.sleep(0.002)
        raise AssertionError("The timers do not look at the time.")

    def _tell(self, event: Event) -> None:
        if event.type == "start":
            return
        assert event.slot is not None, event
        how = "" if event.type == "success" else f"{event.reason or event.type} "
        with self._more:
            self._told.append(f"{event.job} {how}{clock_face(to_ms(event.slot))}")
            self._more.notify_all()

    def step(self, **by: int) -> None:
        """Steps the host's clock."""
        self._frozen.tick(timedelta(**by))

    def suspend(self, **by: int) -> None:
        self._clock.suspend(timedelta(**by))
        self._frozen.tick(timedelta(**by))

    def pass_time(self, **by: int) -> None:
        if self._store_clock is not None:
            self._store_clock.advance(timedelta(**by))
        self._frozen.tick(timedelta(**by))

    def hears(self, *words: str, others: int = 0) -> None:
        """What was told since the last time this was asked: these words, and so many others."""
        self._let_look(timers=2)
        with self._more:
            assert self._more.wait_for(lambda: len(self._told) >= len(words) + others, REAL_SECONDS), self._told
            told, self._told = self._told, []
        assert set(words) <= set(told)
        assert len(told) == len(words) + others


@contextmanager
def frozen_host(store_clock: ManualClock | None = None) -> Iterator[Frozen]:
    with freeze_time(FROZEN) as frozen:
        host = Frozen(frozen, store_clock)
        with host.scheduler:
            yield host


def test_in_frozen_time_a_store_on_the_same_clock_goes_where_the_clock_goes() -> None:
    """
    07:31:00  set back to 06:31:05
    06:32:00  set ahead by a year and five seconds
    06:32:10  suspended for a day
    06:32:20  set back by five seconds
    """
    with frozen_host() as host:
        host.pass_time(seconds=5)
        host.hears("ten 10 07:30:10")
        host.pass_time(seconds=50)
        missed = [f"ten late 10 07:30:{second}" for second in (20, 30, 40, 50)]
        host.hears(*missed, "ten 10 07:31:00", "minutely 10 07:31:00")
        host.step(minutes=-60, seconds=5)
        host.hears()
        host.pass_time(seconds=5)
        host.hears("ten 10 06:31:10")
        host.pass_time(seconds=50)
        host.hears("ten 10 06:32:00", "minutely 10 06:32:00", others=4)
        host.step(days=365, seconds=5)
        host.hears("ten 10 06:32:00", "minutely 10 06:32:00", others=2 * 101)
        host.pass_time(seconds=5)
        host.hears("ten 10 06:32:10")
        host.suspend(days=1)
        host.hears("ten 11 06:32:10", "minutely 11 06:32:00", others=2 * 101)
        host.pass_time(seconds=10)
        host.hears("ten 11 06:32:20")
        host.step(seconds=-5)
        host.hears()
        host.pass_time(seconds=5)
        host.hears("ten taken 11 06:32:20")
        host.pass_time(seconds=10)
        host.hears("ten 11 06:32:30")


def test_in_frozen_time_a_store_with_its_own_clock_goes_on_whatever_the_hosts_does() -> None:
    with frozen_host(ManualClock(FROZEN)) as host:
        host.pass_time(seconds=5)
        host.hears("ten 10 07:30:10")
        for number, step in enumerate(({"hours": -1}, {"days": 365}, {"days": -365}, {"seconds": 2}), 2):
            host.step(**step)
            host.hears()
            host.pass_time(seconds=10)
            host.hears(f"ten 10 07:30:{number}0")
        host.pass_time(seconds=10)
        host.hears("ten 10 07:31:00", "minutely 10 07:31:00")


def test_in_frozen_time_the_real_waits_are_as_long_as_the_schedule_says() -> None:
    """The scheduler as its users have it: nothing of it is the test's but the time.

    A tick that falls together with a step is a part of it to those who look later, and the slot it lands on is not due
    then. So time goes on until slots of the new time have run.
    """
    ran: SimpleQueue[datetime] = SimpleQueue()
    scheduler = Scheduler(MemoryBackend(), jitter=0).every("quick", "50ms", lambda ctx: ran.put(ctx.slot))
    with freeze_time(START) as frozen, scheduler:

        def runs_after(instant: datetime) -> datetime:
            """Lets time go on until a slot after that instant has run; it is never ahead of the clock."""
            for _ in range(10 * REAL_SECONDS):
                frozen.tick(0.05)
                with suppress(Empty):
                    if instant < (slot := ran.get(timeout=0.1)) <= datetime.now(timezone.utc):
                        return slot
            raise AssertionError(f"nothing has run since {instant}")

        for step in (timedelta(), timedelta(hours=-1), timedelta(days=365), timedelta(days=1)):
            frozen.tick(step)
            runs_after(runs_after(datetime.now(timezone.utc)))
