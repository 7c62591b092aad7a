"""The runs that are going on in this instance, and the handlers that were left behind by their timeouts."""

from __future__ import annotations

import threading
from collections import Counter

from anarchon.clock import Clock
from anarchon.context import RunContext, current_run
from anarchon.job import Job

__all__ = ["LocalRuns"]

#: How many handlers that outlived their timeouts are left behind per job under overlap ``allow``.
LEFT_BEHIND = 10

_LOOK_AGAIN_MS = 1_000


class LocalRuns:
    """A table of runs. Every method may be called on any thread; only ``wait_until_over`` blocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], RunContext] = {}
        self._left_behind: Counter[str] = Counter()
        self._stopping = False
        self._changed = clock.event()

    def add(self, context: RunContext) -> bool:
        """A run begins: False if it must not, since a stop has begun."""
        with self._lock:
            if self._stopping:
                return False
            self._runs[context.job, context.run_id] = context
            return True

    def remove(self, context: RunContext) -> None:
        """A run is over: its end is stored."""
        with self._lock:
            self._runs.pop((context.job, context.run_id), None)
        self._changed.set()

    def holds(self, job: str, run_id: str) -> bool:
        """Whether this very run is going on here."""
        return (job, run_id) in self._runs

    def running(self, job: str) -> bool:
        """Whether any run of the job is going on here."""
        with self._lock:
            return any(name == job for name, _ in self._runs)

    def left_behind(self, job: str, change: int) -> None:
        """A handler goes on after its timeout (+1), or is gone at last (-1)."""
        with self._lock:
            self._left_behind[job] += change
            if self._left_behind[job] <= 0:
                del self._left_behind[job]
        self._changed.set()

    def blocked(self, job: Job) -> bool:
        """Whether handlers left behind forbid another run of the job here."""
        return self._left_behind[job.name] >= (1 if job.options.overlap == "skip" else LEFT_BEHIND)

    def stop(self) -> None:
        """No run begins from now on, and those that go on are told to stop."""
        with self._lock:
            self._stopping = True
            runs = list(self._runs.values())
        for context in runs:
            context._cancel("stop")

    def over(self) -> bool:
        """Whether nothing goes on, but for the run that this thread belongs to."""
        mine = current_run.get()
        with self._lock:
            return not self._left_behind and all(context is mine for context in self._runs.values())

    def wait_until_over(self, timeout_ms: int | None) -> bool:
        """Waits until ``over``; False if the time ran out first. None: no limit."""
        deadline_ms = None if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        while True:
            self._changed.clear()
            if self.over():
                return True
            left_ms = None if deadline_ms is None else deadline_ms - self._clock.monotonic_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            self._clock.wait(self._changed, _LOOK_AGAIN_MS if left_ms is None else min(left_ms, _LOOK_AGAIN_MS))
