"""What a test of a site's own jobs needs: a handler called in the test's thread, and so in its transaction.

A real run has a library thread, and with it a database connection of its own. It does not see what a ``TestCase`` has
written, for that is never committed::

    from anarchon.contrib.django.testing import call_job

    class SyncTests(TestCase):
        def test_sync_marks_what_it_has_sent(self):
            Order.objects.create(sent=False)
            call_job("sync")
            self.assertTrue(Order.objects.get().sent)
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime

from anarchon.clock import SystemClock
from anarchon.context import RunContext, current_run
from anarchon.contrib.django import scheduler
from anarchon.durations import to_ms

__all__ = ["call_job"]


def call_job(name: str, *, slot: datetime | None = None) -> object:
    """Calls the handler of a job on this thread, inside of AROUND_RUN; no timeout, listener or store has part in it.

    Args:
        slot: what the handler is told as its due instant, an aware datetime; None: now.

    Returns:
        What the handler returns; what it raises comes as it is.

    Raises:
        JobNotRegistered: no job of that name is registered.
    """
    job = scheduler._job(name)
    clock = SystemClock()
    context = RunContext(
        job=name,
        slot_ms=clock.now_ms() if slot is None else to_ms(slot),
        run_id="test",
        attempt=1,
        trigger="manual",
        token="test",
        fence=1,
        instance_id=scheduler.instance_id,
        deadline_ms=None,
        signal=clock.event(),
    )
    around = scheduler._around_run
    before = current_run.set(context)
    try:
        with nullcontext() if around is None else around(context):
            return job.call(context)
    finally:
        current_run.reset(before)
