"""The parts of a runner, wired as the engine wires them, without the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from world import Heard, World

from anarchon.alarms import Alarms
from anarchon.executor import Executor
from anarchon.job import Job, make_call
from anarchon.options import parse_options, resolve_options
from anarchon.records import ClaimRequest, Mode
from anarchon.runners import Parts
from anarchon.runners.asks import Asks
from anarchon.runners.attempts import new_request
from anarchon.runners.local_runs import LocalRuns
from anarchon.runners.teller import Teller
from anarchon.schedules import every
from anarchon.store import Store


def nothing(ctx: Any) -> None:
    """A handler that is done at once."""


def job_of(name: str = "x", handler: Callable[..., Any] = nothing, interval: str = "10s", **options: Any) -> Job:
    schedule = every(interval)
    resolved = resolve_options({"jitter": 0}, parse_options(options), schedule.interval_ms)
    return Job(name, schedule, handler, make_call(handler, name), resolved)


class Bench:
    """One instance's parts, its way to the world's store, and what it tells."""

    def __init__(self, world: World, name: str = "a", backend: Any = None) -> None:
        self.world = world
        self.name = name
        self.sources = world.sources()
        self.heard = Heard()
        self.teller = Teller(self.heard.append, name)
        self.store = Store(backend or world.backend, self.sources, self.teller.error)
        self.threads = world.make_threads(world.clock)
        self.alarms = Alarms(world.clock, self.threads)
        self.alarms.keep()
        self.asks = Asks(world.clock, self.threads, self.alarms)
        self.runs = LocalRuns(world.clock)
        executor = Executor(world.clock, self.threads, None, self.runs.left_behind)
        self.parts = Parts(
            self.sources, self.threads, self.alarms, self.asks, executor, self.runs, self.teller, name
        )  # fmt: skip

    def request(self, job: Job, slot_ms: int | None = None, **fields: Any) -> ClaimRequest:
        slot_ms = self.world.now_ms if slot_ms is None else slot_ms
        request = new_request(job, slot_ms, "scheduled", 60_000, self.name, self.sources)
        return ClaimRequest(**{**request.__dict__, **fields})

    def takeover(self, job: Job, slot_ms: int | None = None, **fields: Any) -> ClaimRequest:
        return self.request(job, slot_ms, **{"mode": Mode.TAKEOVER, "trigger": "takeover", **fields})

    def end(self) -> None:
        self.asks.close()
        self.alarms.close()
        self.world.settle()
