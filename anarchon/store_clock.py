"""The store's time, as well as an instance knows it: its own wall clock plus an estimated difference.

Every answer that carries the store's time is a sample: the store read its clock somewhere between send and receive, so
the middle is wrong by at most half the round trip (Cristian, "Probabilistic clock synchronization", 1989). Of the last
few samples the one with the shortest round trip counts, and of several that are as short their mean; a new one that
contradicts it by more than half their round trips together means that a clock was stepped, and replaces them all.

A step of this host's own clock shows where wall and monotonic clock part. Whoever looks next takes it out of the
estimate and asks the store anew; an answer that was on its way then is no sample, for a store that keeps this host's
time may have read it before the step. Until the store has ever been reached, the host's clock serves.

Guarantees: no lock is held while the store is asked; of many threads that want a fresh sample one asks, and the others
wait for that answer, good or bad.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from statistics import fmean

from anarchon.clock import Clock
from anarchon.durations import format_duration

__all__ = ["StoreClock"]

_logger = logging.getLogger("anarchon")

_SAMPLES = 8
_STEP_MS = 1_000
_STALE_MS = 10 * 60_000
#: The store tells whole milliseconds: on average so much is cut off.
_CUT_OFF_MS = 0.5
_TELL_MS = 1_000
_TELL_AGAIN_MS = 500
#: Longer than a call takes: Ctrl-C has ended the thread that was to ask, between two of its steps.
_GIVEN_UP_MS = 60_000


@dataclass(frozen=True)
class _Sample:
    difference_ms: float
    round_trip_ms: float
    taken_at_ms: float

    def contradicts(self, other: _Sample) -> bool:
        # The store tells whole milliseconds, and so may the host's clock: one on each side is no contradiction.
        return abs(self.difference_ms - other.difference_ms) > (self.round_trip_ms + other.round_trip_ms) / 2 + 2


@dataclass
class _Estimate:
    """What is known of one clock; a cluster has one a node."""

    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    difference_ms: float = 0
    stale: bool = True
    told_ms: float = 0
    asking: threading.Event | None = None


class StoreClock:
    """Reads the store's time. Every method may be called on any thread; only ``refresh`` may block.

    Args:
        ask: asks the store for its time, and calls ``observe`` with it; raises if that fails. None: there is no clock
            to ask, and the host's serves.
        clock_of: names the clock that answers for a job.
    """

    def __init__(
        self,
        clock: Clock,
        ask: Callable[[str], object] | None = None,
        clock_of: Callable[[str], Hashable] = lambda job: None,
    ) -> None:
        self._clock = clock
        self._ask = ask
        #: Names the clock that answers for a job.
        self.clock_of = clock_of
        self._lock = threading.Lock()
        self._estimates: dict[Hashable, _Estimate] = {}
        self._wall_less_monotonic_ms = clock.now_ms() - clock.monotonic_ms()
        self._step_noticed_ms = clock.monotonic_ms()

    def now_ms(self, job: str) -> int:
        """The store's time, in milliseconds since the epoch, as far as it is known."""
        name = self.clock_of(job)
        with self._lock:
            return math.floor(self._clock.exact_now_ms() + self._estimate(name).difference_ms)

    def until_ms(self, job: str, instant_ms: int) -> float:
        """How long it is until that instant of the store's time, as far as that is known; below 0 if it is past."""
        name = self.clock_of(job)
        with self._lock:
            return instant_ms - self._estimate(name).difference_ms - self._clock.exact_now_ms()

    def unknown(self, job: str) -> bool:
        """Whether the store has yet to be asked for its time, or must be asked anew."""
        name = self.clock_of(job)
        with self._lock:
            return self._estimate(name).stale

    def observe(self, job: str, sent_ms: float, store_ms: int) -> None:
        """Takes a sample: an answer that has just come in, asked for at that exact instant of the monotonic clock."""
        name = self.clock_of(job)
        with self._lock:
            # First, or a later look would take the step out of an estimate that has it in already.
            self._notice_step()
            if sent_ms < self._step_noticed_ms:
                self._estimate(name).stale = True
                return
            received_ms = self._clock.exact_monotonic_ms()
            round_trip_ms = received_ms - sent_ms
            difference_ms = store_ms + _CUT_OFF_MS - (self._clock.exact_now_ms() - round_trip_ms / 2)
            estimate = self._estimate(name)
            sample = _Sample(difference_ms, round_trip_ms, received_ms)
            if not estimate.samples or estimate.stale or sample.contradicts(_shortest(estimate)):
                estimate.samples.clear()
            estimate.samples.append(sample)
            estimate.stale = False
            shortest = _shortest(estimate)
            # Of those that are about as short the mean: of one alone, what is cut off may be half a millisecond wrong.
            as_short = [each for each in estimate.samples if each.round_trip_ms <= shortest.round_trip_ms + 1]
            estimate.difference_ms = fmean([each.difference_ms for each in as_short])
            tell_ms = self._worth_telling(estimate, shortest.round_trip_ms / 2)
        if tell_ms is not None:
            _logger.warning(
                "This host's clock is %s %s the store's. Slots keep the store's time.",
                format_duration(round(abs(tell_ms))),
                "behind" if tell_ms > 0 else "ahead of",
            )

    def is_fresh(self, job: str) -> bool:
        """After a wait: notices a stepped clock or an old sample; False where the store must be asked anew. No call."""
        name = self.clock_of(job)
        with self._lock:
            return self._ask is None or self._has_fresh(self._estimate(name))

    def look(self, job: str) -> None:
        """After a wait: notices a stepped clock or an old sample, and asks the store anew where it must."""
        if self._ask is None:
            return
        name = self.clock_of(job)
        with self._lock:
            estimate = self._estimate(name)
            if self._has_fresh(estimate):
                return
            # With the lock held since the look: an answer that came in between would be asked for once more.
            asking, mine = self._join(estimate)
        self._await(job, estimate, asking, mine)

    def refresh(self, job: str) -> None:
        """Asks the store for its time, or waits for the thread that is asking already. A store that fails is no error
        here: whoever asked has reported it, and the estimate stays as it is."""
        if self._ask is None:
            return
        name = self.clock_of(job)
        with self._lock:
            estimate = self._estimate(name)
            asking, mine = self._join(estimate)
        self._await(job, estimate, asking, mine)

    def _has_fresh(self, estimate: _Estimate) -> bool:
        self._notice_step()
        newest_ms = estimate.samples[-1].taken_at_ms if estimate.samples else None
        fresh = newest_ms is not None and self._clock.monotonic_ms() - newest_ms <= _STALE_MS
        return fresh and not estimate.stale

    def _join(self, estimate: _Estimate) -> tuple[threading.Event, bool]:
        """The ask that is on its way, and whether it is this thread's to make. With the lock held."""
        mine = estimate.asking is None
        if estimate.asking is None:
            estimate.asking = self._clock.event()
        return estimate.asking, mine

    def _await(self, job: str, estimate: _Estimate, asking: threading.Event, mine: bool) -> None:
        if not mine:
            if not self._clock.wait(asking, _GIVEN_UP_MS):
                self._end(estimate, asking)
            return
        assert self._ask is not None
        try:
            self._ask(job)
        except Exception:
            _logger.debug("The store's time could not be had.", exc_info=True)
        finally:
            self._end(estimate, asking)

    def _end(self, estimate: _Estimate, asking: threading.Event) -> None:
        with self._lock:
            if estimate.asking is asking:
                estimate.asking = None
        asking.set()

    def _estimate(self, name: Hashable) -> _Estimate:
        estimate = self._estimates.get(name)
        if estimate is None:
            estimate = self._estimates[name] = _Estimate()
        return estimate

    def _notice_step(self) -> None:
        wall_less_monotonic_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        step_ms = wall_less_monotonic_ms - self._wall_less_monotonic_ms
        if abs(step_ms) <= _STEP_MS:
            return
        self._wall_less_monotonic_ms = wall_less_monotonic_ms
        self._step_noticed_ms = self._clock.monotonic_ms()
        for estimate in self._estimates.values():
            if estimate.samples:
                # The host's clock moved, the store's most likely not: what was known of it still holds.
                estimate.difference_ms -= step_ms
            estimate.stale = True

    def _worth_telling(self, estimate: _Estimate, doubt_ms: float) -> float | None:
        difference_ms = estimate.difference_ms
        if abs(difference_ms) < _TELL_AGAIN_MS:
            estimate.told_ms = 0
        # An answer that was slow to come may be all that there is to the difference.
        if abs(difference_ms) <= _TELL_MS + doubt_ms or abs(difference_ms - estimate.told_ms) <= _TELL_MS + doubt_ms:
            return None
        estimate.told_ms = difference_ms
        return difference_ms


def _shortest(estimate: _Estimate) -> _Sample:
    return min(estimate.samples, key=lambda sample: sample.round_trip_ms)
