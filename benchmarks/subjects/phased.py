"""An interval whose slots lie so long after its start, so that those of many jobs can be spread over it."""

from __future__ import annotations

from dataclasses import dataclass

from anarchon.schedules import Every


@dataclass(frozen=True)
class Phased(Every):
    phase_ms: int = 0

    def next_after(self, instant_ms: int) -> int:
        return super().next_after(instant_ms - self.phase_ms) + self.phase_ms

    def newest_at(self, instant_ms: int) -> int:
        return super().newest_at(instant_ms - self.phase_ms) + self.phase_ms

    def count(self, after_ms: int, until_ms: int) -> int:
        return super().count(after_ms - self.phase_ms, until_ms - self.phase_ms)
