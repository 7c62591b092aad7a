"""Renews one lease from its own thread, and tells the holder in time when it can no longer be trusted.

Guarantees:

- The holder counts its lease on its own monotonic clock, from just before the last renewal that succeeded was sent (for
  the claim: from before its first ask). A call that was slow to come back adds nothing.
- A margin before that lease is over (a tenth of it, at most a second) ``lost`` is called, without waiting for the
  store's word. This deadline is watched by the alarms, apart from the call that may hang.
- The thread never ends in silence: it ends when it is stopped, when the store says that the run is finished, or after
  ``lost`` was called. It is started only when the first renewal is due; most runs are over before.
- Renewals go on after the deadline, until the store refuses one: a lease that is over but free is better kept from a
  backup while the handler winds down.

The race that the deadline decides:
  1. the holder renews at 0 s (lease 30 s); the answer comes back
  2. the store goes away; renewals fail or hang from 6 s on
  3. at 29 s the alarm calls ``lost``: the handler's signal is set
  4. at 30 s the lease is over on the store's clock, and a backup may start
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from anarchon.alarms import Alarm, Alarms
from anarchon.errors import BackendError
from anarchon.records import Verdict
from anarchon.sources import Sources
from anarchon.store import pause_ms
from anarchon.threads import Threads

__all__ = ["Heartbeat", "margin_ms"]

_LARGEST_MARGIN_MS = 1_000


def margin_ms(lease_ms: int) -> int:
    """How long before the end of its lease a holder stops trusting it."""
    return min(lease_ms // 10, _LARGEST_MARGIN_MS)


class Heartbeat:
    """One attempt's lease, from its grant until its end is stored.

    Args:
        renew: asks the store; may raise BackendError. Called on the heartbeat's thread.
        lost: told once that the lease cannot be trusted any more; must not block. Called on any thread.
        counted_from_ms: the instant of the monotonic clock from which the lease is counted.
    """

    def __init__(
        self,
        *,
        job: str,
        lease_ms: int,
        interval_ms: int,
        counted_from_ms: int,
        renew: Callable[[], Verdict],
        lost: Callable[[], None],
        sources: Sources,
        alarms: Alarms,
        threads: Threads,
    ) -> None:
        self._job = job
        self._lease_ms = lease_ms
        self._interval_ms = interval_ms
        self._renew = renew
        self._lost = lost
        self._sources = sources
        self._alarms = alarms
        self._threads = threads
        self._lock = threading.Lock()
        self._stopped = False
        self._told = False
        self._woken = sources.clock.event()
        self._trusted_until_ms = counted_from_ms + lease_ms - margin_ms(lease_ms)
        self._deadline: Alarm | None = None
        self._first: Alarm | None = None

    def start(self) -> None:
        """Watches the deadline, and renews from now on; at once where the lease might not last to the first heartbeat.

        Raises:
            RuntimeError: the process has no thread left to give, so that nobody would watch.
        """
        if self._sources.clock.monotonic_ms() + self._interval_ms >= self._trusted_until_ms:
            # The grant took so long to come back. Nothing runs yet that a call which hangs could harm.
            self._renew_once()
        with self._lock:
            if not self._stopped:
                first_ms = self._sources.clock.monotonic_ms() + self._interval_ms
                if first_ms >= self._trusted_until_ms:
                    self._watch()
                self._first = self._alarms.at(first_ms, self._begin)

    def trusted(self) -> bool:
        """Whether the lease can be relied on now."""
        with self._lock:
            return not self._told and self._sources.clock.monotonic_ms() < self._trusted_until_ms

    def stop(self) -> None:
        """The run's end is stored, or known to be lost: no more renewals. Does not wait for one that is on its way."""
        with self._lock:
            self._stopped = True
            for alarm in (self._deadline, self._first):
                if alarm is not None:
                    alarm.cancel()
        self._woken.set()

    def _watch(self) -> None:
        """With the lock held. Most runs are over before their first renewal, and so before there is a deadline."""
        if self._deadline is None and not self._stopped:
            self._deadline = self._alarms.at(self._trusted_until_ms, self._expired)

    def _begin(self) -> None:
        with self._lock:
            self._watch()
        try:
            self._threads.start(f"anarchon-heartbeat-{self._job}", self._beat)
        except RuntimeError:
            # No thread to be had now. The deadline stands, and tells the handler if this goes on.
            with self._lock:
                if not self._stopped:
                    self._first = self._alarms.after(min(self._interval_ms, 1_000), self._begin)

    def _beat(self) -> None:
        tries = 0
        while not self._stopped:
            renewed = self._renew_once()
            if renewed is False:
                return
            tries = 0 if renewed else tries + 1
            wait_ms = self._interval_ms
            if tries:
                wait_ms = min(wait_ms, pause_ms(self._sources, tries))
            self._sources.clock.wait(self._woken, wait_ms)

    def _renew_once(self) -> bool | None:
        """True: renewed. False: there is nothing left to renew. None: the store did not answer."""
        sent_ms = self._sources.clock.monotonic_ms()
        try:
            verdict = self._renew()
        except BackendError:
            return None
        if verdict is Verdict.OK:
            self._trust(sent_ms)
            return True
        if verdict is Verdict.LOST and not self._stopped:
            self._tell_lost()
        self.stop()
        return False

    def _trust(self, sent_ms: int) -> None:
        with self._lock:
            if self._stopped:
                return
            self._trusted_until_ms = sent_ms + self._lease_ms - margin_ms(self._lease_ms)
            if self._deadline is not None:
                # The new one first: a deadline must be watched, come what may.
                before, self._deadline = self._deadline, self._alarms.at(self._trusted_until_ms, self._expired)
                before.cancel()

    def _expired(self) -> None:
        with self._lock:
            over = not self._stopped and self._sources.clock.monotonic_ms() >= self._trusted_until_ms
        if over:
            self._tell_lost()

    def _tell_lost(self) -> None:
        with self._lock:
            told, self._told = self._told, True
        if not told:
            self._lost()
