"""The one source of chance: jitter, tokens, when a backup asks. A simulation replaces it with a seeded one."""

from __future__ import annotations

import os
import random
from typing import Protocol

__all__ = ["Chance", "SystemChance"]


class Chance(Protocol):
    """Where randomness comes from. Every method may be called on any thread and after a fork."""

    def token(self) -> str:
        """A fresh name that nobody else has or can guess; holds at least one letter, so it never equals a slot."""

    def between(self, low_ms: int, high_ms: int) -> int:
        """A whole number of milliseconds, evenly from ``low_ms`` to ``high_ms``, both included."""


class SystemChance:
    """The operating system's random source, which a fork cannot copy."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token(self) -> str:
        return "t" + os.urandom(16).hex()

    def between(self, low_ms: int, high_ms: int) -> int:
        return self._random.randint(low_ms, max(low_ms, high_ms))
