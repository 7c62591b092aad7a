"""What a handler is given: which run this is, and the signal that tells it to stop."""

from __future__ import annotations

import contextvars
import threading
from datetime import datetime

from anarchon.durations import from_ms
from anarchon.errors import RunInterrupted

__all__ = ["RunContext", "current_run"]

#: The run whose handler or listener is on this thread; ``stop`` does not wait for it.
current_run: contextvars.ContextVar[RunContext | None] = contextvars.ContextVar("anarchon_current_run", default=None)


class RunContext:
    """One attempt of a run, as its handler sees it.

    Attributes:
        job: the job's name.
        slot: the due instant, an aware UTC datetime; of a manual run, the moment it was asked for.
        attempt: 1 for the first.
        trigger: ``scheduled``, ``catch-up``, ``takeover`` or ``manual``.
        signal: a ``threading.Event``, this run's alone, set when the run should stop. Waiting on it in place of
            sleeping makes a handler that stops at once: ``if ctx.signal.wait(5): return``.
        token: the secret that proves this attempt; None on a store without leases.
        fence: grows with every attempt of the job. Hand it to the resource you write to, so that it can refuse an
            older one (Kleppmann, "How to do distributed locking", 2016). None on a store without leases.
        run_id: the run's id, the same in every attempt.
        instance_id: the instance that runs this.
        deadline: when the run's timeout is over, an aware UTC datetime on the store's clock; None without a timeout.
    """

    def __init__(
        self,
        *,
        job: str,
        slot_ms: int,
        run_id: str,
        attempt: int,
        trigger: str,
        token: str | None,
        fence: int | None,
        instance_id: str,
        deadline_ms: int | None,
        signal: threading.Event,
    ) -> None:
        self.job = job
        self.slot: datetime = from_ms(slot_ms)
        self.run_id = run_id
        self.attempt = attempt
        self.trigger = trigger
        self.token = token
        self.fence = fence
        self.instance_id = instance_id
        self.deadline: datetime | None = None if deadline_ms is None else from_ms(deadline_ms)
        self.signal = signal
        self._reason: str | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        # Without the token: whoever has it can end this run.
        return f"<RunContext {self.job} slot={self.slot.isoformat()} attempt={self.attempt} trigger={self.trigger}>"

    @property
    def reason(self) -> str | None:
        """Why the signal was set: ``stop``, ``timeout`` or ``lease-lost``, the first that came; None: it is not set."""
        return self._reason

    def raise_if_cancelled(self) -> None:
        """Returns while the run may go on.

        Raises:
            RunInterrupted: the signal is set.
        """
        if self._reason is not None:
            raise RunInterrupted(self._reason)

    def _cancel(self, reason: str) -> None:
        """Sets the signal; the first reason stays. Called by the library, on any thread but in a signal handler."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
        self.signal.set()
