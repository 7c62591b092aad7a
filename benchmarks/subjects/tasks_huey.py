from __future__ import annotations

import os

from huey import RedisHuey

huey = RedisHuey("benchmark", url=os.environ["BENCHMARK_URL"], results=False)
QUEUE = "huey.redis.benchmark"


@huey.task()
def nothing() -> None:
    pass


def fill(count: int) -> None:
    for _ in range(count):
        nothing()
