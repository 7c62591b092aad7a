"""What a store must do: ``LeaseBackend`` and ``ClaimOnlyBackend``, and ``open_backend``, which makes one from a URL.

``docs/protocol.rst`` is the claim table to the letter; ``tests/contract`` asks every lease backend for each line of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict

__all__ = ["ClaimOnlyBackend", "LeaseBackend", "open_backend"]


class LeaseBackend(ABC):
    """A store that grants leases.

    Every method is one atomic step on the store, on the store's own clock; may be called on any thread, and in a child
    after a fork; blocks for no longer than the store's time-outs; and raises ``BackendError``, with the driver's error
    as its cause, when the store could not be reached or refused. A call that raised may have happened all the same:
    it can be repeated with the same token, and the second time changes nothing but the lease that it renews.
    """

    @abstractmethod
    def claim(self, request: ClaimRequest) -> ClaimReply:
        """Asks for an attempt of a run. A losing answer is an answer, not an error."""

    @abstractmethod
    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        """Renews the lease that the token holds: OK, FINISHED (by this token, no alarm) or LOST. Never creates."""

    @abstractmethod
    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        """Marks the run finished, then saves its record, in one step: OK or LOST. Attempt and fence are the store's."""

    @abstractmethod
    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        """Gives up the lease of an interrupted run and saves its record; the run stays unfinished: OK or LOST.

        Args:
            counts: whether the attempt counts against ``max_attempts``. A manual run is finished instead.
        """

    @abstractmethod
    def save_result(self, job: str, record: RunRecord) -> None:
        """Writes or replaces the record of (run id, attempt) and touches nothing else."""

    @abstractmethod
    def time(self, job: str) -> int:
        """The store's clock, in milliseconds since the epoch. Only reads."""

    @abstractmethod
    def active(self, job: str) -> list[ActiveRun]:
        """The unfinished runs, newest fence first. Only reads; passes over what it cannot read."""

    @abstractmethod
    def history(self, job: str, limit: int) -> list[RunRecord]:
        """At most ``limit`` records, newest fence first. Only reads; passes over what it cannot read."""

    @abstractmethod
    def forget(self, job: str) -> None:
        """Removes everything that the store keeps for a job, history included. For a job that is gone from the code."""

    def bound_calls(self, limit_ms: int) -> None:
        """Told at registration of each job: one call may take at most a third of its lease.

        A store whose time-outs are ours lowers them; one whose client is the user's refuses where they are too long.

        Raises:
            ConfigurationError: the time-outs of one call (connect, read, discovery) add up to more.
        """

    def clock_of(self, job: str) -> Hashable:
        """Names the clock that answers for a job: equal names, one clock. In a cluster each node has its own.

        Asked often: it must not block.
        """
        return None

    def advice(self) -> list[str]:
        """What an operator should know of how this store is set up, a sentence each; empty where all is well.

        Asked once after each start, and logged as warnings. Only reads; may raise whatever it likes, for a store that
        does not tell is no error.
        """
        return []

    def close(self) -> None:
        """Closes this process's connections; the next call opens new ones. Safe twice."""


class ClaimOnlyBackend(ABC):
    """A store that can only say who came first: one boolean claim, no lease, no recovery.

    A slot is run at most once: if its process dies, the slot is lost. Calls, threads and errors are as in LeaseBackend.
    """

    @abstractmethod
    def claim(self, job: str, slot_ms: int, token: str) -> bool:
        """True for exactly one caller per (job, slot), for longer than any instance could still ask for that slot.

        The same token is given the same answer, for a call that raised is repeated. See ``keep_claims`` for how long.
        """

    @abstractmethod
    def save_result(self, job: str, record: RunRecord, history_limit: int) -> None:
        """Adds the record and keeps the newest ``history_limit``."""

    @abstractmethod
    def history(self, job: str, limit: int) -> list[RunRecord]:
        """At most ``limit`` records, newest first. Only reads."""

    def forget(self, job: str) -> None:
        """Removes the job's history."""

    def keep_claims(self, job: str, asked_until_ms: Callable[[int], int]) -> None:
        """Told at registration of each job how long its claims are needed, for a store that drops them after a time.

        Args:
            asked_until_ms: takes a slot, and gives the instant, in milliseconds since the epoch, from which on no
                instance asks for it any more, by its own clock. A grant that takes more than ten minutes beyond that
                is given up; and as far as the clocks of two instances may differ, a claim must be kept for longer.
        """

    def close(self) -> None:
        """Closes this process's connections; the next call opens new ones. Safe twice."""


def open_backend(url: str, *, prefix: str | None = None) -> LeaseBackend:
    """Makes a backend from a URL; connects at its first call, not here.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://`` (as redis-py reads them), ``sqlite:///relative.db``,
            ``sqlite:////absolute.db``, or ``memory://`` (this process alone; each call makes a new one).
        prefix: goes before every key; for Redis only. None: ``anarchon:``.

    Raises:
        ConfigurationError: an unknown scheme, a part that is missing or wrong, or a prefix where there are no keys.
            The message never repeats the URL, for it may hold a password.
    """
    from anarchon.errors import ConfigurationError

    if not isinstance(url, str):
        raise ConfigurationError(f"backend must be a backend object or a URL, not {type(url).__name__}.")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(
            "The store's URL has no scheme: expected redis://, rediss://, unix://, sqlite:/// or memory://."
        )
    if scheme in ("redis", "rediss", "unix"):
        from anarchon.backends.redis import RedisBackend

        return RedisBackend(url) if prefix is None else RedisBackend(url, prefix=prefix)
    if prefix is not None:
        raise ConfigurationError(f"prefix is for Redis, where jobs share one key space; {scheme}:// has none.")
    if scheme == "sqlite":
        from anarchon.backends.sqlite import SQLiteBackend

        return SQLiteBackend.from_url(url)
    if scheme == "memory":
        from anarchon.backends.memory import MemoryBackend

        if rest.strip("/"):
            raise ConfigurationError("memory:// takes nothing after it: the store lives in this object alone.")
        return MemoryBackend()
    raise ConfigurationError(
        f"Unknown scheme {scheme[:20]!r} in the store's URL: expected redis://, rediss://, unix://, sqlite:/// or memory://."
    )
