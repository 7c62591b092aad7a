"""The jobs of the site. LOG of the environment names a file for what the handlers really did, a line of JSON each."""

import json
import os
import time

from django.db import connection

from anarchon import Event, RunContext
from anarchon.contrib.django import scheduler
from shop.models import Sale

_NEVER = "0 0 1 1 *"


def tell(ctx: RunContext, **more: object) -> None:
    if "LOG" in os.environ:
        slot_ms = round(ctx.slot.timestamp() * 1000)
        about = {"job": ctx.job, "slot_ms": slot_ms, "attempt": ctx.attempt, "fence": ctx.fence, "trigger": ctx.trigger}
        write({**about, "pid": os.getpid(), "wall_ms": time.time_ns() // 1_000_000, **more})


def write(line: dict[str, object]) -> None:
    """In one piece, so that the lines of several processes do not mix."""
    with open(os.environ["LOG"], "ab", buffering=0) as log:
        log.write(json.dumps(line).encode() + b"\n")


@scheduler.every("tick", "1s", lease="10s", max_late="30s")
def tick(ctx: RunContext) -> None:
    tell(ctx, what="begin", worker=ctx.instance_id)
    if "DEAF" in os.environ:
        time.sleep(600)
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


@scheduler.every("sync", "2s", lease="10s", max_late="30s")
def sync(ctx: RunContext) -> None:
    """Where the environment says HOLD, and no file of that name is there, goes on until it is."""
    if "HOLD" in os.environ:
        held = not os.path.exists(os.environ["HOLD"])
        tell(ctx, what="begin", worker=ctx.instance_id, held=held)
        while held and not os.path.exists(os.environ["HOLD"]) and not ctx.signal.wait(0.05):
            pass
        ctx.raise_if_cancelled()


@scheduler.on("skip")
def note(event: Event) -> None:
    """Why a slot may have been run by nobody: the machine is busy."""
    if event.reason in ("late", "overlap") and event.slot is not None and "LOG" in os.environ:
        write({"job": event.job, "what": event.reason, "slot_ms": round(event.slot.timestamp() * 1000)})


@scheduler.cron("wait", _NEVER, lease="10s")
def wait(ctx: RunContext) -> None:
    """Goes on until it is told to stop."""
    tell(ctx, what="begin", worker=ctx.instance_id)
    ctx.signal.wait(600)
    ctx.raise_if_cancelled()
