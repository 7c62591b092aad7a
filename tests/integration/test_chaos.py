"""Workers, network and store fail at random: what must always hold, holds.

Judged by the oracle, from what the handlers wrote outside the store.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from chaos import Lookout, Seat, Trouble, network_troubles, process_troubles, rage, redis_troubles, sqlite_troubles
from chaos_judge import faults_done, judged, names_of, table
from fleet import Fleet, Line, together
from proxy import Network
from servers import RedisServer

LEASE_MS = 3_000
OPTIONS = {"lease": "3s", "history_limit": 10_000}

NAMES = ("one", "two", "three", "four", "five", "six")


def jobs(copies: int) -> list[Line]:
    """From runs that are over at once to runs that last longer than their interval."""
    kinds: list[Line] = [
        {"name": "quick", "every": "1s", "copies": copies},
        {"name": "steady", "every": "1s", "lasts": [0.4]},
        {"name": "long", "every": "3s", "lasts": [2]},
        {"name": "longer", "every": "2s", "lasts": [3]},
        {"name": "free", "every": "1s", "lasts": [1.5], "overlap": "allow"},
        {"name": "once", "every": "2s", "lasts": [1], "max_attempts": 1},
        {"name": "failing", "every": "2s", "lasts": [0.5], "error": "as it must"},
        {"name": "cut short", "every": "3s", "lasts": [5], "timeout": "1s"},
        {"name": "caught up", "every": "6s", "lasts": [3], "catch_up": "6s"},
    ]
    return [{**OPTIONS, **job, "name": job["name"].replace(" ", "-")} for job in kinds]


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    """What is closed when the test is over, however it ends, the newest first."""
    with ExitStack() as kept:
        yield kept


@pytest.mark.parametrize(
    ("seconds", "copies"),
    [
        pytest.param(30, 4, marks=pytest.mark.timeout(400)),
        pytest.param(300, 20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_whatever_happens_every_slot_runs_once_or_has_its_reason(
    redis_server: Callable[..., RedisServer], tmp_path: Path, kept: ExitStack, seconds: int, copies: int
) -> None:
    server = redis_server().start()
    file = tmp_path / "sqlite" / "jobs.db"
    on_redis = kept.enter_context(closing(Fleet(tmp_path / "redis", server.url)))
    on_sqlite = kept.enter_context(closing(Fleet(tmp_path / "sqlite", f"sqlite:///{file}")))
    seed = int(os.environ.get("ANARCHON_SOAK_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")

    def play(fleet: Fleet) -> None:
        chance = random.Random(f"{seed} {fleet!r}")
        if fleet is on_redis:
            play_on_redis(fleet, server, jobs(copies), seconds, chance)
        else:
            play_on_sqlite(fleet, file, jobs(1), seconds / 3, chance)

    together([on_redis, on_sqlite], play)
    if seconds >= 300:
        done = faults_done(on_redis)
        assert done["faults of processes"] >= 100 and done["faults of the store"] >= 20, done


def play_on_redis(
    fleet: Fleet, server: RedisServer, jobs: Sequence[Line], seconds: float, chance: random.Random
) -> None:
    with closing(Network(server.port)) as network:
        ways = [network.way() for _ in NAMES]
        seats = [
            Seat(fleet, name, jobs, f"redis://127.0.0.1:{way.port}/0") for name, way in zip(NAMES, ways, strict=True)
        ]
        storms: list[tuple[Sequence[Trouble], tuple[float, float]]] = [
            (process_troubles(seats[:3]), (0.1, 1)),
            (process_troubles(seats[3:]), (0.1, 1)),
            (network_troubles(dict(zip(seats, ways, strict=True))), (0.5, 3)),
            (redis_troubles(fleet, server), (2, 7)),
        ]
        with closing(Lookout(fleet, network.way())):
            weather(fleet, seats, jobs, seconds, storms, chance)


def play_on_sqlite(fleet: Fleet, file: Path, jobs: Sequence[Line], seconds: float, chance: random.Random) -> None:
    seats = [Seat(fleet, name, jobs, fleet.url) for name in NAMES[:3]]
    storms = [(process_troubles(seats), (0.1, 1.0)), (sqlite_troubles(fleet, file), (1.0, 5.0))]
    weather(fleet, seats, jobs, seconds, storms, chance)


def weather(
    fleet: Fleet,
    seats: Sequence[Seat],
    jobs: Sequence[Line],
    seconds: float,
    storms: Sequence[tuple[Sequence[Trouble], tuple[float, float]]],
    chance: random.Random,
) -> None:
    for seat in seats:
        seat.start()
    for seat in seats:
        seat.wait_until_ready()
    since_ms = now_ms() + 1_000
    rage(seconds, storms, chance)
    until_ms = now_ms()
    # By then every lease that somebody left behind is over, and the grant of such a run has closed what had one.
    settled_ms = until_ms + LEASE_MS + 500
    for job in jobs:
        for name in names_of(job):
            fleet.wait_until(lambda name=name: begun_since(fleet, name, settled_ms), f"a run of {name} after all")
    fleet.stop()

    found = judged(fleet, jobs, since_ms, until_ms)
    print(table(fleet, found))
    assert found.faults == [], "\n".join(map(str, found.faults))
    assert found.ran > 0


def begun_since(fleet: Fleet, job: str, since_ms: int) -> bool:
    return any(line["slot_ms"] > since_ms for line in fleet.lines("begin", job=job))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
