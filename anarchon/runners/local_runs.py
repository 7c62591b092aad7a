"""The runs that are going on in this instance, and the handlers that were left behind by their timeouts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from anarchon.clock import Clock
from anarchon.context import RunContext, current_run
from anarchon.errors import RunRefused
from anarchon.job import Job
from anarchon.runners.changes import Changes

__all__ = ["LeftBehind", "LocalRuns", "stopping"]

#: How many handlers that outlived their timeouts are left behind per job under overlap ``allow``.
LEFT_BEHIND = 10


def stopping(job: str) -> RunRefused:
    """What to tell whoever asks for a run of a scheduler that stops."""
    return RunRefused(job, why=f"Job {job!r} was not run: this scheduler is stopping.", stopping=True)


class LeftBehind:
    """How many handlers of each job went on after their timeouts. Outlives the stops of a scheduler, as they do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __getitem__(self, job: str) -> int:
        return self._counts[job]

    def change(self, job: str, change: int) -> None:
        with self._lock:
            self._counts[job] += change
            if self._counts[job] <= 0:
                del self._counts[job]

    def copy(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()


class LocalRuns:
    """A table of runs. Every method may be called on any thread; only ``wait_until_over`` blocks."""

    def __init__(self, clock: Clock, left_behind: LeftBehind | None = None) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], RunContext] = {}
        self._left_behind = left_behind or LeftBehind()
        self._excused: list[RunContext] = []
        self._stopping = False
        self._changes = Changes(clock, self._lock)

    @property
    def stopping(self) -> bool:
        """Whether a stop has begun: no run begins any more."""
        return self._stopping

    def add(self, context: RunContext, alone: bool = False) -> bool:
        """A run begins: False if it must not, since a stop has begun.

        Args:
            alone: whether it must not begin beside another run of its job either.
        """
        with self._lock:
            if self._stopping or (alone and self._is_running(context.job)):
                return False
            self._runs[context.job, context.run_id] = context
            return True

    def remove(self, context: RunContext) -> None:
        """A run is over: its end is stored."""
        with self._lock:
            self._runs.pop((context.job, context.run_id), None)
            self._changes.tell()

    def holds(self, job: str, run_id: str) -> bool:
        """Whether this very run is going on here."""
        return (job, run_id) in self._runs

    def running(self, job: str) -> bool:
        """Whether any run of the job is going on here."""
        with self._lock:
            return self._is_running(job)

    def left_behind(self, job: str, change: int) -> None:
        """A handler goes on after its timeout (+1), or is gone at last (-1)."""
        with self._lock:
            self._left_behind.change(job, change)
            self._changes.tell()

    def blocked(self, job: Job) -> bool:
        """Whether handlers left behind forbid another run of the job here."""
        return self._left_behind[job.name] >= (1 if job.options.overlap == "skip" else LEFT_BEHIND)

    def refusal(self, job: Job, instance_id: str) -> RunRefused:
        """What to tell whoever asks for a run of a job that is blocked."""
        count = self._left_behind[job.name]
        handlers = "a handler is still" if count == 1 else f"{count} handlers are still"
        timeouts = "its timeout" if count == 1 else "their timeouts"
        why = f"Job {job.name!r} was not run: {handlers} at work here after {timeouts}."
        return RunRefused(job.name, instance_id, why)

    def stop(self) -> None:
        """No run begins from now on, and those that go on are told to stop."""
        with self._lock:
            self._stopping = True
            runs = list(self._runs.values())
        for context in runs:
            context._cancel("stop")

    @contextmanager
    def excused(self) -> Iterator[bool]:
        """While inside, this thread waits: others that wait likewise need not wait for the run that it belongs to.

        Yields:
            Whether it belongs to one: whether it is inside of a handler or of a listener that a run has called.
        """
        mine = current_run.get()
        with self._lock:
            if mine is not None:
                self._excused.append(mine)
            self._changes.tell()
        try:
            yield mine is not None
        finally:
            with self._lock:
                if mine is not None:
                    self._excused.remove(mine)

    def over(self) -> bool:
        """Whether nothing goes on."""
        with self._lock:
            return self._is_over([])

    def wait_until_over(self, timeout_ms: int | None, but_for_excused: bool = False) -> bool:
        """Waits until nothing goes on, or nothing but what is excused; False if the time ran out. None: no limit."""
        return self._changes.wait_until(lambda: self._is_over(self._excused if but_for_excused else []), timeout_ms)

    # -- inside, with the lock held

    def _is_running(self, job: str) -> bool:
        return any(name == job for name, _ in self._runs)

    def _is_over(self, excused: list[RunContext]) -> bool:
        going_on = set(self._runs.values())
        left_behind = self._left_behind.copy()
        # One that is excused and not among the runs is a handler that its timeout left behind.
        left_behind.subtract(context.job for context in excused if context not in going_on)
        return going_on.issubset(excused) and not any(count > 0 for count in left_behind.values())
