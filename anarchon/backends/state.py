"""What a store knows of one job while one call decides: ``JobState`` and its unfinished runs.

The claim table (``claims.py``) is written against this. A store that decides in Python fills one, lets the table decide
and keeps what changed, all in one atomic step. What may grow long (the history, the runs that have ended) is never
loaded: the table asks for the little that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

from anarchon.records import Holder, RunRecord

__all__ = ["REMEMBER_MS", "REMEMBER_NEWEST", "JobState", "Run"]

#: How long a finished run and a token that released one are remembered at least (and for two leases, if that is more).
REMEMBER_MS = 10 * 60_000

#: How many of them are remembered whatever their age.
REMEMBER_NEWEST = 16


@dataclass
class Run:
    """One unfinished run, as the claim that was granted last left it.

    Attributes:
        counted: how many attempts count against ``max_attempts``.
        latest_before_ms: the job's ``latest`` before the grant; a repeated claim is answered with it again.
        released: the newest attempt was released; its token holds nothing any more.
        ended: a grant has found the lease over, which ends it for good.
        held_before: the tokens of earlier attempts that were never released.
    """

    run_id: str
    slot_ms: int
    trigger: str
    manual: bool
    attempt: int
    counted: int
    token: str
    fence: int
    instance_id: str
    started_at_ms: int
    lease_until_ms: int
    lease_ms: int
    overlap: str
    history_limit: int
    latest_before_ms: int | None
    released: bool = False
    ended: bool = False
    held_before: list[str] = field(default_factory=list)

    def live(self, now_ms: int) -> bool:
        return not self.released and not self.ended and self.lease_until_ms > now_ms

    def renew(self, now_ms: int, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.lease_until_ms = now_ms + lease_ms
        self.ended = False

    def holder(self, now_ms: int) -> Holder:
        return Holder(self.run_id, self.slot_ms, self.attempt, self.instance_id, self.lease_until_ms - now_ms)


class JobState(ABC):
    """One job for the time of one atomic step.

    Attributes:
        name: the job's name.
        latest_ms: the newest slot ever granted on schedule; None where there was none.
        fence: the fencing number of the newest attempt granted; 0 where there was none.
        history_limit: of the newest grant; ``save_result`` keeps to it.
        runs: the unfinished runs by run id, in the order of their first grants.
    """

    def __init__(
        self,
        name: str,
        latest_ms: int | None = None,
        fence: int = 0,
        history_limit: int = 1,
        runs: Iterable[Run] = (),
    ) -> None:
        self.name = name
        self.latest_ms = latest_ms
        self.fence = fence
        self.history_limit = history_limit
        self.runs = {run.run_id: run for run in runs}

    @abstractmethod
    def finished(self, run_id: str) -> bool:
        """Whether the run is remembered as finished."""

    @abstractmethod
    def ended_by(self, run_id: str, token: str) -> bool | None:
        """Whether the token is remembered to have finished the run (True) or released it (False); None: neither."""

    @abstractmethod
    def remember(self, run_id: str, token: str | None, finished: bool, keep_until_ms: int, now_ms: int) -> None:
        """Remembers the end of a run, or the token that released it; then forgets what is over.

        Over is what was kept until now or earlier, but never one of the ``REMEMBER_NEWEST`` that came last.
        """

    @abstractmethod
    def has_record(self, run_id: str, attempt: int) -> bool:
        """Whether the history has a record of the attempt."""

    @abstractmethod
    def save_record(self, record: RunRecord, keep: int) -> None:
        """Writes or replaces the record of (run id, attempt); then keeps the ``keep`` newest, by fence."""
