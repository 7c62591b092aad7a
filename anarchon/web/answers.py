"""What is answered over HTTP about a scheduler's jobs: a status and a JSON body each. Knows no framework.

The worker endpoint, Django's views and Flask's blueprint all answer from here, so the shape is one. An answer that is
wanted is the bare value that ``--json`` prints and ``to_dict()`` gives: a list, a record, or null. One that is not is
an object: ``error`` (a word that a program can go by), ``message`` (a sentence), and the facts that the error knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from anarchon.errors import AnarchonError, BackendError, ConfigurationError, JobNotRegistered, RunRefused, shown
from anarchon.scheduler import Scheduler

__all__ = ["Answer", "active", "jobs", "last", "refusal", "run", "runs"]

_logger = logging.getLogger("anarchon")

#: How many records are given where the question does not say, and at the most.
DEFAULT_LIMIT = 20
MOST_RECORDS = 1_000


@dataclass(frozen=True)
class Answer:
    """What to send: the status, a body that is ready for JSON, and headers beside the usual ones."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


def refusal(status: int, error: str, message: str, headers: dict[str, str] | None = None, **facts: object) -> Answer:
    """An answer that is not the wanted one."""
    return Answer(status, {"error": error, "message": message, **facts}, headers or {})


def jobs(scheduler: Scheduler) -> Answer:
    """``GET jobs``: the jobs that are registered in this process; a process that registers none has an empty list."""
    return _answered(lambda: [job.to_dict() for job in scheduler.jobs()])


def runs(scheduler: Scheduler, name: str, limit: str | None) -> Answer:
    """``GET jobs/NAME/runs?limit=``: the newest records of any job, registered or not, newest first.

    Args:
        limit: as it stands in the query: a whole number from 1 to 1000. None: 20.
    """
    count = DEFAULT_LIMIT if limit is None else _whole_number(limit)
    if count is None:
        return refusal(400, "bad-limit", f"limit must be a whole number from 1 to {MOST_RECORDS}, not {shown(limit)}.")
    return _answered(lambda: [record.to_dict() for record in scheduler.history(name, count)])


def last(scheduler: Scheduler, name: str) -> Answer:
    """``GET jobs/NAME/last``: the newest record of any job, or null."""

    def newest() -> dict[str, Any] | None:
        record = scheduler.last_run(name)
        return None if record is None else record.to_dict()

    return _answered(newest)


def active(scheduler: Scheduler, name: str) -> Answer:
    """``GET jobs/NAME/active``: the runs of any job that have not finished."""
    return _answered(lambda: [run.to_dict() for run in scheduler.active(name)])


def run(scheduler: Scheduler, name: str, wait: Any = None, until_stopped: bool = False) -> Answer:
    """``POST jobs/NAME/run``: runs a job that is registered here, now, and gives its record when the run has ended.

    A run that failed is an answer like any other: its record says so. One that goes on is 202, and null.

    Args:
        wait: how long to wait for the end, at the most: a duration, as it came. None: without limit.
        until_stopped: whether a scheduler that was stopped runs nothing until it is started again.
    """
    ask = scheduler._run_unless_stopped if until_stopped else scheduler.run_now

    def ended() -> dict[str, Any] | None:
        record = ask(name, wait=wait)
        return None if record is None else record.to_dict()

    answer = _answered(ended)
    return replace(answer, status=202) if answer.status == 200 and answer.body is None else answer


def _answered(ask: Callable[[], Any]) -> Answer:
    try:
        return Answer(200, ask())
    except JobNotRegistered as error:
        return refusal(404, "job-not-registered", str(error), job=error.job, nearest=error.nearest)
    except RunRefused as error:
        if error.stopping:
            return refusal(503, "stopping", str(error), {"Retry-After": "5"}, job=error.job)
        return refusal(409, "run-refused", str(error), job=error.job, holder=error.holder)
    except ConfigurationError as error:
        return refusal(400, "bad-request", str(error))
    except BackendError as error:
        # The reader learns that the store is away; where it stands, and what the driver said, is for the log.
        _logger.warning("A question over HTTP could not be answered: %s", error)
        return refusal(503, "store-unavailable", "The store could not be asked.", {"Retry-After": "5"})
    except AnarchonError as error:
        return refusal(500, "failed", str(error))


def _whole_number(text: str) -> int | None:
    # Python takes digits of every script for a number.
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_RECORDS)) else 0
    return number if 1 <= number <= MOST_RECORDS else None
