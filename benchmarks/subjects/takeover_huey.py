"""huey: a consumer takes a task off the queue before it runs it, and nobody else knows of it from then on."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey
from takeover_common import URL, run_for_ever

huey = RedisHuey("benchmark", url=URL)
run = huey.task(retries=3)(run_for_ever)


def send() -> None:
    run()


def work() -> None:
    huey.create_consumer().run()


def about() -> dict[str, Any]:
    return {"how": "never: a task is removed from the queue when it is taken"}
