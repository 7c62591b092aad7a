"""The workers as the API sees them: any of them can say what the schedule is, and run a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from anarchon import AnarchonError, BackendError, JobInfo, RunRecord, RunRefused
from anarchon.web import RemoteWorkers

from billing.config import WORKERS

T = TypeVar("T")

_workers = [RemoteWorkers(url, token=os.environ["ANARCHON_TOKEN"], timeout="15m") for url in WORKERS]


def jobs() -> list[JobInfo]:
    return _first(lambda worker: worker.jobs())


def run_now(name: str) -> RunRecord:
    return _first(lambda worker: worker.run_now(name))


def _first(ask: Callable[[RemoteWorkers], T]) -> T:
    """Asks one worker after another, until one is at work."""
    *others, last = _workers
    for worker in others:
        try:
            return ask(worker)
        except (BackendError, RunRefused) as error:
            if not _is_away(error):
                raise
    return ask(last)


def _is_away(error: AnarchonError) -> bool:
    """Whether that worker is not running, or about to end: then it has not begun what it was asked for."""
    if isinstance(error, RunRefused):
        return error.stopping
    return isinstance(error.__cause__, ConnectionRefusedError)
