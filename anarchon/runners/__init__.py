"""Who runs a slot: ``Runner`` is what is asked of it; ``lease.py`` and ``claim_only.py`` are the two kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anarchon.alarms import Alarms
    from anarchon.executor import Executor
    from anarchon.job import Job
    from anarchon.records import RunRecord
    from anarchon.runners.asks import Asks
    from anarchon.runners.local_runs import LocalRuns
    from anarchon.runners.teller import Teller
    from anarchon.sources import Sources
    from anarchon.threads import Threads

__all__ = ["Parts", "Runner"]


@dataclass(frozen=True)
class Parts:
    """What a runner is made of; one set from a start to its stop, wired by the scheduler."""

    sources: Sources
    threads: Threads
    alarms: Alarms
    asks: Asks
    executor: Executor
    runs: LocalRuns
    teller: Teller
    instance_id: str


class Runner(Protocol):
    """Brings one slot to its end, on one kind of store. Every method may be called on any thread."""

    def run(self, job: Job, slot_ms: int, trigger: str, window_ms: int) -> None:
        """Claims the slot and, where it is won, runs it; returns at once, the rest happens on other threads.

        Args:
            window_ms: how long after its slot the run may still begin.
        """

    def run_now(self, job: Job, wait_ms: int | None = None, once: str | None = None) -> RunRecord | None:
        """Runs the job on a thread of this instance and blocks until the result is stored. Its slot is this moment.

        Args:
            wait_ms: how long to wait for the result, at the most; None: without limit.
            once: a token of whoever asks: a store with leases grants one run for it, wherever it is asked with. None:
                a fresh one.

        Returns:
            The record; None where the run goes on after that time.

        Raises:
            RunRefused: another run is in the way, or this scheduler is stopping.
            BackendError: the store could not be asked.
            KeyboardInterrupt: as it came; the run's signal is set.
        """

    def recover(self, job: Job, since_ms: int, asked: Callable[[bool], None]) -> None:
        """Looks after what a start finds: unfinished runs, and the newest slot before the start, to catch up on.

        Returns at once.

        Args:
            since_ms: the instant of the monotonic clock at which the job was started. What time it was on the store's
                clock is known only when the store has been asked.
            asked: called when the store has been asked for the first time: True if it answered. One that does not is
                asked again.
        """

    def close(self) -> None:
        """No new runs. Those that go on are not touched."""
