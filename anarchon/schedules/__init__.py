"""Schedules: text in, slots out. The contract is here; ``every.py`` and ``cron.py`` are the two that there are."""

from __future__ import annotations

from datetime import tzinfo as TzInfo
from typing import Protocol

from anarchon.schedules.cron import Cron, cron
from anarchon.schedules.every import Every, every
from anarchon.schedules.zones import parse_zone, zone_name

__all__ = ["Cron", "Every", "Schedule", "cron", "every", "parse_zone", "zone_name"]


class Schedule(Protocol):
    """When a job is due. A value: immutable, hashable, the same on every host, cheap to share between threads.

    It reads no clock, starts no thread and does no I/O: instants come in and slots go out, both in integer
    milliseconds since the Unix epoch (UTC). Slots lie on one fixed, endless line. Where one asks from does not
    change it, so ``newest_at(next_after(t)) == next_after(t)``, and no slot lies between ``newest_at(t)`` and
    ``next_after(t)``. Every call takes bounded time, whatever the schedule and the instant.
    """

    @property
    def kind(self) -> str:
        """``every`` or ``cron``."""

    @property
    def text(self) -> str:
        """As it was registered: ``"10s"``, ``"0 8 * * 1-5"``."""

    @property
    def zone_name(self) -> str:
        """The name of its time zone; ``UTC`` where it needs none."""

    @property
    def tzinfo(self) -> TzInfo:
        """Its time zone, in which its slots are shown to people."""

    @property
    def interval_ms(self) -> int | None:
        """The time from each slot to the next, where that is always the same; else None."""

    def next_after(self, instant_ms: int) -> int:
        """The first slot strictly after the instant.

        Raises:
            OverflowError: there is none within a hundred years, or before the year 10000.
        """

    def newest_at(self, instant_ms: int) -> int:
        """The newest slot at or before the instant.

        Raises:
            OverflowError: there is none within a hundred years, or after the year 1.
        """

    def count(self, after_ms: int, until_ms: int) -> int | None:
        """How many slots lie after the one instant and not after the other; None where only walking could tell."""
