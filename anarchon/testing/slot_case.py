"""One job before the oracle: what was due, what ran, and each question that is asked of the two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise

from anarchon.durations import from_ms, to_ms
from anarchon.records import RunRecord, iso
from anarchon.testing.run_log import Ran
from anarchon.testing.spans import asked_again

__all__ = ["Case", "Expected", "Fault"]

_NEVER_MS = 1 << 62


@dataclass(frozen=True)
class Fault:
    """Something that must not be.

    Attributes:
        kind: ``missed``, ``repeated``, ``overlapping``, ``early``, ``unfenced``, ``unrecorded``, or ``not-due``.
        job, slot: of what.
        what: a sentence for people.
    """

    kind: str
    job: str
    slot: datetime
    what: str

    def __str__(self) -> str:
        return f"{self.job} {iso(self.slot)} {self.kind}: {self.what}"


@dataclass(frozen=True)
class Expected:
    slots_ms: list[int]
    overlap: str
    max_attempts: int
    max_late_ms: int
    jitter_ms: int
    lease_ms: int
    timeout_ms: int | None


@dataclass(frozen=True)
class Case:
    """One job: each question is a method, which yields its faults."""

    job: str
    expected: Expected
    noise_ms: int
    ran: list[Ran]
    records: dict[tuple[datetime, int], RunRecord] | None
    away: list[tuple[int, int]]
    started_ms: dict[str, int] | None
    died_ms: dict[str, int]
    paused: dict[str, list[tuple[int, int]]]
    cut_off: dict[str, list[tuple[int, int]]]

    def faults(self, explained: Counter[str]) -> list[Fault]:
        faults = [
            *self._missed(explained),
            *self._not_due(),
            *self._repeated(),
            *self._overlapping(),
            *self._early(),
            *self._unfenced(),
            *self._unrecorded(),
        ]
        return sorted(faults, key=lambda fault: fault.slot)

    def _missed(self, explained: Counter[str]) -> Iterator[Fault]:
        begun = {to_ms(one.slot) for one in self.ran}
        # A success is no reason for a slot that did not run: it only says that it did.
        granted = {to_ms(slot) for (slot, _), kept in (self.records or {}).items() if kept.status != "success"}
        busy = self._busy() if self.expected.overlap == "skip" else []
        slots_ms = self.expected.slots_ms
        # When the one after the last comes due nobody has said: as long after it as it came after the one before.
        after_ms = [2 * newer_ms - older_ms for older_ms, newer_ms in pairwise(slots_ms[-2:])] or [_NEVER_MS]
        for slot_ms, next_ms in pairwise([*slots_ms, *after_ms]):
            if slot_ms in begun:
                continue
            reason = self._reason(slot_ms, next_ms, busy, granted)
            if reason is None:
                yield self._fault("missed", slot_ms, "no handler was called for it, and nothing was in the way.")
            else:
                explained[reason] += 1

    def _reason(self, slot_ms: int, next_ms: int, busy: list[tuple[int, int, int]], granted: set[int]) -> str | None:
        """Why a slot did not run, where that was right."""
        if slot_ms in granted:
            return "never-begun"
        # Once a newer slot is granted an older one is closed.
        until_ms = min(slot_ms + self.expected.max_late_ms, next_ms)
        asked_ms = slot_ms + self.expected.jitter_ms + self.noise_ms
        asked_until_ms = self._asked_until_ms(slot_ms, asked_ms)
        if asked_until_ms > asked_ms and asked_until_ms >= until_ms:
            return "away"
        # A newer run is in nobody's way: when it comes due, this slot has been asked for.
        older = ((begin, end) for which_ms, begin, end in busy if which_ms < slot_ms)
        return "busy" if any(begin <= asked_until_ms and end >= slot_ms for begin, end in older) else None

    def _asked_until_ms(self, slot_ms: int, asked_ms: int) -> int:
        """When somebody who was there when the slot came due has asked for it, and been answered, at the latest."""
        if self.started_ms is None:
            return asked_again(self.away, slot_ms, asked_ms)
        return min(
            (
                asked_again([*self._unable(instance), *self._left_behind(instance)], slot_ms, asked_ms)
                for instance, started_ms in self.started_ms.items()
                if started_ms <= slot_ms
            ),
            default=_NEVER_MS,
        )

    def _not_due(self) -> Iterator[Fault]:
        if self.expected.slots_ms:
            due = set(self.expected.slots_ms)
            first_ms, last_ms = self.expected.slots_ms[0], self.expected.slots_ms[-1]
            for one in self._of_slots():
                slot_ms = to_ms(one.slot)
                if first_ms <= slot_ms <= last_ms and slot_ms not in due:
                    yield self._fault("not-due", slot_ms, f"{one.instance_id} ran it, and it was no slot of the job.")

    def _repeated(self) -> Iterator[Fault]:
        for slot_ms, attempts in self._runs().items():
            times = Counter(one.attempt for one in attempts)
            for attempt, count in sorted(times.items()):
                if count > 1:
                    who = ", ".join(one.instance_id for one in attempts if one.attempt == attempt)
                    yield self._fault("repeated", slot_ms, f"attempt {attempt} began {count} times, on {who}.")
            # Ten deploys in a row use up no attempts.
            counted = sum(one.told != "stop" for one in attempts)
            if counted > self.expected.max_attempts:
                yield self._fault("repeated", slot_ms, f"{counted} attempts, and {self.expected.max_attempts} allowed.")
            successes = [attempt for attempt in times if self._succeeded(slot_ms, attempt)]
            if len(successes) > 1 or (successes and max(times) > successes[0]):
                yield self._fault("repeated", slot_ms, f"it ran again after attempt {successes[0]} had succeeded.")
            for older, newer in pairwise(attempts):
                if older.attempt in successes or newer.attempt <= older.attempt or self._came_too_late(older):
                    continue
                if self._must_be_kept(older, to_ms(newer.started_at)):
                    what = f"{_told(newer)} began though {_told(older)} had ended, and could tell the store."
                    yield self._fault("repeated", slot_ms, what)

    def _overlapping(self) -> Iterator[Fault]:
        groups = [self.ran] if self.expected.overlap == "skip" else list(self._runs().values())
        for group in groups:
            begun_ms = [to_ms(one.started_at) for one in group]
            # When the first began of those that have a run's place or a later one: most runs have none to look at.
            first_ms = list(accumulate(reversed(begun_ms), min))[::-1]
            for number, older in enumerate(group):
                until_ms = self._over_ms(older)
                for later in range(number + 1, len(group)):
                    if first_ms[later] >= until_ms - self.noise_ms:
                        break
                    newer, began_ms = group[later], begun_ms[later]
                    if began_ms < until_ms - self.noise_ms and not self._knew(older, began_ms):
                        more = f", for {until_ms - began_ms} ms more" if until_ms < _NEVER_MS else ""
                        what = f"{_told(newer)} began while {_told(older)} went on{more}."
                        yield self._fault("overlapping", to_ms(newer.slot), what)

    def _early(self) -> Iterator[Fault]:
        # The slot of a manual run is when it was asked for, on a clock that may be wrong; it is due at once.
        for one in self._of_slots():
            early_ms = to_ms(one.slot) - to_ms(one.started_at)
            if early_ms > self.noise_ms:
                yield self._fault("early", to_ms(one.slot), f"{_told(one)} began {early_ms} ms before it was due.")

    def _unfenced(self) -> Iterator[Fault]:
        for older, newer in pairwise(self.ran):
            if newer.fence == older.fence:
                what = f"fence {newer.fence} was given to {_told(older)} and to {_told(newer)}."
                yield self._fault("unfenced", to_ms(newer.slot), what)
        groups = [self._of_slots()] if self.expected.overlap == "skip" else list(self._runs().values())
        for group in groups:
            for older, newer in pairwise(group):
                if (newer.slot, newer.attempt) < (older.slot, older.attempt):
                    what = f"{_told(newer)} has a higher fence than {_told(older)}."
                    yield self._fault("unfenced", to_ms(newer.slot), what)

    def _unrecorded(self) -> Iterator[Fault]:
        if self.records is None:
            return
        for one in self.ran:
            record = self.records.get((one.slot, one.attempt))
            slot_ms = to_ms(one.slot)
            if record is None and self._settled(one):
                yield self._fault("unrecorded", slot_ms, f"{_told(one)} has no record.")
            elif record is not None and record.status == "success" and one.ended_at is None:
                yield self._fault("unrecorded", slot_ms, f"{_told(one)} is a success in its record, and never ended.")
        # Runs by hand, and those of other times, may be of a log that is not at hand.
        begun, due = {(one.slot, one.attempt) for one in self.ran}, set(self.expected.slots_ms)
        for (slot, attempt), record in self.records.items():
            if record.status == "success" and (slot, attempt) not in begun and to_ms(slot) in due:
                what = f"attempt {attempt} is a success in its record, and no handler was called for it."
                yield self._fault("unrecorded", to_ms(slot), what)
        # Whatever became of an attempt, it is recorded by the time that the next one is granted.
        newest = Counter[datetime]()
        for slot, attempt in [*self.records, *((one.slot, one.attempt) for one in self._of_slots())]:
            newest[slot] = max(newest[slot], attempt)
        for slot in sorted(newest):
            for attempt in range(1, newest[slot]):
                if (slot, attempt) not in self.records:
                    what = f"attempt {attempt} has no record, and attempt {newest[slot]} was granted."
                    yield self._fault("unrecorded", to_ms(slot), what)

    # -- what several of them ask

    def _unable(self, instance: str) -> list[tuple[int, int]]:
        """When an instance could not reach the store."""
        spans = self.cut_off.get(instance, self.away)
        died_ms = self.died_ms.get(instance)
        return spans if died_ms is None else [*spans, (died_ms, _NEVER_MS)]

    def _of_slots(self) -> list[Ran]:
        return [one for one in self.ran if one.trigger != "manual"]

    def _runs(self) -> dict[int, list[Ran]]:
        runs: dict[int, list[Ran]] = defaultdict(list)
        for one in self._of_slots():
            runs[to_ms(one.slot)].append(one)
        return runs

    def _succeeded(self, slot_ms: int, attempt: int) -> bool:
        record = (self.records or {}).get((from_ms(slot_ms), attempt))
        return record is not None and record.status == "success" and not record.lease_lost

    def _came_too_late(self, one: Ran) -> bool:
        """Whether its end found that another one held the run, and was recorded beside it."""
        record = (self.records or {}).get((one.slot, one.attempt))
        return record is not None and record.lease_lost

    def _busy(self) -> list[tuple[int, int, int]]:
        """When a run stood in the way of others, after its slot: until its end was stored, or its lease was over.

        The slot of a manual run is 0: it is in the way of every other.
        """
        spans = []
        next_ms = _NEVER_MS
        for one in reversed(self.ran):
            over_ms, cut_off = self._over_ms(one), self.cut_off.get(one.instance_id, self.away)
            told_ms = over_ms + self.noise_ms
            over_ms = told_ms if one.ended_at is None else asked_again(cut_off, over_ms, told_ms)
            if one.ended_at is not None and one.instance_id in self.died_ms:
                # It died, and with it whatever renewed its lease.
                lost_ms = max(told_ms, self.died_ms[one.instance_id]) + self.expected.lease_ms
                over_ms = min(over_ms, lost_ms + self.noise_ms)
            if one.ended_at is None or one.told == "lease-lost":
                over_ms += self.expected.lease_ms
            begun_ms, slot_ms = to_ms(one.started_at), to_ms(one.slot)
            # Whatever became of it, the next grant has found it over.
            over_ms, next_ms = min(over_ms, next_ms), min(begun_ms, next_ms)
            if any(begin <= begun_ms and end >= slot_ms for begin, end in cut_off):
                # Its holder may have had the grant for long, and not have heard of it.
                begun_ms = slot_ms
            spans.append((0 if one.trigger == "manual" else slot_ms, begun_ms, over_ms))
        begun = {(one.slot, one.attempt) for one in self.ran}
        # Granted to somebody who never heard of it: it was in the way until that was found.
        for which, record in (self.records or {}).items():
            if which not in begun:
                slot_ms = to_ms(record.slot)
                which_ms = 0 if record.trigger == "manual" else slot_ms
                # Its record may say that it was over before its holder could hear of it, and could tell the store.
                found_ms, cut_off = to_ms(record.finished_at), self.cut_off.get(record.instance_id, self.away)
                over_ms = asked_again(cut_off, found_ms, found_ms + self.noise_ms)
                later = (to_ms(one.started_at) for one in self.ran if one.fence > record.fence)
                spans.append((which_ms, slot_ms, min([over_ms, *later])))
        return spans

    def _over_ms(self, one: Ran) -> int:
        """When a run was over: with its handler, with its process, or by its timeout, whichever came first."""
        over_ms = self.died_ms.get(one.instance_id, _NEVER_MS) if one.ended_at is None else to_ms(one.ended_at)
        if self.expected.timeout_ms is None:
            return over_ms
        return min(over_ms, to_ms(one.started_at) + self.expected.timeout_ms)

    def _knew(self, older: Ran, began_ms: int) -> bool:
        """Whether the older one was told that its run is over, or could not be, for its process stood still."""
        if older.told == "lease-lost":
            return True
        spans = list(self.paused.get(older.instance_id, ()))
        from_ms = began_ms - self.noise_ms
        if older.told is not None or older.ended_at is None:
            # Its signal was set by a stop, and stayed so when the lease was lost, whenever that was, and why; or it
            # was killed before it could write what it had been told.
            spans += self.cut_off.get(older.instance_id, self.away)
            from_ms = to_ms(older.started_at)
        return any(begin <= began_ms + self.noise_ms and end >= from_ms for begin, end in spans)

    def _left_behind(self, instance: str) -> list[tuple[int, int]]:
        """When an instance did not ask for the job, because a handler of its own went on after its timeout."""
        if self.expected.overlap != "skip":
            return []
        mine = [one for one in self.ran if one.instance_id == instance and one.told == "timeout"]
        return [(self._over_ms(one), _NEVER_MS if one.ended_at is None else to_ms(one.ended_at)) for one in mine]

    def _must_be_kept(self, one: Ran, by_ms: int) -> bool:
        """Whether a run ended by itself, and its holder could store that by then: it lived, and reached the store."""
        if one.ended_at is None or one.told in ("stop", "lease-lost"):
            return False
        ended_ms = self._over_ms(one)
        spans = [*self.paused.get(one.instance_id, ()), *self._unable(one.instance_id)]
        return asked_again(sorted(spans), ended_ms - self.noise_ms, ended_ms + self.noise_ms) < by_ms

    def _settled(self, one: Ran) -> bool:
        """Whether its end must be known by now: it ended, or a later grant has found its lease over."""
        if one.ended_at is not None:
            return True
        lost_ms = self._over_ms(one) + self.expected.lease_ms + self.noise_ms
        return any(to_ms(other.started_at) > lost_ms for other in self.ran)

    def _fault(self, kind: str, slot_ms: int, what: str) -> Fault:
        return Fault(kind, self.job, from_ms(slot_ms), what)


def _told(one: Ran) -> str:
    return f"attempt {one.attempt} of {iso(one.slot)} on {one.instance_id}"
