"""First claims: at most one a job on its way from this instance; a newer slot takes the place of an older one.

One claim goes through these steps; ``answered`` (the runner) takes every answer but the two that only mean "wait":

  asked ── answered ──────────────────────────────▶ the runner
    ▲         ├─ none, the slot is still to come ──▶ asked again when it has come
    │         └─ failed in transit ────────────────▶ asked again after a pause, same token, while it may still start;
    └───────────────────────────────────────────────  then a skip, late

The race between an older and a newer slot of one job:
  1. the claim of 12:00:00 is on its way, or waits to be repeated
  2. 12:00:10 comes due
  3. if the older one waits, it is reported late and the newer one is asked at once
  4. if it is on its way, the newer one waits for that answer: a grant must not be thrown away
A slot to catch up on may come after a newer one: then it is the one that is reported late. A claim whose slot is still
to come was made while the time was not known well; it gives way in silence, for its slot will come due again.

An older one whose answer was lost may have been granted all the same. It is handed to the backups with its token, which
recognise the grant, if there was one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from anarchon.alarms import Alarm
from anarchon.errors import BackendError
from anarchon.job import Job
from anarchon.records import ClaimReply, ClaimRequest, Outcome
from anarchon.runners.asks import Asks
from anarchon.runners.teller import Teller
from anarchon.sources import Sources
from anarchon.store import pause_ms

__all__ = ["Claim", "FirstClaims"]

_LONGEST_WAIT_MS = 60_000


@dataclass(eq=False)
class Claim:
    """One claim from its first ask to its answer.

    Attributes:
        asked_from_ms: the monotonic clock before the first ask: from there a lease that it wins is counted.
        in_time: whether it was asked within the window, as far as this instance knows the time.
    """

    job: Job
    request: ClaimRequest
    asked_from_ms: int | None = None
    in_time: bool = False
    tries: int = 0
    on_its_way: bool = False
    next: Claim | None = None
    alarm: Alarm | None = None


class FirstClaims:
    """The first claims of one instance. Every method may be called on any thread, and none blocks.

    Args:
        claim: asks the store. now_ms: the store's time, as far as it is known.
        blocked: whether the job must not run here now; such a slot is a skip, reason overlap.
        answered: takes an answer; called on the thread of the ask.
        unsure: takes a claim that was given up, but may have been granted.
    """

    def __init__(
        self,
        claim: Callable[[ClaimRequest], ClaimReply],
        now_ms: Callable[[str], int],
        sources: Sources,
        asks: Asks,
        blocked: Callable[[Job], bool],
        teller: Teller,
        answered: Callable[[Claim, ClaimReply], None],
        unsure: Callable[[Claim], None],
    ) -> None:
        self._claim = claim
        self._now_ms = now_ms
        self._sources = sources
        self._asks = asks
        self._blocked = blocked
        self._teller = teller
        self._answered = answered
        self._unsure = unsure
        self._lock = threading.Lock()
        self._claims: dict[str, Claim] = {}

    def ask(self, claim: Claim) -> None:
        """Asks for a slot, inside of an ask; see the race above."""
        name, slot_ms = claim.job.name, claim.request.slot_ms
        now_ms = self._now_ms(name)
        with self._lock:
            current = self._claims.get(name)
            rival = current and (current.next or current)
            if rival is not None and rival.request.slot_ms == slot_ms:
                return
            begin = current is None or not current.on_its_way
            replaced: Claim | None
            if rival is not None and slot_ms < rival.request.slot_ms <= now_ms:
                replaced, begin = claim, False
            elif current is None or begin:
                replaced, self._claims[name] = current, claim
            else:
                replaced, current.next = current.next, claim
            if replaced is not None and replaced.alarm is not None:
                replaced.alarm.cancel()
        if replaced is not None:
            self._give_up(replaced)
        if begin:
            self._ask(claim)

    def _ask(self, claim: Claim) -> None:
        job, request = claim.job, claim.request
        with self._lock:
            if self._claims.get(job.name) is not claim or claim.on_its_way:
                return
            claim.on_its_way = True
        if self._blocked(job):
            self._teller.skip(job.name, request.slot_ms, request.trigger, "overlap", request.instance_id)
            self._not_asked_again(claim)
            self._leave(claim)
            return
        if claim.asked_from_ms is None:
            claim.asked_from_ms = self._sources.clock.monotonic_ms()
        claim.in_time = claim.in_time or self._may_start(claim)
        try:
            reply = self._claim(request)
        except BackendError:
            claim.tries += 1
            self._again(claim, pause_ms(self._sources, claim.tries))
            return
        if reply.outcome is Outcome.NONE and reply.wait_ms is not None:
            claim.asked_from_ms = None
            self._again(claim, min(reply.wait_ms, _LONGEST_WAIT_MS))
            return
        try:
            self._answered(claim, reply)
        finally:
            self._leave(claim)

    def _again(self, claim: Claim, delay_ms: int) -> None:
        """Asks again later, unless a newer slot waits or this one may not start any more."""
        with self._lock:
            again = claim.next is None and self._may_start(claim)
            if again:
                claim.on_its_way = False
                claim.alarm = self._asks.after(delay_ms, lambda: self._ask(claim))
        if not again:
            # In this order: the backups know what may have been granted before the next claim finds it in the way.
            self._give_up(claim)
            self._leave(claim)

    def _leave(self, claim: Claim) -> None:
        """This claim is over; the one that waited for it begins."""
        with self._lock:
            following = claim.next
            if following is None:
                self._claims.pop(claim.job.name, None)
            else:
                self._claims[claim.job.name] = following
        if following is not None:
            self._asks.soon(lambda: self._ask(following))

    def _give_up(self, claim: Claim) -> None:
        request = claim.request
        if request.slot_ms <= self._now_ms(request.job):
            self._teller.skip(request.job, request.slot_ms, request.trigger, "late")
        self._not_asked_again(claim)

    def _not_asked_again(self, claim: Claim) -> None:
        if claim.tries:
            self._unsure(claim)

    def _may_start(self, claim: Claim) -> bool:
        request = claim.request
        return self._now_ms(request.job) - request.slot_ms <= request.window_ms
