"""What a cache must do to say who came first: ``AtomicCache``. Derive from it for a cache that is not known here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

__all__ = ["AtomicCache"]


class AtomicCache(ABC):
    """Five calls to a cache that all processes share.

    Keys are ASCII text without white space, of at most 154 characters; values are ASCII text. Every method may be
    called on any thread, and in a child after a fork; is answered within a time that is bounded; and raises where the
    cache could not be reached. A call that raised may have happened all the same.
    """

    @abstractmethod
    def add(self, key: str, value: str, seconds: int | None) -> object:
        """Stores the value where the key has none, in one atomic step for all processes; else changes nothing.

        Args:
            seconds: how long to keep it. None: for ever.

        What it returns is not looked at: the key is read afterwards, and whoever's value stands there came first.
        """

    @abstractmethod
    def get(self, key: str) -> str | bytes | None:
        """The value as it is now: an ``add`` that has been answered, by any process, is seen. None: there is none."""

    @abstractmethod
    def set(self, key: str, value: str, seconds: int) -> object:
        """Stores the value in place of any other."""

    @abstractmethod
    def delete(self, key: str) -> object:
        """Removes the key; nothing happens where there is none."""

    def get_many(self, keys: Sequence[str]) -> dict[str, str | bytes]:
        """The values of those keys that have one."""
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not None}
