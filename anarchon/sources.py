"""Time and waiting, threads, and chance: the three things that a simulation replaces to run all else as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anarchon.chance import Chance, SystemChance
from anarchon.clock import Clock, SystemClock
from anarchon.threads import Threads

__all__ = ["Sources"]


@dataclass(frozen=True)
class Sources:
    """Where a scheduler takes its time, its chance and its threads from.

    Attributes:
        make_threads: makes a new set of threads; asked again at every start and after a fork.
    """

    clock: Clock = field(default_factory=SystemClock)
    chance: Chance = field(default_factory=SystemChance)
    make_threads: Callable[[Clock], Threads] = Threads
