"""Makes events of what happened to a run, and tells them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from anarchon.context import RunContext
from anarchon.durations import from_ms
from anarchon.executor import Ended
from anarchon.records import Event, RunRecord

__all__ = ["Teller"]

_RESULTS = {"success": "success", "failed": "failure", "interrupted": "interrupted"}


class Teller:
    """One instance's voice. Listeners run on the thread that tells."""

    def __init__(self, emit: Callable[[Event], None], instance_id: str) -> None:
        self._emit = emit
        self._instance_id = instance_id

    def start(self, context: RunContext, latest_ms: int | None = None) -> None:
        """A run begins; ``latest_ms`` is the newest slot granted before it, where that is known."""
        previous = None
        if latest_ms is not None and context.attempt == 1 and context.trigger != "manual":
            previous = from_ms(latest_ms)
        self._emit(self._of_run("start", context, previous=previous))

    def result(self, context: RunContext, ended: Ended, record: RunRecord) -> None:
        self._emit(
            self._of_run(
                _RESULTS[record.status], context, reason=ended.reason, exception=ended.exception, record=record
            )
        )

    def skip(
        self,
        job: str,
        slot_ms: int,
        trigger: str,
        reason: str,
        holder: str | None = None,
        count: int | None = 1,
    ) -> None:
        self._emit(
            Event(
                "skip",
                job,
                self._instance_id,
                slot=from_ms(slot_ms),
                run_id=str(slot_ms),
                trigger=trigger,
                reason=reason,
                holder=holder,
                count=count,
            )
        )

    def error(self, operation: str, job: str | None, exception: BaseException) -> None:
        self._emit(Event("error", job, self._instance_id, operation=operation, exception=exception))

    def _of_run(
        self,
        type: str,
        context: RunContext,
        reason: str | None = None,
        previous: datetime | None = None,
        exception: BaseException | None = None,
        record: RunRecord | None = None,
    ) -> Event:
        return Event(
            type,
            context.job,
            self._instance_id,
            slot=context.slot,
            run_id=context.run_id,
            attempt=context.attempt,
            trigger=context.trigger,
            fence=context.fence,
            reason=reason,
            previous=previous,
            exception=exception,
            record=record,
        )
