"""Backups: runs that others hold are watched, and taken over when their lease is over.

A check is a claim in takeover mode: "give me the next attempt if the lease is over". While it is live the answer is
``running``, and nothing changes.

Guarantees:

- A (job, run) is watched once per instance, however many slots were lost to it, and costs no thread of its own.
- A check comes at a random time between one and two heartbeats, so that a fleet does not ask all at once; where less
  lease is left than that, shortly after the lease's end, spread at random over half a heartbeat.
- A run that nobody has started is watched only while it may still start, and only the newest such run of a job: once a
  newer slot is granted no older one can be.
- A run that this very instance is working on is not taken from itself.
- A first claim that was given up without an answer may have been granted. Its token is kept, and asked with as soon as
  that run is found in the way: otherwise nobody could run the job until a lease that nobody holds is over. Where that
  token has held the run, unseen, until another instance took it over, it is never granted again; a fresh one may be.
- A watch ends in silence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from anarchon.alarms import Alarm
from anarchon.errors import BackendError
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome
from anarchon.runners.asks import Asks
from anarchon.runners.local_runs import LocalRuns
from anarchon.sources import Sources
from anarchon.store import Store, pause_ms

__all__ = ["Backups", "Watch"]

#: How many tokens of claims without an answer are kept per job, of those whose slots may still start.
_UNSURE = 256


@dataclass(eq=False)
class Watch:
    """One run that is watched.

    Attributes:
        first_trigger: of the first claim, where its token is asked with: if that was granted, it is no takeover.
        set_aside: token and trigger of that claim, while another token is tried in its place.
    """

    job: Job
    request: ClaimRequest
    first_trigger: str | None = None
    set_aside: tuple[str, str] | None = None
    asked_from_ms: int | None = None
    tries: int = 0
    alarm: Alarm | None = None


class Backups:
    """The watches of one instance. Every method may be called on any thread, and none blocks.

    Args:
        won: told when a check has won the next attempt; called on the thread of the check.
    """

    def __init__(
        self,
        store: Store,
        sources: Sources,
        asks: Asks,
        runs: LocalRuns,
        won: Callable[[Watch, ClaimReply], None],
    ) -> None:
        self._store = store
        self._sources = sources
        self._asks = asks
        self._runs = runs
        self._won = won
        self._lock = threading.Lock()
        self._watches: dict[tuple[str, str], Watch] = {}
        self._unstarted: dict[str, Watch] = {}
        self._unsure: dict[str, dict[int, tuple[str, str]]] = {}
        self._closed = False

    def watch(
        self, job: Job, request: ClaimRequest, *, started: bool, lease_left_ms: int | None = None, now: bool = False
    ) -> None:
        """Watches the run that the request names, unless it is watched already.

        Args:
            request: a claim in takeover mode, with its token.
            started: whether somebody is known to have begun it.
            lease_left_ms: of its lease, where the store has said.
            now: whether the first check comes at once.
        """
        key = (request.job, request.run_id)
        with self._lock:
            if self._closed:
                return
            token, trigger = self._unsure.get(request.job, {}).get(request.slot_ms, (None, None))
            if token is not None:
                request, now = replace(request, token=token), True
            watch = Watch(job, request, trigger)
            known = self._watches.get(key)
            if known is not None:
                if started:
                    self._has_started(known)
                return
            replaced = None
            if not started:
                replaced = self._unstarted.get(request.job)
                if replaced is None or replaced.request.slot_ms < request.slot_ms:
                    self._unstarted[request.job] = watch
                elif now:
                    replaced = None
                else:
                    return
            self._watches[key] = watch
        if replaced is not None:
            self._forget(replaced)
        self._check_in(watch, 0 if now else self._until_check_ms(job, lease_left_ms))

    def unsure(self, job: Job, request: ClaimRequest) -> None:
        """Watches the run of a first claim that was given up, but may have been granted: its token will tell.

        On a store that hung, many a claim that nobody waited for any more is granted when it wakes up, and the newest
        of them need not be the one.
        """
        with self._lock:
            claims = self._unsure.setdefault(job.name, {})
            claims[request.slot_ms] = request.token, request.trigger
            oldest_ms = next(iter(claims))
            while len(claims) > _UNSURE or oldest_ms < request.slot_ms - request.window_ms:
                del claims[oldest_ms]
                oldest_ms = next(iter(claims))
        self.watch(job, replace(request, mode=Mode.TAKEOVER, trigger="takeover"), started=False, now=True)

    def sure(self, job: str) -> None:
        """The store has granted another slot, so none that it granted unseen is in the way."""
        with self._lock:
            self._unsure.pop(job, None)

    def close(self) -> None:
        """Ends every watch."""
        with self._lock:
            self._closed = True
            self._unsure.clear()
            watches = list(self._watches.values())
            self._watches.clear()
            self._unstarted.clear()
        for watch in watches:
            if watch.alarm is not None:
                watch.alarm.cancel()

    def _check_in(self, watch: Watch, delay_ms: int) -> None:
        watch.alarm = self._asks.after(delay_ms, lambda: self._check(watch))

    def _until_check_ms(self, job: Job, lease_left_ms: int | None) -> int:
        heartbeat_ms = job.options.heartbeat_ms
        delay_ms = self._sources.chance.between(heartbeat_ms, 2 * heartbeat_ms)
        if lease_left_ms is not None and lease_left_ms < delay_ms:
            return lease_left_ms + self._sources.chance.between(1, max(1, heartbeat_ms // 2))
        return delay_ms

    def _check(self, watch: Watch) -> None:
        request = watch.request
        if self._watches.get((request.job, request.run_id)) is not watch:
            return
        if self._runs.holds(request.job, request.run_id) or self._runs.blocked(watch.job):
            self._check_in(watch, self._until_check_ms(watch.job, None))
            return
        if watch.asked_from_ms is None:
            watch.asked_from_ms = self._sources.clock.monotonic_ms()
        try:
            reply = self._store.claim(request)
        except BackendError:
            # The same token again: this ask may have been granted, and its answer lost.
            watch.tries += 1
            heartbeat_ms = watch.job.options.heartbeat_ms
            self._check_in(watch, min(heartbeat_ms, pause_ms(self._sources, watch.tries)))
            return
        watch.tries = 0
        if reply.outcome is Outcome.WON:
            with self._lock:
                self._unsure.get(request.job, {}).pop(request.slot_ms, None)
            self._forget(watch)
            self._won(watch, reply)
            return
        # An answer means that this ask was not granted; what is won later is counted from a later ask.
        watch.asked_from_ms = None
        if self._tries_another_token(watch, reply):
            self._check_in(watch, 0)
        elif self._goes_on(watch, reply):
            holder = reply.holder if reply.outcome is Outcome.RUNNING else None
            self._check_in(watch, self._until_check_ms(watch.job, holder.lease_left_ms if holder else None))
        else:
            self._forget(watch)

    def _tries_another_token(self, watch: Watch, reply: ClaimReply) -> bool:
        """Whether to ask anew at once. ``none`` to the token of a first claim leaves open which it is:

        - nobody has begun the run, and that claim may still come through: its token is kept;
        - the token has held the run before: it is of no more use, and another one can take the run over.
        """
        if watch.first_trigger is not None and reply.outcome is Outcome.NONE:
            watch.set_aside = watch.request.token, watch.first_trigger
            watch.request = replace(watch.request, token=self._sources.chance.token())
            watch.first_trigger = None
            return True
        if watch.set_aside is not None:
            token, trigger = watch.set_aside
            watch.set_aside = None
            if reply.outcome is Outcome.NONE:
                watch.request, watch.first_trigger = replace(watch.request, token=token), trigger
            else:
                with self._lock:
                    self._unsure.get(watch.request.job, {}).pop(watch.request.slot_ms, None)
        return False

    def _goes_on(self, watch: Watch, reply: ClaimReply) -> bool:
        if reply.outcome is Outcome.RUNNING:
            with self._lock:
                self._has_started(watch)
            return True
        if reply.outcome is Outcome.OVERLAP:
            return True
        if reply.outcome is Outcome.NONE:
            request = watch.request
            return reply.store_time_ms - request.slot_ms <= request.window_ms
        return False

    def _has_started(self, watch: Watch) -> None:
        """Called with the lock held: a newer slot does not end this watch any more."""
        if self._unstarted.get(watch.request.job) is watch:
            del self._unstarted[watch.request.job]

    def _forget(self, watch: Watch) -> None:
        key = (watch.request.job, watch.request.run_id)
        with self._lock:
            if self._watches.get(key) is watch:
                del self._watches[key]
            if self._unstarted.get(key[0]) is watch:
                del self._unstarted[key[0]]
        if watch.alarm is not None:
            watch.alarm.cancel()
