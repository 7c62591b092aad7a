from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCHMARK_URL"]))
QUEUE = "dramatiq:default"


@dramatiq.actor
def nothing() -> None:
    pass


def fill(count: int) -> None:
    for _ in range(count):
        nothing.send()
