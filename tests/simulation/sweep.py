"""A sweep: at each step of each call in turn, all that can befall whoever takes it. A search, and no aim.

Before the strike one host has stood still, another was stopped and replaced, and somebody asked for a manual run, so
that every call is made and every way to end a run is taken. Whatever then befalls one call, one host or the store at
that step, the library must be beyond reproach.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from acts import (
    Again,
    CutOff,
    Kill,
    Late,
    Lose,
    Pause,
    Restart,
    RunNow,
    Start,
    StepClock,
    Stop,
    StoreAway,
    StoreEmpty,
)
from aiming import Act, Aim, after, at, strike
from fleet_of_hosts import JobPlan

__all__ = ["swept"]


def _jobs(jitter: str) -> tuple[JobPlan, ...]:
    common: dict[str, object] = dict(lease="3s", max_late="10s", jitter=jitter)
    return (
        JobPlan("job", "10s", (3_000, 6_000), 200, 200, common),
        JobPlan("both", "5s", (500, 7_000), stubborn=200, options=common | dict(overlap="allow")),
        JobPlan("timed", "10s", (500, 4_000), stubborn=300, options=common | dict(timeout="2s", max_attempts=2)),
    )


#: A fleet that is spread by jitter and latency, and one whose hosts come to each step in the same millisecond.
_FLEETS = ((_jobs("100ms"), 3), (_jobs("0s"), 0))

_VERBS = ("time", "active", "claim", "heartbeat", "finish", "release", "save_result")
_TIMES = (1, 2, 3)

#: What may befall a call that is sent, one that is done, and whoever takes any step.
_OF_SENT: tuple[Act, ...] = (Lose(), Late(700), Late(5_000))
_OF_DONE: tuple[Act, ...] = (Lose(), Late(700), Again(100), Again(4_000))
_OF_ALL: tuple[Act, ...] = (
    Kill(),
    Pause(500),
    Pause(4_000),
    Stop(),
    Restart(),
    CutOff(4_000),
    StepClock(700),
    StepClock(5_000),
    StepClock(-5_000),
    RunNow(),
    StoreAway(3_000),
    StoreEmpty(),
)


def swept() -> Iterator[tuple[str, Aim]]:
    """Each strike of the sweep, by what it is called."""
    steps = [(f"{verb} {step}", acts) for verb in _VERBS for step, acts in _STEPS] + [("handler", _OF_ALL)]
    for (step, acts), nth in product(steps, _TIMES):
        for act in acts:
            strikes = (
                strike(after(20_500), Pause(4_000, "host1")),
                strike(after(1_000), Stop("5s", "host2"), Start(), RunNow("host3")),
                strike(at(step, nth), act),
            )
            for jobs, longest_ms in _FLEETS:
                name = f"{act} at {step} {nth}, {longest_ms} ms"
                yield name, Aim(jobs, strikes, hosts=3, seconds=75, longest_ms=longest_ms)


_STEPS = (("sent", (*_OF_SENT, *_OF_ALL)), ("done", (*_OF_DONE, *_OF_ALL)), ("heard", _OF_ALL))
