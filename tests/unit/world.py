"""A small world in which time passes only when everybody has settled: real threads, and yet the same in every run.

Every thread that the package starts comes from a ``Threads`` of this world, and waits nowhere but on one of its clocks.
So the world is settled when as many threads wait, with nothing yet to end their wait, as there are. ``pass_time`` then
moves all clocks to the next instant at which somebody's wait is over, and lets everybody settle again.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from fakes import ScriptedBackend, SeededChance

from anarchon import Event, Scheduler
from anarchon.backends.memory import MemoryBackend
from anarchon.clock import Clock
from anarchon.durations import Duration, parse_duration
from anarchon.events import EVENT_TYPES
from anarchon.sources import Sources
from anarchon.testing import ManualClock
from anarchon.threads import Threads

#: How much real time anything here may take, on a machine that is busy or stands still for a while.
REAL_SECONDS = 60


class Heard(list[Event]):
    """The events of one scheduler, in the order in which they were told."""

    def of(self, *types: str) -> list[Event]:
        return [event for event in self if event.type in types]

    def words(self, *but: str) -> list[str]:
        """Each as ``"start"`` or ``"skip late"``, those of some types left out."""
        return [f"{event.type} {event.reason or ''}".strip() for event in self if event.type not in but]


class Task:
    """A call on a thread of the world's own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self.done = True

    def result(self) -> Any:
        assert self.done, "it has not come back"
        if self.error is not None:
            raise self.error
        return self.value


class World:
    """One store, and whatever is put around it; all clocks move together."""

    def __init__(self, start: datetime | None = None, seed: int = 0) -> None:
        self.clock = ManualClock(start)
        self.chance = SeededChance(seed)
        self.store = MemoryBackend(self.clock)
        self.backend = ScriptedBackend(self.store)
        self.script = self.backend.script
        self.schedulers: list[Scheduler] = []
        self._clocks = [self.clock]
        self._threads: list[Threads] = []
        self._mine = self.make_threads(self.clock)

    # -- what is put into it

    def make_threads(self, clock: Clock) -> Threads:
        self._threads.append(Threads(clock))
        return self._threads[-1]

    def skewed_clock(self, skew: Duration = "0s") -> ManualClock:
        """A host's clock that differs from the store's by so much, and moves with it."""
        clock = ManualClock()
        clock.step_wall((self.clock.now_ms() - clock.now_ms()) / 1000)
        clock.step_wall(skew)
        self._clocks.append(clock)
        return clock

    def sources(self, clock: ManualClock | None = None) -> Sources:
        return Sources(clock or self.clock, self.chance, self.make_threads)

    def scheduler(self, name: str = "a", backend: Any = None, clock: ManualClock | None = None, **options: Any) -> Any:
        """A scheduler without jitter that keeps what it tells in ``heard``."""
        options = {"jitter": 0, "instance_id": name, **options}
        scheduler = Scheduler(backend or self.backend, sources=self.sources(clock), **options)
        heard = Heard()
        for type in EVENT_TYPES:
            scheduler.on(type, heard.append)
        scheduler.heard = heard  # type: ignore[attr-defined]
        self.schedulers.append(scheduler)
        return scheduler

    def spawn(self, call: Callable[[], Any]) -> Task:
        """Makes a call that may block on a thread of the world's own, and lets everybody settle."""
        task = Task(call)
        self._mine.start("world", task)
        self.settle()
        return task

    # -- time

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def settle(self) -> None:
        """Waits until every thread waits."""
        end = time.monotonic() + REAL_SECONDS
        while not self._settled():
            if time.monotonic() > end:
                raise AssertionError("the world does not come to rest:\n" + _stacks())
            time.sleep(0.0001)

    def pass_time(self, duration: Duration) -> None:
        """Lets time go by, instant by instant at which something happens."""
        left_ms = parse_duration(duration, "duration")
        self.settle()
        while left_ms > 0:
            left_ms -= self._step(left_ms)

    def until(self, condition: Callable[[], object], within: Duration = "10m") -> int:
        """Lets time go by until the condition holds; how many milliseconds that took."""
        longest_ms = parse_duration(within, "within")
        passed_ms = 0
        self.settle()
        while not condition():
            assert passed_ms < longest_ms, f"it did not come true within {within}"
            passed_ms += self._step(longest_ms - passed_ms)
        return passed_ms

    def run(self, call: Callable[[], Any], within: Duration = "10m") -> Any:
        """The result of a call that may need time to pass."""
        task = self.spawn(call)
        self.until(lambda: task.done, within)
        return task.result()

    def _step(self, longest_ms: int) -> int:
        step_ms = min([longest_ms, *(ms for clock in self._clocks for ms in _waits_left_ms(clock))])
        for clock in self._clocks:
            clock.advance(step_ms / 1000)
        self.settle()
        return step_ms

    # -- threads

    def alive(self) -> int:
        """How many threads the package has, idle ones included; the world's own do not count."""
        return sum(_alive(threads) for threads in self._threads if threads is not self._mine)

    def _settled(self) -> bool:
        before = self._count()
        with ExitStack() as stack:
            # All at one moment: between two looks a thread on the clock that is looked at later could wake one on the
            # other, and then wait itself.
            for clock in self._clocks:
                stack.enter_context(clock._moved)
            blocked = sum(clock._blocked() for clock in self._clocks)
        return before == blocked == self._count()

    def _count(self) -> int:
        return sum(_alive(threads) for threads in self._threads)

    def close(self) -> None:
        """Stops every scheduler, and sees to it that no thread is left."""
        self.script.end()
        for scheduler in self.schedulers:
            self.run(lambda stopped=scheduler: stopped.stop("1m"))
        for threads in self._threads:
            threads.close()
        end = time.monotonic() + REAL_SECONDS
        left = [worker for threads in self._threads for worker in (*threads._workers, *threads._ending)]
        for worker in left:
            worker.join(max(0.0, end - time.monotonic()))
        assert not any(worker.is_alive() for worker in left), "a thread is left:\n" + _stacks()


def in_time(call: Callable[[], object]) -> None:
    """Makes a call on a thread of its own, which is given the real time that anything may take."""
    task = Task(call)
    thread = threading.Thread(target=task, daemon=True)
    thread.start()
    thread.join(REAL_SECONDS)
    task.result()


def _alive(threads: Threads) -> int:
    with threads._lock:
        return sum(worker.is_alive() for worker in threads._workers)


def _waits_left_ms(clock: ManualClock) -> list[int]:
    with clock._moved:
        ends = [deadline_ms for _, deadline_ms in clock._waits.values() if deadline_ms is not None]
        return [left_ms for end_ms in ends if (left_ms := end_ms - clock._monotonic_ms) > 0]


def _stacks() -> str:
    frames = sys._current_frames()
    return "\n".join(
        f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threading.enumerate()
        if thread.ident in frames
    )
