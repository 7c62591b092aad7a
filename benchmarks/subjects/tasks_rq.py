from __future__ import annotations

import os

from redis import Redis
from rq import Queue

QUEUE = "rq:queue:default"


def nothing() -> None:
    pass


def fill(count: int) -> None:
    queue = Queue(connection=Redis.from_url(os.environ["BENCHMARK_URL"]))
    for _ in range(count):
        queue.enqueue(nothing, result_ttl=0)
