"""The library as its users write it, for ``mypy --strict``: nothing here is run.

Each ``assert_type`` is what a user's editor shows; each ``type: ignore`` is a mistake that must be found (strict mode
complains about one that is not needed).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from typing_extensions import assert_type

from anarchon import (
    ActiveRun,
    Event,
    JobInfo,
    LeaseBackend,
    MemoryBackend,
    RedisBackend,
    RemoteWorkers,
    RunContext,
    RunRecord,
    Scheduler,
    SQLiteBackend,
    open_backend,
)
from anarchon.testing import ManualClock
from anarchon.web import WorkerEndpoint


def takes_context(ctx: RunContext) -> None:
    assert_type(ctx.slot, datetime)
    assert_type(ctx.attempt, int)
    assert_type(ctx.fence, int | None)
    assert_type(ctx.reason, str | None)
    assert_type(ctx.deadline, datetime | None)
    ctx.raise_if_cancelled()
    if ctx.signal.wait(5):
        return


def takes_nothing() -> int:
    return 42


def takes_something_else(customer: str) -> None: ...


@contextmanager
def around(ctx: RunContext) -> Iterator[None]:
    yield


class Sync:
    def run(self, ctx: RunContext) -> None: ...

    def __call__(self) -> None: ...


scheduler = Scheduler(
    backend=RedisBackend("redis://localhost:6379/0", prefix="billing:cron:"),
    timezone=timezone.utc,
    instance_id=None,
    log=True,
    around_run=around,
    lease="30s",
    heartbeat=timedelta(seconds=6),
    jitter=0.5,
    max_late=60,
    catch_up=None,
    overlap="skip",
    max_attempts=3,
    timeout=None,
    history_limit=200,
)

# Chained, with every kind of handler and duration.
chained = (
    scheduler.every("context", "10s", takes_context)
    .every("nothing", timedelta(minutes=1), takes_nothing, timeout="10m")
    .every("method", 5, Sync().run)
    .every("object", 0.5, Sync())
    .every("lambda", "1h30m", lambda: takes_nothing())
    .cron("cron", "0 8 * * 1-5", takes_context, catch_up="1h")
    .cron("seconds", "0 0 8 * * *", takes_nothing, seconds=True)
)
assert_type(chained, Scheduler)


# Decorated functions stay what they were.
@scheduler.every("decorated", "10s", lease="5m")
def decorated(ctx: RunContext) -> str:
    return ctx.job


@scheduler.cron("decorated-cron", "@daily")
def decorated_cron() -> int:
    return 1


assert_type(decorated_cron(), int)


@scheduler.on("failure")
def complain(event: Event) -> None:
    assert_type(event.slot, datetime | None)
    assert_type(event.exception, BaseException | None)
    assert_type(event.record, RunRecord | None)


scheduler.off("failure", complain)

assert_type(scheduler.jobs(), list[JobInfo])
assert_type(scheduler.next_run("context"), datetime)
assert_type(scheduler.run_now("context"), RunRecord)
assert_type(scheduler.run_now("context", wait="2s"), RunRecord | None)
assert_type(scheduler.history("context", limit=20), list[RunRecord])
assert_type(scheduler.last_run("context"), RunRecord | None)
assert_type(scheduler.active("context"), list[ActiveRun])
assert_type(scheduler.stop(timeout="25s"), bool)
assert_type(scheduler.run_forever(stop_timeout=None), bool)
assert_type(scheduler.run_now("context").to_dict(), dict[str, Any])
with scheduler as started:
    assert_type(started, Scheduler)

assert_type(open_backend("sqlite:///jobs.db"), LeaseBackend)
Scheduler(backend="memory://")
Scheduler(backend=SQLiteBackend("jobs.db", clock=ManualClock()))
Scheduler(backend=MemoryBackend(ManualClock(datetime(2026, 3, 1, tzinfo=timezone.utc))))

# Mistakes that a type checker finds.
Scheduler(backend=42)  # type: ignore[arg-type]
Scheduler(backend="memory://", leese="30s")  # type: ignore[call-arg]
Scheduler(backend="memory://", max_attempts="3")  # type: ignore[arg-type]
scheduler.every("typo", "10s", takes_context, time_out="10m")  # type: ignore[call-overload]
scheduler.every("wants", "10s", takes_something_else)  # type: ignore[arg-type]


# -- over HTTP

remote = RemoteWorkers("http://cron-worker:9100", "correct-horse-battery-staple", timeout="10m")
assert_type(remote.run_now("sync"), RunRecord)
assert_type(remote.run_now("sync", wait="30s"), RunRecord | None)
assert_type(remote.jobs(), list[JobInfo])
assert_type(remote.history("sync", limit=5), list[RunRecord])
assert_type(remote.last_run("sync"), RunRecord | None)
assert_type(remote.active("sync"), list[ActiveRun])
assert_type(RunRecord.from_dict(remote.run_now("sync").to_dict()), RunRecord)
application = WorkerEndpoint(Scheduler("memory://"), token="correct-horse-battery-staple", max_runs=2)
remote.next_run("sync")  # type: ignore[attr-defined]
