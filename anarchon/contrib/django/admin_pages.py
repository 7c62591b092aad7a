"""What the admin's pages show of a scheduler's jobs: plain values. Knows no request and no template."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anarchon.backends import LeaseBackend
from anarchon.errors import BackendError
from anarchon.records import ActiveRun, JobInfo, RunRecord
from anarchon.scheduler import Scheduler

__all__ = ["JobPage", "ListPage", "Row", "job_page", "list_page"]

_logger = logging.getLogger("anarchon")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Row:
    """A job of this process and its newest attempt.

    Attributes:
        known: whether the store was there to tell what was last run, and what runs now.
    """

    info: JobInfo
    last: RunRecord | None
    active: list[ActiveRun]
    known: bool


@dataclass(frozen=True)
class ListPage:
    """Every job of this process.

    Attributes:
        leases: whether the store knows what runs now.
        away: whether the store could not be asked.
    """

    rows: list[Row]
    leases: bool
    away: bool


@dataclass(frozen=True)
class JobPage:
    """One job; ``info`` is None where it is not registered in this process. What else is here is as in ListPage."""

    name: str
    info: JobInfo | None
    records: list[RunRecord]
    active: list[ActiveRun]
    leases: bool
    away: bool

    @property
    def newest_manual(self) -> str:
        """The id of the newest manual run that is shown, going on or ended; "none" where there is none."""
        runs: list[ActiveRun | RunRecord] = [*self.active, *self.records]
        manual = [run for run in runs if run.trigger == "manual"]
        return max(manual, key=lambda run: run.fence).run_id if manual else "none"


def list_page(scheduler: Scheduler) -> ListPage:
    """Every job with its newest attempt and what runs now: two questions a job."""
    store = _Store(scheduler)
    rows = []
    for info in scheduler.jobs():
        last, active = store.history(info.name, 1), store.active(info.name)
        rows.append(Row(info, last[0] if last else None, active, known=not store.away))
    return ListPage(rows, store.leases, store.away)


def job_page(scheduler: Scheduler, name: str, limit: int) -> JobPage:
    """One job with its newest attempts.

    Raises:
        ConfigurationError: that is no job's name.
    """
    store = _Store(scheduler)
    info = next((job for job in scheduler.jobs() if job.name == name), None)
    records, active = store.history(name, limit), store.active(name)
    return JobPage(name, info, records, active, store.leases, store.away)


class _Store:
    """Asks the store for one page. One that is away is not asked again: each question could take as long to fail."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.leases = isinstance(scheduler.backend, LeaseBackend)
        self.away = False

    def history(self, name: str, limit: int) -> list[RunRecord]:
        return self._ask(lambda: self._scheduler.history(name, limit))

    def active(self, name: str) -> list[ActiveRun]:
        return self._ask(lambda: self._scheduler.active(name))

    def _ask(self, question: Callable[[], list[_T]]) -> list[_T]:
        if self.away:
            return []
        try:
            return question()
        except BackendError as error:
            # Where it stands, and what its driver said, is for the log and not for everybody who may see the page.
            _logger.warning("A page of the admin could not ask the store: %s", error)
            self.away = True
            return []
