"""A slot at every multiple of an interval since the Unix epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timezone
from datetime import tzinfo as TzInfo

from anarchon.durations import Duration, format_duration, parse_duration
from anarchon.errors import ConfigurationError, shown

__all__ = ["Every", "every"]

# A claim is a round trip to the store, and a timer wakes some milliseconds late: slots that come faster than this
# would pass before anyone could claim them.
_LEAST_MS = 10


@dataclass(frozen=True)
class Every:
    """Slots at the multiples of ``interval_ms`` since the epoch: the same for every instance, restart and deploy.

    Counting from the start of a process would give each process slots of its own, and a process that restarts more
    often than the interval none at all. A clock change does not touch these slots: they are counted in UTC.
    """

    text: str
    interval_ms: int
    kind: str = field(default="every", init=False, repr=False)
    zone_name: str = field(default="UTC", init=False, repr=False)
    tzinfo: TzInfo = field(default=timezone.utc, init=False, repr=False)

    def next_after(self, instant_ms: int) -> int:
        return (instant_ms // self.interval_ms + 1) * self.interval_ms

    def newest_at(self, instant_ms: int) -> int:
        return instant_ms // self.interval_ms * self.interval_ms

    def count(self, after_ms: int, until_ms: int) -> int:
        return max(0, until_ms // self.interval_ms - after_ms // self.interval_ms)


def every(interval: Duration) -> Every:
    """A slot at every multiple of an interval.

    Args:
        interval: ``"10s"``, ``"1h30m"``, a ``timedelta``, or a number of seconds; at least 10 ms.

    Raises:
        ConfigurationError: not a duration, or a shorter one.
    """
    interval_ms = parse_duration(interval, "interval")
    if interval_ms < _LEAST_MS:
        raise ConfigurationError(f"interval must be at least {format_duration(_LEAST_MS)}, not {shown(interval)}.")
    text = interval.strip() if isinstance(interval, str) else format_duration(interval_ms)
    return Every(text, interval_ms)
