"""One attempt that an instance was granted, as the way to the store shows it: was its lease kept, and its holder told?

All is in milliseconds of the kernel. An instance counts on its own clock, which drifts by less than a thousandth; over
a lease that is less than ``_TOLERANCE_MS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from anarchon.job import Job
from anarchon.records import ClaimRequest, Verdict

if TYPE_CHECKING:
    from fleet_of_hosts import Call

__all__ = ["Hold"]

_TOLERANCE_MS = 10

#: How long a thread that is to begin may take, where nothing hinders it.
_SOON_MS = 1_500

_NEVER_MS = 1 << 62


@dataclass
class Hold:
    """One attempt in one instance's hands.

    Attributes:
        won_ms: when it heard of the grant.
        trusted: when it heard that its lease is good, and from when it then counts it.
        paused: whether its host stood still at some time between two instants.
        call: of the handler; None where none has begun.
        lost_ms: when a renewal was answered ``lost``.
        over_ms: when an end was answered, or a renewal said that there is nothing left to renew.
        ends: the verdicts on its end. saved: whether its result was stored beside them.
    """

    job: Job
    request: ClaimRequest
    won_ms: int
    trusted: list[tuple[int, int]]
    paused: Callable[[int, int], bool]
    call: Call | None = None
    lost_ms: int | None = None
    over_ms: int | None = None
    end_sent: bool = False
    ends: list[Verdict] = field(default_factory=list)
    saved: bool = False
    beat_sent: bool = False
    beating: bool = False
    failed_before: bool = False
    beat_again_by_ms: int = _NEVER_MS

    def __post_init__(self) -> None:
        self.beat_again_by_ms = self.won_ms + self.job.options.heartbeat_ms + _SOON_MS

    def __str__(self) -> str:
        return f"{self.request.job} {self.request.run_id} with {self.request.token}"

    # -- while it goes on

    def begins(self, call: Call) -> Iterator[str]:
        """Its handler is called."""
        now_ms = call.started_ms
        again = self.call is not None
        self.call = call
        if again:
            yield f"the handler of {self} is called again"
        if call.ctx.reason is not None:
            yield f"the handler of {self} is called after it was told to stop: {call.ctx.reason}"
        if not self.deadline_ms(-1) > now_ms - _TOLERANCE_MS and not self.paused(self.won_ms, now_ms):
            yield f"the handler of {self} is called when its lease cannot be relied on any more"
        first_ms = self.won_ms + self.job.options.heartbeat_ms
        if not self.beat_sent and self.deadline_ms(0) < first_ms - _TOLERANCE_MS:
            yield f"the handler of {self} is called though its grant was long on its way, and not renewed"

    def beats(self, now_ms: int) -> Iterator[str]:
        """A renewal is sent."""
        if now_ms > self.beat_again_by_ms and not self.paused(self.won_ms, now_ms):
            yield f"{self} is renewed {now_ms - self.beat_again_by_ms} ms later than it should be"
        soon_ms = now_ms + self.job.options.heartbeat_ms + 100
        if self.call is None and not self.beat_sent and self.deadline_ms(0) > soon_ms:
            yield f"{self} is renewed before it begins, and its lease is good until {self.deadline_ms(0)} ms"
        self.beat_sent = self.beating = True

    def renewed(self, now_ms: int) -> Iterator[str]:
        """Its end is sent, or answered: until then renewals went on."""
        if self.over_ms is None and not self.beating and self.call is not None:
            if now_ms > self.beat_again_by_ms and not self.paused(self.won_ms, now_ms):
                yield f"{self} was not renewed any more {now_ms - self.beat_again_by_ms} ms before its end"

    def beat(self, sent_ms: int, now_ms: int, verdict: Verdict | None) -> None:
        """A renewal has come back; None: without an answer."""
        self.beating = False
        within_ms = self.job.options.heartbeat_ms + _TOLERANCE_MS
        if self.call is None:
            # It was renewed at once, and not from the heartbeat's thread.
            within_ms += _SOON_MS
        elif verdict is None and not self.failed_before:
            # A first failure is followed by another try within 100 ms.
            within_ms = 100 + _TOLERANCE_MS
        self.failed_before = verdict is None
        self.beat_again_by_ms = now_ms + within_ms
        if verdict is Verdict.OK:
            self.trusted.append((now_ms, sent_ms))
        elif verdict is not None:
            self.over_ms = self.over_ms or now_ms
            if verdict is Verdict.LOST:
                self.lost_ms = self.lost_ms or now_ms

    # -- afterwards

    def judged(self, gone_ms: int) -> Iterator[str]:
        """What was wrong with it, up to now, or until its process was gone."""
        going_on = self.over_ms is None and not self.beating and not self.end_sent
        if going_on and gone_ms > self.beat_again_by_ms + _SOON_MS and not self.paused(self.won_ms, gone_ms):
            yield f"{self} is renewed no more after {self.beat_again_by_ms} ms, and its end was not sent"
        if self.call is None:
            began_by_ms = self.won_ms + self.job.options.lease_ms + _SOON_MS
            if not self.end_sent and gone_ms > began_by_ms and not self.paused(self.won_ms, gone_ms):
                yield f"{self} was granted, and neither begun nor given back"
            return
        yield from self._judged_call(self.call, gone_ms)

    def _judged_call(self, call: Call, gone_ms: int) -> Iterator[str]:
        """Whether the handler was told that its lease is over: in time, and for no other reason."""
        told_ms = call.told_ms
        until_ms = min(gone_ms, call.ended_ms or _NEVER_MS)
        must_ms, may_ms = (self._told_by_ms(call.started_ms, noise) for noise in (_TOLERANCE_MS, -_TOLERANCE_MS))
        if must_ms < until_ms and (told_ms is None or told_ms > must_ms) and not self.paused(must_ms - 50, must_ms):
            yield f"the handler of {self} was to be told by {must_ms} ms that its lease is over, and was at {told_ms}"
        # One that is told after its end, while that is being stored, does nothing any more.
        if call.ctx.reason == "lease-lost" and told_ms is not None and told_ms < min(may_ms, until_ms):
            yield f"the handler of {self} was told at {told_ms} ms that its lease is over, good until {may_ms}"

    def _told_by_ms(self, began_ms: int, tolerance_ms: int) -> int:
        """When it is told that its lease is over, so much later: the first time that no renewal came before."""
        over_ms = _NEVER_MS if self.over_ms is None else self.over_ms
        due_ms = _NEVER_MS if self.lost_ms is None else self.lost_ms + tolerance_ms
        heard = [*(heard_ms for heard_ms, _ in self.trusted), over_ms]
        for number, (_, next_ms) in enumerate(pairwise(heard)):
            deadline_ms = self.deadline_ms(number) + tolerance_ms
            # What was over before the handler began was renewed before it began.
            if deadline_ms < next_ms and next_ms > began_ms:
                return min(due_ms, deadline_ms)
        return due_ms

    def deadline_ms(self, number: int) -> int:
        lease_ms = self.request.lease_ms
        return self.trusted[number][1] + lease_ms - _margin_ms(lease_ms)


def _margin_ms(lease_ms: int) -> int:
    """A tenth of the lease and at most a second: the page's words, not the library's."""
    return min(lease_ms // 10, 1_000)
