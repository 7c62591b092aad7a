"""Virtual time for real threads: one thread runs at a time, and the seed says which.

Every thread of the simulated hosts is a ``Task`` of the kernel. A task runs until it waits on a clock of the kernel, or
ends; then the kernel draws the next among those that can go on. When none can, time moves to the next instant at which
somebody's wait is over. Nothing else decides, so that a seed replays exactly.

Guarantees:

- No two tasks ever run at one time, and none is stopped but where it waits.
- A task of a host that was killed never runs again; one of a host that is paused goes on when that is over.
- Real time does not matter, whatever the machine does meanwhile.
"""

from __future__ import annotations

import contextlib
import contextvars
import heapq
import itertools
import math
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from anarchon.clock import Clock
from anarchon.threads import Threads, call_guarded

__all__ = ["Kernel", "Killed", "SimChance", "SimClock", "SimEvent", "SimThreads", "Task", "Where"]

#: What the clocks of a simulation say first.
EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@dataclass
class Where:
    """A place where tasks run: a host's process, or (for the controller) none."""

    name: str
    paused_until_ms: int = 0
    killed: bool = False
    tasks: dict[Task, None] = field(default_factory=dict)


class Killed(BaseException):
    """The host of this task is gone: what its thread still holds is let go, and it does nothing more."""


class Task:
    """One thread of a simulation."""

    __slots__ = ("baton", "call", "done", "number", "waiting", "where")

    def __init__(self, number: int, where: Where, call: Callable[[], object]) -> None:
        self.number = number
        self.where = where
        self.call = call
        self.baton = threading.Lock()
        self.baton.acquire()
        self.done = SimEvent()
        #: The event it waits for, while it waits.
        self.waiting: SimEvent | None = None


class SimEvent(threading.Event):
    """An event of one kernel. ``set`` lets those who wait go on, some time after; it never switches by itself."""

    def __init__(self, kernel: Kernel | None = None, clock: SimClock | None = None) -> None:
        # Not Event's own: its lock and condition are never used here, and there are a great many of these.
        self._kernel = kernel
        self._clock = clock
        self._is_set = False
        #: When it was set first.
        self.set_ms: int | None = None
        self.waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self.set_ms is None:
            self.set_ms = KERNEL.now_ms
        if self.waiters:
            waiters, self.waiters = self.waiters, []
            for task in waiters:
                task.waiting = None
                KERNEL.ready(task)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        assert self._clock is not None
        return self._clock.wait(self, None if timeout is None else -int(-timeout * 1000 // 1))


class Kernel:
    """One simulation. Its maker's thread is the controller: a task like the others, that no fault touches."""

    def __init__(self, seed: int) -> None:
        global KERNEL
        KERNEL = self
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 0
        self.switches = 0
        self._numbers = itertools.count()
        self._order = itertools.count()
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Task, SimEvent]] = []
        self._pool: deque[_Carrier] = deque()
        self.controller = Task(next(self._numbers), Where("controller"), lambda: None)
        self.current = self.controller
        self._unwinding_for: Task | None = None

    # -- what the sources of a simulation ask

    def spawn(self, where: Where, call: Callable[[], object]) -> Task:
        task = Task(next(self._numbers), where, call)
        if not where.killed:
            where.tasks[task] = None
            self.ready(task)
        return task

    def ready(self, task: Task) -> None:
        self._ready.append(task)

    def wait(self, event: SimEvent, until_ms: int | None) -> bool:
        """The task that runs waits until the event is set, or (None: no limit) it is that late.

        Raises:
            Killed: its host is gone.
        """
        if self.current.where.killed:
            raise Killed
        if event._is_set or (until_ms is not None and until_ms <= self.now_ms):
            # Whoever looks again and again lets the others go on, too.
            self.ready(self.current)
        else:
            self.current.waiting = event
            event.waiters.append(self.current)
            if until_ms is not None:
                heapq.heappush(self._timers, (until_ms, next(self._order), self.current, event))
        self._switch()
        return event._is_set

    def sleep(self, ms: int) -> None:
        self.wait(SimEvent(), self.now_ms + ms)

    # -- what the controller does

    def pause(self, where: Where, ms: int) -> None:
        """The host's threads stand still for so long; clocks go on."""
        where.paused_until_ms = max(where.paused_until_ms, self.now_ms + ms)

    def kill(self, where: Where) -> None:
        """The host's threads do nothing any more. The one that calls, if it is one of them, must end by itself.

        Their real threads are unwound one after another, so that none is left over.
        """
        where.killed = True
        before = self.current
        for task in list(where.tasks):
            if task is not before and task.call is _BEGUN:
                self._unwinding_for = before
                self.current = task
                task.baton.release()
                before.baton.acquire()
                self._unwinding_for = None

    def close(self) -> None:
        """Ends the real threads. Every host must have been killed."""
        for carrier in self._pool:
            carrier.carry(None)
        for carrier in self._pool:
            carrier.join()

    # -- inside

    def _switch(self) -> None:
        before = self.current
        task = self._next()
        if task is before:
            return
        self.current = task
        self.switches += 1
        self._hand_over(task)
        before.baton.acquire()
        if before.where.killed:
            raise Killed

    def _finish(self, carrier: _Carrier) -> None:
        """The task that runs has ended; its carrier takes another, later."""
        task = self.current
        task.where.tasks.pop(task, None)
        task.done.set()
        self._pool.append(carrier)
        if self._unwinding_for is not None:
            self.current = self._unwinding_for
            self.current.baton.release()
            return
        self.current = self._next()
        self.switches += 1
        self._hand_over(self.current)

    def _hand_over(self, task: Task) -> None:
        if task.call is not _BEGUN and task is not self.controller:
            call, task.call = task.call, _BEGUN
            carrier = self._pool.pop() if self._pool else _Carrier(self)
            carrier.carry(call)
        else:
            task.baton.release()

    def _next(self) -> Task:
        while True:
            while self._ready:
                place = self.random.randrange(len(self._ready)) if len(self._ready) > 1 else 0
                task = self._ready[place]
                self._ready[place] = self._ready[-1]
                self._ready.pop()
                where = task.where
                if where.killed:
                    continue
                if where.paused_until_ms > self.now_ms:
                    heapq.heappush(self._timers, (where.paused_until_ms, next(self._order), task, _PAUSED))
                    continue
                return task
            if not self._timers:
                raise RuntimeError("Nobody can ever go on: the controller waits for what will not come.")
            when_ms, _, task, event = heapq.heappop(self._timers)
            if event is _PAUSED:
                self.now_ms = max(self.now_ms, when_ms)
                self._ready.append(task)
            elif task.waiting is event:
                self.now_ms = max(self.now_ms, when_ms)
                task.waiting = None
                event.waiters.remove(task)
                self._ready.append(task)


def _begun() -> None:
    """What a task calls that has begun: nothing."""


_BEGUN = _begun
_PAUSED = SimEvent()

#: The one simulation of this process; an event does not know whose it is.
KERNEL: Kernel


class _Carrier(threading.Thread):
    """A real thread, used again for one task after another."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(daemon=True)
        self._kernel = kernel
        self._baton = threading.Lock()
        self._baton.acquire()
        self._call: Callable[[], object] | None = None
        self.start()

    def carry(self, call: Callable[[], object] | None) -> None:
        """Takes the work of a task; None: it ends."""
        self._call = call
        self._baton.release()

    def run(self) -> None:
        while True:
            self._baton.acquire()
            if self._call is None:
                return
            with contextlib.suppress(Killed):
                contextvars.Context().run(self._call)
            self._kernel._finish(self)


class SimClock:
    """A host's clocks: they may be wrong, drift and jump, and they go on while the host is paused."""

    def __init__(self, kernel: Kernel, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._kernel = kernel
        self.offset_ms = offset_ms
        self._rate = 1_000_000 + drift_ppm

    def now_ms(self) -> int:
        return EPOCH_MS + self.offset_ms + self._elapsed_ms()

    def exact_now_ms(self) -> int:
        return self.now_ms()

    def exact_monotonic_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        # Unlike the wall clock, so that mixing the two up shows.
        return 1_000_000 + self._elapsed_ms()

    def event(self) -> threading.Event:
        return SimEvent(self._kernel, self)

    def wait(self, event: threading.Event, timeout_ms: float | None) -> bool:
        assert isinstance(event, SimEvent)
        if timeout_ms is None:
            return self._kernel.wait(event, None)
        end_ms = self._elapsed_ms() + math.ceil(timeout_ms)
        return self._kernel.wait(event, -(-end_ms * 1_000_000 // self._rate))

    def _elapsed_ms(self) -> int:
        return self._kernel.now_ms * self._rate // 1_000_000


class SimThreads(Threads):
    """The threads of one host's scheduler: tasks of the kernel."""

    def __init__(self, kernel: Kernel, where: Where, clock: Clock) -> None:
        super().__init__(clock)
        self._kernel = kernel
        self._where = where
        self._mine: dict[Task, None] = {}

    def start(self, name: str, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                call_guarded(work)
            finally:
                self._mine.pop(task, None)

        task = self._kernel.spawn(self._where, run)
        self._mine[task] = None

    def close(self) -> None:
        """Nothing idles here."""

    def join(self, timeout_ms: int) -> bool:
        until_ms = self._kernel.now_ms + timeout_ms
        for task in list(self._mine):
            if task is not self._kernel.current:
                self._kernel.wait(task.done, until_ms)
        return all(task.done.is_set() for task in self._mine if task is not self._kernel.current)

    def owns(self, thread: threading.Thread) -> bool:
        return self._kernel.current in self._mine


class SimChance:
    """Chance that the seed decides."""

    def __init__(self, kernel: Kernel) -> None:
        self._random = kernel.random
        self._tokens = itertools.count(1)

    def token(self) -> str:
        return f"t{next(self._tokens)}x{self._random.getrandbits(32):08x}"

    def between(self, low_ms: int, high_ms: int) -> int:
        return self._random.randint(low_ms, max(low_ms, high_ms))
