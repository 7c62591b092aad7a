"""Judges what really ran against what was due, from a log that the handlers wrote outside the store.

The oracle believes nothing that the library says of itself; the store's records are only compared with the log. It is
meant for whoever doubts: run a fleet, kill and pause what you like, and ask it afterwards. The idea is that of Jepsen's
checker for Chronos: due instants are targets, each of which some run must hit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from anarchon.durations import Duration, from_ms, parse_duration, to_ms
from anarchon.records import RunRecord, iso
from anarchon.scheduler import Scheduler
from anarchon.testing.run_log import Ran

__all__ = ["Fault", "Judgement", "SlotOracle"]

#: The longest pause before a call that failed is made again.
_LONGEST_PAUSE_MS = 5_000

#: From an instant to another.
Span = tuple[datetime, datetime]


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
class Judgement:
    """What the oracle found.

    Attributes:
        faults: what must not be, in the order of jobs and slots; empty where all is well.
        slots: how many slots were due.
        ran: how many of them ran.
        explained: how many of the others had a reason: ``away`` (nobody could have asked for it), ``busy`` (an older
            run was going on), ``never-begun`` (its holder died, or was stopped, before the handler began).
        attempts: how many calls of handlers there were, by the number of the attempt.
    """

    faults: list[Fault]
    slots: int
    ran: int
    explained: Counter[str]
    attempts: Counter[int]


@dataclass(frozen=True)
class _Expected:
    slots_ms: list[int]
    overlap: str
    max_attempts: int
    max_late_ms: int
    jitter_ms: int
    lease_ms: int
    timeout_ms: int | None


class SlotOracle:
    """Holds what is due, and judges what ran.

    Args:
        noise: what may lie between an instant and the line that tells of it, and between a store's return and the next
            claim; also how far the hosts' clocks, by which the log is written, may differ from the store's.
    """

    def __init__(self, noise: Duration = "500ms") -> None:
        self._noise_ms = parse_duration(noise, "noise")
        self._expected: dict[str, _Expected] = {}

    @classmethod
    def of(cls, scheduler: Scheduler, since: datetime, until: datetime, noise: Duration = "500ms") -> SlotOracle:
        """Expects every job of a scheduler, as it is registered, at each of its slots from one instant to another.

        Args:
            since: the first instant, aware: when every process had started.
            until: the last instant, aware: a while before the first one stopped, so that the last slots could run.
        """
        oracle = cls(noise)
        for job in scheduler._jobs.values():
            slots, slot_ms = [], job.schedule.next_after(to_ms(since) - 1)
            while slot_ms <= to_ms(until):
                slots.append(from_ms(slot_ms))
                slot_ms = job.schedule.next_after(slot_ms)
            shown = job.options.shown()
            names = ("overlap", "max_attempts", "max_late", "jitter", "lease", "timeout")
            oracle.expect(job.name, slots, **{name: shown[name] for name in names})
        return oracle

    def expect(
        self,
        job: str,
        slots: Iterable[datetime],
        *,
        overlap: str = "skip",
        max_attempts: int = 3,
        max_late: Duration = "1m",
        jitter: Duration = "500ms",
        lease: Duration = "30s",
        timeout: Duration | None = None,
    ) -> SlotOracle:
        """Expects a job at these slots; its options are what it was registered with. Returns the oracle."""
        self._expected[job] = _Expected(
            sorted(to_ms(slot) for slot in slots),
            overlap,
            max_attempts,
            parse_duration(max_late, "max_late"),
            parse_duration(jitter, "jitter"),
            parse_duration(lease, "lease"),
            None if timeout is None else parse_duration(timeout, "timeout"),
        )
        return self

    def judge(
        self,
        ran: Iterable[Ran],
        records: Mapping[str, Sequence[RunRecord]] | None = None,
        *,
        away: Iterable[Span] = (),
        died: Mapping[str, datetime] | None = None,
        paused: Mapping[str, Sequence[Span]] | None = None,
        cut_off: Mapping[str, Sequence[Span]] | None = None,
    ) -> Judgement:
        """Compares what ran with what was due.

        Args:
            ran: the log, whole.
            records: by job, what the store kept, whole (the history limit was not reached); None: not compared.
            away: when no instance could have claimed anything: the store was down, or all instances were.
            died: by instance, when its process was killed.
            paused: by instance, when its process stood still, as a stopped one or a suspended machine does.
            cut_off: by instance, when its calls to the store failed, some or all: what it had run is in the way of
                others until it could tell the store, or its lease was over.
        """
        away = list(away)
        by_job: dict[str, list[Ran]] = defaultdict(list)
        for one in ran:
            by_job[one.job].append(one)
        faults: list[Fault] = []
        explained: Counter[str] = Counter()
        attempts: Counter[int] = Counter()
        slots = runs = 0
        for job in sorted({*self._expected, *by_job}):
            expected = self._expected.get(job) or _Expected([], "allow", 1, 0, 0, 0, None)
            case = _Case(
                job=job,
                expected=expected,
                noise_ms=self._noise_ms,
                ran=sorted(by_job[job], key=lambda one: (one.fence, one.started_at)),
                records=None if records is None else {(r.slot, r.attempt): r for r in records.get(job, ())},
                away=_merged(away),
                died_ms={instance: to_ms(instant) for instance, instant in (died or {}).items()},
                paused={instance: _merged(spans) for instance, spans in (paused or {}).items()},
                cut_off={instance: _merged([*spans, *away]) for instance, spans in (cut_off or {}).items()},
            )
            faults.extend(case.faults(explained))
            attempts.update(one.attempt for one in case.ran)
            slots += len(expected.slots_ms)
            runs += len({to_ms(one.slot) for one in case.ran}.intersection(expected.slots_ms))
        return Judgement(faults, slots, runs, explained, attempts)


@dataclass(frozen=True)
class _Case:
    """One job: each question is a method, which yields its faults."""

    job: str
    expected: _Expected
    noise_ms: int
    ran: list[Ran]
    records: dict[tuple[datetime, int], RunRecord] | None
    away: list[tuple[int, int]]
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
        granted = {to_ms(slot) for slot, _ in self.records or {}}
        busy = self._busy() if self.expected.overlap == "skip" else []
        for slot_ms, next_ms in pairwise([*self.expected.slots_ms, 1 << 62]):
            if slot_ms in begun:
                continue
            reason = self._reason(slot_ms, next_ms, busy, granted)
            if reason is None:
                yield self._fault("missed", slot_ms, "no handler was called for it, and nothing was in the way.")
            else:
                explained[reason] += 1

    def _reason(self, slot_ms: int, next_ms: int, busy: list[tuple[int, int]], granted: set[int]) -> str | None:
        """Why a slot did not run, where that was right."""
        if slot_ms in granted:
            return "never-begun"
        # Once a newer slot is granted an older one is closed.
        until_ms = min(slot_ms + self.expected.max_late_ms, next_ms)
        asked_ms = slot_ms + self.expected.jitter_ms + self.noise_ms
        asked_until_ms = _asked_again(self.away, slot_ms, asked_ms)
        if asked_until_ms > asked_ms and asked_until_ms >= until_ms:
            return "away"
        return "busy" if any(begin <= asked_until_ms and end >= slot_ms for begin, end in busy) else None

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

    def _overlapping(self) -> Iterator[Fault]:
        groups = [self.ran] if self.expected.overlap == "skip" else list(self._runs().values())
        for group in groups:
            for number, older in enumerate(group):
                until_ms = self._over_ms(older)
                for newer in group[number + 1 :]:
                    began_ms = to_ms(newer.started_at)
                    if began_ms < until_ms - self.noise_ms and not self._knew(older, began_ms):
                        late_ms = until_ms - began_ms
                        slot_ms = to_ms(newer.slot)
                        what = f"{_told(newer)} began {late_ms} ms before {_told(older)} was over."
                        yield self._fault("overlapping", slot_ms, what)

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

    # -- what several of them ask

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

    def _busy(self) -> list[tuple[int, int]]:
        """When a run stood in the way of the next: until its end was stored, or the lease of its holder was over."""
        spans = []
        for one in self.ran:
            over_ms, cut_off = self._over_ms(one), self.cut_off.get(one.instance_id, self.away)
            if one.ended_at is not None:
                over_ms = _asked_again(cut_off, over_ms, over_ms + self.noise_ms)
            if one.ended_at is None or one.told == "lease-lost":
                over_ms += self.expected.lease_ms
            begun_ms, slot_ms = to_ms(one.started_at), to_ms(one.slot)
            if any(begin <= begun_ms and end >= slot_ms for begin, end in cut_off):
                # Its holder may have had the grant for long, and not have heard of it.
                begun_ms = slot_ms
            spans.append((begun_ms, over_ms + self.noise_ms))
        begun = {(one.slot, one.attempt) for one in self.ran}
        # Granted to somebody who never heard of it: it was in the way until that was found.
        for which, record in (self.records or {}).items():
            if which not in begun:
                spans.append((to_ms(record.slot), to_ms(record.finished_at) + self.noise_ms))
        return spans

    def _over_ms(self, one: Ran) -> int:
        """When a run was over: with its handler, with its process, or by its timeout, whichever came first."""
        over_ms = self.died_ms.get(one.instance_id, 1 << 62) if one.ended_at is None else to_ms(one.ended_at)
        if self.expected.timeout_ms is None:
            return over_ms
        return min(over_ms, to_ms(one.started_at) + self.expected.timeout_ms)

    def _knew(self, older: Ran, began_ms: int) -> bool:
        """Whether the older one was told that its run is over, or could not be, for its process stood still."""
        if older.told == "lease-lost":
            return True
        spans = list(self.paused.get(older.instance_id, ()))
        if older.told is not None:
            # Its signal was set by a stop, and stayed so when the lease was lost.
            spans += self.cut_off.get(older.instance_id, self.away)
        over_ms = self._over_ms(older)
        return any(
            begin < over_ms and end > to_ms(older.started_at) and begin <= began_ms + self.noise_ms
            for begin, end in spans
        )

    def _settled(self, one: Ran) -> bool:
        """Whether its end must be known by now: it ended, or a later grant has found its lease over."""
        if one.ended_at is not None:
            return True
        lost_ms = self._over_ms(one) + self.expected.lease_ms + self.noise_ms
        return any(to_ms(other.started_at) > lost_ms for other in self.ran)

    def _fault(self, kind: str, slot_ms: int, what: str) -> Fault:
        return Fault(kind, self.job, from_ms(slot_ms), what)


def _merged(spans: Iterable[Span]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted((to_ms(begin), to_ms(end)) for begin, end in spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _asked_again(spans: list[tuple[int, int]], first_ms: int, last_ms: int) -> int:
    """When a call that is made between two instants has been answered at the latest: after what it may fall into."""
    for begin, end in spans:
        if begin <= last_ms and end >= first_ms:
            last_ms = max(last_ms, end + _LONGEST_PAUSE_MS)
    return last_ms


def _told(one: Ran) -> str:
    return f"attempt {one.attempt} of {iso(one.slot)} on {one.instance_id}"
