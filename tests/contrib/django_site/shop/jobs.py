"""The jobs of the site. LOG of the environment names a file for what the handlers really did, a line of JSON each."""

import json
import os
import time

from django.db import connection

from anarchon import RunContext
from anarchon.contrib.django import scheduler
from shop.models import Sale

_NEVER = "0 0 1 1 *"


def tell(ctx: RunContext, **more: object) -> None:
    """One write for each line, so that those of several processes do not mix."""
    if "LOG" not in os.environ:
        return
    line = {
        "job": ctx.job,
        "slot_ms": round(ctx.slot.timestamp() * 1000),
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "pid": os.getpid(),
        "trigger": ctx.trigger,
        "wall_ms": time.time_ns() // 1_000_000,
        **more,
    }
    with open(os.environ["LOG"], "ab", buffering=0) as log:
        log.write(json.dumps(line).encode() + b"\n")


@scheduler.every("tick", "1s", lease="10s", max_late="30s")
def tick(ctx: RunContext) -> None:
    tell(ctx, what="begin", worker=ctx.instance_id)
    tell(ctx, what="end", worker=ctx.instance_id)


@scheduler.every("read", "1s", lease="10s", max_late="30s")
def read(ctx: RunContext) -> None:
    """Reads the database, in processes that are told to by the environment: all others have enough to do."""
    if "READ" in os.environ:
        Sale.objects.count()
        tell(ctx, what="begin")


@scheduler.cron("sell", _NEVER)
def sell(ctx: RunContext) -> int:
    Sale.objects.create(job=ctx.job, slot=ctx.slot)
    return Sale.objects.count()


@scheduler.cron("look", _NEVER)
def look() -> None:
    """Has a connection and reads no table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


@scheduler.cron("fail", _NEVER)
def fail() -> None:
    raise ValueError("no such customer")


@scheduler.cron("print", _NEVER)
def say() -> None:
    print("printed by the handler")


@scheduler.cron("wait", _NEVER, lease="10s")
def wait(ctx: RunContext) -> None:
    """Goes on until it is told to stop, or for as long as SECONDS says."""
    tell(ctx, what="begin")
    ctx.signal.wait(float(os.environ.get("SECONDS", "60")))
    ctx.raise_if_cancelled()
