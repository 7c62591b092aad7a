"""Workers, network and store fail at random: what must always hold, holds.

Judged by the oracle, from what the handlers wrote outside the store.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from chaos import (
    Lookout,
    Seat,
    Trouble,
    asking_redis,
    asking_sqlite,
    network_troubles,
    process_troubles,
    rage,
    redis_troubles,
    sqlite_troubles,
)
from chaos_judge import causes_told, faults_done, histories_of, judged, names_of, table
from fleet import Fleet, Line, together
from judge import faults_of_records
from proxy import Network
from servers import RedisServer

from anarchon.testing import Judgement

LEASE_MS = 3_000
OPTIONS = {"lease": "3s", "history_limit": 10_000}

#: A machine that has far too much to do comes to it in the end.
PATIENTLY_S = 240

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
        {"name": "caught up", "every": "4s", "lasts": [2], "catch_up": "4s"},
    ]
    return [{**OPTIONS, **job, "name": job["name"].replace(" ", "-")} for job in kinds]


@pytest.mark.parametrize(
    ("seconds", "copies"),
    [
        pytest.param(30, 4, marks=pytest.mark.timeout(600)),
        pytest.param(300, 20, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_whatever_happens_every_slot_runs_once_or_has_its_reason(
    redis_server: Callable[..., RedisServer], tmp_path: Path, seconds: int, copies: int
) -> None:
    server = redis_server().start()
    file = tmp_path / "sqlite" / "jobs.db"
    seed = int(os.environ.get("ANARCHON_SOAK_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")

    def play(fleet: Fleet) -> None:
        chance = random.Random(f"{seed} {fleet!r}")
        if fleet is on_sqlite:
            play_on_sqlite(fleet, file, jobs(1), seconds / 3, chance)
            return
        found = play_on_redis(fleet, server, jobs(copies), seconds, chance)
        if seconds >= 300:
            assert was_a_storm(fleet, found)

    with (
        closing(Fleet(tmp_path / "redis", server.url)) as on_redis,
        closing(Fleet(tmp_path / "sqlite", f"sqlite:///{file}")) as on_sqlite,
    ):
        together([on_redis, on_sqlite], play)


def play_on_redis(
    fleet: Fleet, server: RedisServer, jobs: Sequence[Line], seconds: float, chance: random.Random
) -> Judgement:
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
        with asking_redis(network.way()) as ask:
            return weather(fleet, seats, ask, jobs, seconds, storms, chance)


def play_on_sqlite(fleet: Fleet, file: Path, jobs: Sequence[Line], seconds: float, chance: random.Random) -> None:
    seats = [Seat(fleet, name, jobs, fleet.url) for name in NAMES[:3]]
    storms = [(process_troubles(seats), (0.1, 1.0)), (sqlite_troubles(fleet, file), (1.0, 5.0))]
    with asking_sqlite(file) as ask:
        weather(fleet, seats, ask, jobs, seconds, storms, chance)


def weather(
    fleet: Fleet,
    seats: Sequence[Seat],
    ask: Callable[[], object],
    jobs: Sequence[Line],
    seconds: float,
    storms: Sequence[tuple[Sequence[Trouble], tuple[float, float]]],
    chance: random.Random,
) -> Judgement:
    for seat in seats:
        seat.start()
    for seat in seats:
        seat.wait_until_ready()
    with closing(Lookout(fleet, ask)):
        since_ms = now_ms() + 1_000
        rage(seconds, storms, chance)
        until_ms = now_ms()
        # By then every lease that somebody left behind is over, and the grant of such a run has closed what had one.
        settled_ms = until_ms + LEASE_MS + 500
        for job in jobs:
            for name in names_of(job):
                fleet.wait_until(
                    lambda name=name: begun_since(fleet, name, settled_ms), f"a run of {name} after all", PATIENTLY_S
                )
    fleet.stop()

    histories = histories_of(fleet, jobs)
    found = judged(fleet, jobs, histories, since_ms, until_ms)
    print(table(fleet, found))
    assert found.faults == [], "\n".join(map(str, found.faults))
    assert found.ran > 0
    # And what the listeners were told is what the store has kept.
    assert [fault for job in histories for fault in faults_of_records(fleet.lines(job=job), job, histories[job])] == []
    return found


def was_a_storm(fleet: Fleet, found: Judgement) -> bool:
    """Whether there was enough of everything, and the server was felt to refuse, to hang and to be gone."""
    done = faults_done(fleet)
    felt = {"OutOfMemoryError", "TimeoutError", "ConnectionError"} <= set(causes_told(fleet))
    return felt and found.slots >= 5_000 and done["faults of processes"] >= 100 and done["faults of the store"] >= 20


def begun_since(fleet: Fleet, job: str, since_ms: int) -> bool:
    return any(line["slot_ms"] > since_ms for line in fleet.lines("begin", job=job))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
