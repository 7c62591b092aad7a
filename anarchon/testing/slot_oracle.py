"""Judges what really ran against what was due, from a log that the handlers wrote outside the store.

The oracle believes nothing that the library says of itself; the store's records are only compared with the log. It is
meant for whoever doubts: run a fleet, kill and pause what you like, and ask it afterwards. The idea is that of Jepsen's
checker for Chronos: due instants are targets, each of which some run must hit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from anarchon.durations import Duration, from_ms, parse_duration, to_ms
from anarchon.options import parse_options
from anarchon.records import RunRecord
from anarchon.scheduler import Scheduler
from anarchon.testing.run_log import Ran
from anarchon.testing.slot_case import Case, Expected, Fault
from anarchon.testing.spans import Span, instant_ms, merged

__all__ = ["Fault", "Judgement", "SlotOracle"]


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


class SlotOracle:
    """Holds what is due, and judges what ran.

    Args:
        noise: what may lie between an instant and the line that tells of it, and between a store's return and the next
            claim; also how far the hosts' clocks, by which the log is written, may differ from the store's.
    """

    def __init__(self, noise: Duration = "500ms") -> None:
        self._noise_ms = parse_duration(noise, "noise")
        self._expected: dict[str, Expected] = {}

    @classmethod
    def of(cls, scheduler: Scheduler, since: datetime, until: datetime, noise: Duration = "500ms") -> SlotOracle:
        """Expects every job of a scheduler, as it is registered, at each of its slots from one instant to another.

        Args:
            since: the first instant, aware: when every process had started.
            until: the last instant, aware: a while before the first one stopped, so that the last slots could run.

        Raises:
            ConfigurationError: an instant is not an aware datetime.
        """
        since_ms, until_ms = instant_ms(since), instant_ms(until)
        oracle = cls(noise)
        for job in scheduler._jobs.values():
            slots, slot_ms = [], job.schedule.next_after(since_ms - 1)
            while slot_ms <= until_ms:
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
        """Expects a job at these slots; its options are what it was registered with. Returns the oracle.

        Raises:
            ConfigurationError: an option that no job could have; a slot that is not an aware datetime.
        """
        given = {"overlap": overlap, "max_attempts": max_attempts, "max_late": max_late}
        told = parse_options({**given, "jitter": jitter, "lease": lease, "timeout": timeout})
        self._expected[job] = Expected(
            sorted(map(instant_ms, slots)),
            told["overlap"],
            told["max_attempts"],
            told["max_late"],
            told["jitter"],
            told["lease"],
            told["timeout"],
        )
        return self

    def judge(
        self,
        ran: Iterable[Ran],
        records: Mapping[str, Sequence[RunRecord]] | None = None,
        *,
        away: Iterable[Span] = (),
        started: Mapping[str, datetime] | None = None,
        died: Mapping[str, datetime] | None = None,
        paused: Mapping[str, Sequence[Span]] | None = None,
        cut_off: Mapping[str, Sequence[Span]] | None = None,
    ) -> Judgement:
        """Compares what ran with what was due.

        Args:
            ran: the log, whole.
            records: by job, what the store kept, whole (the history limit was not reached); None: not compared.
            away: when no instance could have claimed anything: the store was down, or all instances were.
            started: by instance, when it had started: it asks for no slot that came due before. None: there was always
                somebody who could ask, but for ``away``; then instances that come and go are better not looked at.
            died: by instance, when its process was killed.
            paused: by instance, when its process stood still, as a stopped one or a suspended machine does.
            cut_off: by instance, when its calls to the store failed, some or all: what it had run is in the way of
                others until it could tell the store, or its lease was over.

        Raises:
            ConfigurationError: an instant is not an aware datetime, or a span ends before it begins.
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
            expected = self._expected.get(job) or Expected([], "allow", 1, 0, 0, 0, None)
            case = Case(
                job=job,
                expected=expected,
                noise_ms=self._noise_ms,
                ran=sorted(by_job[job], key=lambda one: (one.fence, one.started_at)),
                records=None if records is None else {(r.slot, r.attempt): r for r in records.get(job, ())},
                away=merged(away),
                started_ms=None if started is None else {instance: instant_ms(at) for instance, at in started.items()},
                died_ms={instance: instant_ms(at) for instance, at in (died or {}).items()},
                paused={instance: merged(spans) for instance, spans in (paused or {}).items()},
                cut_off={instance: merged([*spans, *away]) for instance, spans in (cut_off or {}).items()},
            )
            faults.extend(case.faults(explained))
            attempts.update(one.attempt for one in case.ran)
            slots += len(expected.slots_ms)
            runs += len({to_ms(one.slot) for one in case.ran}.intersection(expected.slots_ms))
        return Judgement(faults, slots, runs, explained, attempts)
