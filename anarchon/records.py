"""The frozen values that travel between the parts: claims and their answers, records of attempts, events.

Instants are integer milliseconds (``_ms``) where a value stays inside, and aware datetimes where users see it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from anarchon.durations import from_ms, to_ms

__all__ = [
    "ActiveRun",
    "ClaimReply",
    "ClaimRequest",
    "DoneReason",
    "Event",
    "Holder",
    "JobInfo",
    "Mode",
    "Outcome",
    "RunRecord",
    "Verdict",
    "decode_record",
    "encode_record",
    "shorten_error",
]

#: How long the text of an error may be, in bytes of UTF-8, wherever it is kept.
ERROR_BYTES = 4096

#: How long after it was asked for a manual run may still begin (protocol.md: line 11 applies with five minutes).
MANUAL_WINDOW_MS = 5 * 60_000


class Outcome(enum.Enum):
    """What a store answers to a claim."""

    WON = "won"
    RUNNING = "running"
    OVERLAP = "overlap"
    LATE = "late"
    DONE = "done"
    NONE = "none"


class DoneReason(enum.Enum):
    """Why a claim was answered ``done``."""

    FINISHED = "finished"
    SUPERSEDED = "superseded"
    EXHAUSTED = "exhausted"
    PASSED = "passed"


class Mode(enum.Enum):
    """Whether a claim may start a run (``start``) or only take one over (``takeover``)."""

    START = "start"
    TAKEOVER = "takeover"


class Verdict(enum.Enum):
    """What a store answers to ``heartbeat``, ``finish`` and ``release``."""

    OK = "ok"
    FINISHED = "finished"
    LOST = "lost"


@dataclass(frozen=True)
class ClaimRequest:
    """One claim, as the claim table of the docs names its parts. Durations only: the store's clock decides."""

    job: str
    slot_ms: int
    run_id: str
    token: str
    instance_id: str
    lease_ms: int
    overlap: str
    max_attempts: int
    window_ms: int
    mode: Mode
    trigger: str
    history_limit: int

    @property
    def manual(self) -> bool:
        """A manual run has one attempt, leaves ``latest`` alone and is never taken over."""
        return self.trigger == "manual"


@dataclass(frozen=True)
class Holder:
    """A run that stands in the way of a claim, and who holds it."""

    run_id: str
    slot_ms: int
    attempt: int
    instance_id: str
    lease_left_ms: int


@dataclass(frozen=True)
class ClaimReply:
    """What the store answered to a claim.

    Attributes:
        outcome: the answer.
        store_time_ms: the store's clock when it answered.
        latest_ms: the newest slot granted on schedule before this grant (or now, where nothing was granted); None
            where there was none. A repeated claim gives the same again.
        attempt, fence: of the attempt granted (``won``); else None.
        holder: the run in the way: this one for ``running``, the other one for ``overlap``; else None.
        done: for ``done``, why; else None.
        wait_ms: for ``none`` on a slot that is still to come, how long until it; else None.
    """

    outcome: Outcome
    store_time_ms: int
    latest_ms: int | None = None
    attempt: int | None = None
    fence: int | None = None
    holder: Holder | None = None
    done: DoneReason | None = None
    wait_ms: int | None = None


@dataclass(frozen=True)
class RunRecord:
    """How one attempt of a run ended.

    Attributes:
        job: the job's name.
        slot: the due instant, aware, UTC; for a manual run, when it was asked for.
        run_id: the run's id; attempts of one run share it.
        attempt: 1 for the first.
        trigger: ``scheduled``, ``catch-up``, ``takeover`` or ``manual``.
        status: ``success``, ``failed``, ``interrupted`` or ``lost``.
        instance_id: who ran it.
        fence: grows with every attempt of the job.
        started_at, finished_at: aware, UTC, on the store's clock. For ``lost``, the end is when that was found.
        duration: seconds.
        error: ``"ValueError: ..."``, at most 4 KiB, or None.
        lease_lost: True if the lease had been lost, so that another attempt may have run at the same time.
    """

    job: str
    slot: datetime
    run_id: str
    attempt: int
    trigger: str
    status: str
    instance_id: str
    fence: int
    started_at: datetime
    finished_at: datetime
    duration: float
    error: str | None = None
    lease_lost: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-ready values; instants are ISO 8601 in UTC, such as ``2026-03-01T08:00:00.000Z``."""
        values = dict(self.__dict__)
        for name in ("slot", "started_at", "finished_at"):
            values[name] = iso(values[name])
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunRecord:
        """The record that ``to_dict`` gave, after JSON has carried it. Fields that are not known here are passed over.

        Raises:
            ValueError: that is no record.
        """
        with _no_other_error("record"):
            return cls(
                job=_text(values["job"]),
                slot=_instant(values["slot"]),
                run_id=_text(values["run_id"]),
                attempt=int(values["attempt"]),
                trigger=_text(values["trigger"]),
                status=_text(values["status"]),
                instance_id=_text(values["instance_id"]),
                fence=int(values["fence"]),
                started_at=_instant(values["started_at"]),
                finished_at=_instant(values["finished_at"]),
                duration=float(values["duration"]),
                error=None if values.get("error") is None else _text(values["error"]),
                lease_lost=values.get("lease_lost") is True,
            )


@dataclass(frozen=True)
class ActiveRun:
    """A run that has not finished: what runs right now, where, and how much of its lease is left.

    Attributes:
        lease_left: seconds; 0.0 means that the lease is over, and the run waits to be taken over or replaced.
    """

    job: str
    slot: datetime
    run_id: str
    attempt: int
    trigger: str
    instance_id: str
    fence: int
    started_at: datetime
    lease_left: float

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-ready values; instants are ISO 8601 in UTC."""
        values = dict(self.__dict__)
        for name in ("slot", "started_at"):
            values[name] = iso(values[name])
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ActiveRun:
        """The run that ``to_dict`` gave; as for ``RunRecord``."""
        with _no_other_error("unfinished run"):
            return cls(
                job=_text(values["job"]),
                slot=_instant(values["slot"]),
                run_id=_text(values["run_id"]),
                attempt=int(values["attempt"]),
                trigger=_text(values["trigger"]),
                instance_id=_text(values["instance_id"]),
                fence=int(values["fence"]),
                started_at=_instant(values["started_at"]),
                lease_left=float(values["lease_left"]),
            )


@dataclass(frozen=True)
class JobInfo:
    """A job registered on this instance.

    Attributes:
        kind: ``every`` or ``cron``.
        schedule: the text it was registered with, such as ``"10s"`` or ``"0 8 * * 1-5"``.
        timezone: the zone's name.
        next_run: the next slot, aware, in the job's zone; None if there is none.
        options: every option with its value, durations in seconds.
    """

    name: str
    kind: str
    schedule: str
    timezone: str
    next_run: datetime | None
    options: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON-ready values; ``next_run`` is ISO 8601 with the zone's offset."""
        values = dict(self.__dict__)
        values["next_run"] = self.next_run.isoformat() if self.next_run else None
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobInfo:
        """The job that ``to_dict`` gave; as for ``RunRecord``. ``next_run`` has the zone's offset of that instant."""
        with _no_other_error("job"):
            next_run = values["next_run"]
            return cls(
                name=_text(values["name"]),
                kind=_text(values["kind"]),
                schedule=_text(values["schedule"]),
                timezone=_text(values["timezone"]),
                next_run=None if next_run is None else _aware(datetime.fromisoformat(_text(next_run))),
                options=dict(values["options"]),
            )


@dataclass(frozen=True)
class Event:
    """Something that happened to a run, told to listeners after it was stored.

    Attributes:
        type: ``start``, ``success``, ``failure``, ``interrupted``, ``skip`` or ``error``.
        job: the job's name; None for an ``error`` that concerns no job in particular.
        slot, run_id, attempt, trigger, fence: as in RunRecord, where known; else None.
        instance_id: the instance that tells it.
        reason: for ``skip``: ``taken``, ``overlap`` or ``late``; for ``interrupted``: ``stop`` or ``lease-lost``.
        holder: for ``skip``, the instance that runs it or is in the way, where known.
        previous: for the ``start`` of a scheduled run's first attempt, the newest slot granted before it, if any: those
            between the two were run by nobody, since no instance was up, or each had its reason for a skip.
        count: how many slots a ``skip`` stands for: 1, but for the last of very many late ones; None if not known.
        operation: for ``error``: what failed, such as ``claim``.
        exception: for ``failure`` and ``interrupted``, what the handler raised; for ``error``, what went wrong.
        record: for a result, the record as it was stored.
    """

    type: str
    job: str | None
    instance_id: str
    slot: datetime | None = None
    run_id: str | None = None
    attempt: int | None = None
    trigger: str | None = None
    fence: int | None = None
    reason: str | None = None
    holder: str | None = None
    previous: datetime | None = None
    count: int | None = 1
    operation: str | None = None
    exception: BaseException | None = field(default=None, compare=False)
    record: RunRecord | None = None


def shorten_error(text: str) -> str:
    """Keeps an error's text to 4 KiB of UTF-8 that every store can hold, whatever its size and bytes."""
    # NUL and lone surrogates: SQLite's text and JSON readers of other languages stumble over them.
    raw = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    if len(raw) <= ERROR_BYTES:
        return raw.decode("utf-8")
    mark = "... (cut)"
    return raw[: ERROR_BYTES - len(mark)].decode("utf-8", "ignore") + mark


# Made once: ``json.dumps`` makes an encoder for every call that asks for anything.
_encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def encode_record(record: RunRecord) -> str:
    """The record as the JSON text that stores keep, instants in milliseconds. ``lost`` records have this form too."""
    values = dict(record.__dict__)
    for name in ("slot", "started_at", "finished_at"):
        values[name + "_ms"] = to_ms(values.pop(name))
    values["duration_ms"] = round(values.pop("duration") * 1000)
    if record.error is not None:
        values["error"] = shorten_error(record.error)
    return _encode(values)


def decode_record(text: str | bytes) -> RunRecord | None:
    """Reads what ``encode_record`` wrote; None for what cannot be read.

    A record from a newer version is read as far as it goes: fields that are not known here are passed over. Readers
    never delete what they cannot read.
    """
    try:
        values = json.loads(text)
        started_ms, finished_ms = int(values["started_at_ms"]), int(values["finished_at_ms"])
        return RunRecord(
            job=_text(values["job"]),
            slot=from_ms(int(values["slot_ms"])),
            run_id=_text(values["run_id"]),
            attempt=int(values["attempt"]),
            trigger=_text(values["trigger"]),
            status=_text(values["status"]),
            instance_id=_text(values["instance_id"]),
            fence=int(values["fence"]),
            started_at=from_ms(started_ms),
            finished_at=from_ms(finished_ms),
            duration=int(values.get("duration_ms", finished_ms - started_ms)) / 1000,
            error=_text(values["error"]) if values.get("error") is not None else None,
            lease_lost=values.get("lease_lost") is True,
        )
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError, RecursionError):
        return None


def granted(record: RunRecord, attempt: int, fence: int) -> RunRecord:
    """The record with the attempt and fence that the store granted, which are the ones that count."""
    return replace(record, attempt=attempt, fence=fence)


def iso(instant: datetime) -> str:
    """An aware datetime as ISO 8601 in UTC with milliseconds and a ``Z``."""
    return instant.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def _no_other_error(what: str) -> Iterator[None]:
    """Says in one way what a value that came from elsewhere is not."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
        raise ValueError(f"That is no {what}: {type(error).__name__}: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value


def _instant(value: object) -> datetime:
    # Python 3.10 reads an offset, but no Z.
    return _aware(datetime.fromisoformat(_text(value).replace("Z", "+00:00"))).astimezone(timezone.utc)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("expected an offset")
    return instant
