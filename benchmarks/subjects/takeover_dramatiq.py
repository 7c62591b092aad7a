"""dramatiq: what a worker fetched goes back to the queue when it was not heard of, and another does maintenance."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import DEFAULT_HEARTBEAT_TIMEOUT, DEFAULT_MAINTENANCE_CHANCE, MAINTENANCE_SCALE, RedisBroker
from dramatiq.cli import CPUS, main, make_argument_parser
from dramatiq.worker import WORKER_TIMEOUT
from takeover_common import SETTINGS, URL, run_for_ever

dramatiq.set_broker(RedisBroker(url=URL, **SETTINGS))


@dramatiq.actor
def run() -> None:
    run_for_ever()


def send() -> None:
    run.send()


def work() -> None:
    main(make_argument_parser().parse_args(["takeover_dramatiq"]))


def about() -> dict[str, Any]:
    heartbeat_s = DEFAULT_HEARTBEAT_TIMEOUT / 1000
    # An idle process asks again after half to all of its time-out; one ask in so many does maintenance.
    asks = MAINTENANCE_SCALE / DEFAULT_MAINTENANCE_CHANCE
    pause_s = 0.75 * WORKER_TIMEOUT / 1000
    return {
        "setting": "heartbeat_timeout",
        "set_s": SETTINGS.get("heartbeat_timeout", DEFAULT_HEARTBEAT_TIMEOUT) / 1000,
        "default_s": heartbeat_s,
        "by_default_s": heartbeat_s + asks * pause_s / CPUS,
        "how": f"on average: one ask in {asks:.0f} looks for it, of {CPUS} idle processes",
    }
