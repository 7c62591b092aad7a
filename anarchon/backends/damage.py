"""Damaged state: what the fields of a job and of its runs must be, and the one error that says which of them is not.

A damaged fence, ``latest`` or run must not be guessed or passed over: a slot could run twice, or a second run beside a
live one. So whatever decides refuses that job, and changes nothing; readers show what they can read. The scripts of
``lua/job.lua`` keep to the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anarchon.errors import BackendError, shown

__all__ = ["JOB", "MISSING", "RUN", "damaged", "first_damaged"]

#: No number that is kept is larger: of one with more digits, the JSON of a Redis script would lose the last.
LARGEST = 10**14 - 1


class _Missing:
    def __repr__(self) -> str:
        return "missing"


#: In place of the value, where a field is not there at all.
MISSING = _Missing()


def damaged(job: str, field: str | None, value: object, run_id: object = None) -> BackendError:
    """The error for a damaged field.

    Args:
        field: its name in the store; None: the run as a whole cannot be read.
        run_id: the run whose field it is; None: it is the job's own.
    """
    where = " of ".join(part for part in (field, None if run_id is None else f"run {shown(run_id)}") if part)
    return BackendError(
        f"The store's state of job {job!r} is damaged ({where}: {shown(value)}); nothing runs it until that is mended. "
        "`anarchon forget` removes all that is kept of it."
    )


def first_damaged(values: Mapping[str, object], rules: Mapping[str, Callable[[object], bool]]) -> str | None:
    """The name of the first field that is not what it must be; None where all are. Fields without a rule may be any."""
    return next((name for name, sound in rules.items() if not sound(values.get(name, MISSING))), None)


def _number(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _number_or_none(value: object) -> bool:
    return value is None or _number(value)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _truth(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _one_of(*words: str) -> Callable[[object], bool]:
    return lambda value: value in words


JOB: dict[str, Callable[[object], bool]] = {
    "fence": _number,
    "history_limit": _number,
    "latest_ms": _number_or_none,
}

RUN: dict[str, Callable[[object], bool]] = {
    "run_id": _text,
    "slot_ms": _number,
    "trigger": _one_of("scheduled", "catch-up", "takeover", "manual"),
    "manual": _truth,
    "attempt": _number,
    "counted": _number,
    "token": _text,
    "fence": _number,
    "instance_id": _text,
    "started_at_ms": _number,
    "lease_until_ms": _number,
    "lease_ms": _number,
    "overlap": _one_of("skip", "allow"),
    "history_limit": _number,
    "latest_before_ms": _number_or_none,
    "released": _truth,
    "ended": _truth,
    "held_before": _texts,
}
