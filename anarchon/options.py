"""A job's options: one frozen value, checked where it is given, before anything starts.

Scheduler and job take the same options; a job's own go before the scheduler's, and those before the defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from anarchon.durations import Duration, format_duration, parse_duration
from anarchon.errors import ConfigurationError, shown

__all__ = ["GivenOptions", "JobOptions", "check_names", "option_names", "parse_options", "resolve_options"]


class GivenOptions(TypedDict, total=False):
    """The options as users write them."""

    lease: Duration
    heartbeat: Duration
    jitter: Duration
    max_late: Duration
    catch_up: Duration | None
    overlap: str
    max_attempts: int
    timeout: Duration | None
    history_limit: int


@dataclass(frozen=True)
class JobOptions:
    """What holds for one job.

    Attributes:
        lease_ms: how long a holder is trusted without a heartbeat; at least a second.
        heartbeat_ms: how often the lease is renewed; at most a third of it, so that one renewal may fail.
        jitter_ms: the longest random delay of the timer. The slot is never moved.
        max_late_ms: how long after its slot a run may begin.
        catch_up_ms: on start, the newest slot missed by less than this is run; None: none is.
        overlap: ``skip`` or ``allow``.
        max_attempts: attempts of one run, the first included.
        timeout_ms: the run has failed after this; None: never.
        history_limit: records kept.
    """

    lease_ms: int
    heartbeat_ms: int
    jitter_ms: int
    max_late_ms: int
    catch_up_ms: int | None
    overlap: str
    max_attempts: int
    timeout_ms: int | None
    history_limit: int

    def shown(self) -> dict[str, Any]:
        """The options under their public names; durations in seconds."""
        return {
            name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") and value is not None else value
            for name, value in self.__dict__.items()
        }


_LEAST_LEASE_MS = 1_000
_DEFAULT_JITTER_MS = 500


def option_names() -> tuple[str, ...]:
    """What a job, and a scheduler for its jobs, may be given by name."""
    return tuple(_PARSERS)


def check_names(given: Collection[str], known: Collection[str], what: str) -> None:
    """Refuses a name that is not known, with the nearest one that is.

    Raises:
        ConfigurationError: an unknown name.
    """
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise ConfigurationError(f"Unknown {what} {name!r}.{hint} Expected one of: {', '.join(sorted(known))}.")


def parse_options(given: Mapping[str, object], beside: Collection[str] = ()) -> dict[str, Any]:
    """Checks each option by itself; durations become milliseconds.

    Args:
        beside: what else may be given by name in the same place, for the message about a name that is misspelt.

    Raises:
        ConfigurationError: an unknown option, or a value that is none of what was expected.
    """
    check_names(list(given), [*_PARSERS, *beside], "option")
    return {name: _PARSERS[name](value, name) for name, value in given.items()}


def resolve_options(defaults: Mapping[str, Any], own: Mapping[str, Any], interval_ms: int | None = None) -> JobOptions:
    """Puts parsed options together and checks what ties them.

    Args:
        defaults, own: the scheduler's and the job's options, from ``parse_options``.
        interval_ms: the interval of an ``every`` job; None for cron.

    Raises:
        ConfigurationError: two options contradict each other.
    """
    chosen = {**defaults, **own}
    lease_ms = chosen.get("lease", 30_000)
    max_late_ms = chosen.get("max_late", 60_000)
    jitter_ms = chosen.get("jitter")
    if jitter_ms is None:
        jitter_ms = min(_DEFAULT_JITTER_MS, (interval_ms or 10 * _DEFAULT_JITTER_MS) // 10, max_late_ms // 10)
    options = JobOptions(
        lease_ms=lease_ms,
        heartbeat_ms=chosen.get("heartbeat", lease_ms // 5),
        jitter_ms=jitter_ms,
        max_late_ms=max_late_ms,
        catch_up_ms=chosen.get("catch_up"),
        overlap=chosen.get("overlap", "skip"),
        max_attempts=chosen.get("max_attempts", 3),
        timeout_ms=chosen.get("timeout"),
        history_limit=chosen.get("history_limit", 200),
    )
    _check_together(options, interval_ms)
    return options


def _check_together(options: JobOptions, interval_ms: int | None) -> None:
    # Three heartbeats a lease: one renewal may be lost and the next still comes before the holder must stop itself.
    if options.heartbeat_ms * 3 > options.lease_ms:
        raise ConfigurationError(
            f"heartbeat must be at most a third of the lease: {format_duration(options.heartbeat_ms)} is more than"
            f" {format_duration(options.lease_ms // 3)} (lease {format_duration(options.lease_ms)})."
        )
    if options.jitter_ms >= options.max_late_ms:
        raise ConfigurationError(
            f"jitter must be less than max_late: {format_duration(options.jitter_ms)} is not less than"
            f" {format_duration(options.max_late_ms)}."
        )
    if interval_ms is not None and options.jitter_ms >= interval_ms:
        raise ConfigurationError(
            f"jitter must be less than the interval: {format_duration(options.jitter_ms)} is not less than"
            f" {format_duration(interval_ms)}."
        )


def _lease(value: object, name: str) -> int:
    ms = parse_duration(value, name)
    if ms < _LEAST_LEASE_MS:
        raise ConfigurationError(f"{name} must be at least 1s, not {format_duration(ms)}.")
    return ms


def _positive(value: object, name: str) -> int:
    ms = parse_duration(value, name)
    if ms == 0:
        raise ConfigurationError(f"{name} must be more than zero.")
    return ms


def _positive_or_none(value: object, name: str) -> int | None:
    return None if value is None else _positive(value, name)


def _overlap(value: object, name: str) -> str:
    if value not in ("skip", "allow"):
        raise ConfigurationError(f"{name} must be 'skip' or 'allow', not {shown(value)}.")
    return str(value)


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigurationError(f"{name} must be a whole number from 1 to 1000000, not {shown(value)}.")
    return value


_PARSERS: dict[str, Callable[[object, str], Any]] = {
    "lease": _lease,
    "heartbeat": _positive,
    "jitter": parse_duration,
    "max_late": _positive,
    "catch_up": _positive_or_none,
    "overlap": _overlap,
    "max_attempts": _count,
    "timeout": _positive_or_none,
    "history_limit": _count,
}
