"""Trouble for a fleet, at random: its processes are killed, paused and stopped, and its network and its store fail.

Whatever is done to it stands in the log of the fleet as a line of ``trouble``: its kind, whom it met, from when, and,
as the line's own time, until when. ``chaos_judge.py`` reads them.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import redis
from fleet import Fleet, Line, Worker
from proxy import Way
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import RedisServer

__all__ = [
    "Lookout",
    "Seat",
    "Trouble",
    "asking_redis",
    "asking_sqlite",
    "network_troubles",
    "process_troubles",
    "rage",
    "redis_troubles",
    "sqlite_troubles",
    "trouble",
]

#: One kind of trouble: makes it, sees it through, and returns when it is over.
Trouble = Callable[[random.Random], None]

#: How long the store may take to answer before it counts as away: nobody is to blame for what is asked meanwhile.
_AT_ONCE_S = 0.2


@contextmanager
def trouble(fleet: Fleet, kind: str, whom: str | None = None) -> Iterator[None]:
    """Notes what happens inside."""
    from_ms = time.time_ns() // 1_000_000
    yield
    fleet.note("trouble", kind=kind, whom=whom, from_ms=from_ms)


class Seat:
    """A place in a fleet, with a way to the store: one process after another sits there, each an instance of its own.

    Attributes:
        instance: the name of the one that sits there now.
    """

    instance: str

    def __init__(self, fleet: Fleet, name: str, jobs: Sequence[Line], url: str) -> None:
        self.name = name
        self.fleet = fleet
        self._jobs = jobs
        self._url = url
        self._numbers = count(1)

    @property
    def worker(self) -> Worker:
        return self.fleet.workers[self.instance]

    def start(self) -> None:
        """Starts a process; returns at once."""
        self.instance = f"{self.name}.{next(self._numbers)}"
        self.fleet.start(self.instance, self._jobs, runs=True, url=self._url)

    def wait_until_ready(self) -> None:
        self.fleet.wait_for(what="ready", worker=self.instance)


def rage(
    seconds: float, storms: Sequence[tuple[Sequence[Trouble], tuple[float, float]]], chance: random.Random
) -> None:
    """Lets several storms rage side by side for so long, and returns when the last trouble is over.

    Args:
        storms: of what kinds, of which each comes as often as any other; and how long it is quiet after one, between
            two numbers of seconds.
    """
    end = time.monotonic() + seconds

    def storm(kinds: Sequence[Trouble], quiet_s: tuple[float, float], chance: random.Random) -> None:
        while True:
            for kind in chance.sample(kinds, len(kinds)):
                time.sleep(min(chance.uniform(*quiet_s), max(0, end - time.monotonic())))
                if time.monotonic() >= end:
                    return
                kind(chance)

    with ThreadPoolExecutor(len(storms)) as pool:
        raging = [pool.submit(storm, *each, random.Random(chance.random())) for each in storms]
    for each in raging:
        each.result()


def process_troubles(seats: Sequence[Seat]) -> list[Trouble]:
    """``kill -9``, SIGTERM, and SIGSTOP for a while, which may be longer than a lease; a new process after the former
    two. No other storm may do the like to these seats."""

    def kill(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "kill", seat.instance):
            seat.worker.kill()
        seat.start()
        seat.wait_until_ready()

    def stop(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "stop", seat.instance):
            seat.worker.terminate()
            assert seat.worker.wait() == 0, seat.worker.complaints
        seat.start()
        seat.wait_until_ready()

    def pause(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "pause", seat.instance):
            seat.worker.pause()
            time.sleep(chance.uniform(0.2, 5))
            seat.worker.resume()

    return [kill, kill, stop, pause]


def network_troubles(ways: dict[Seat, Way]) -> list[Trouble]:
    """The way of one seat to the store is cut, stalled, slow or loses answers for a while."""
    seats = list(ways)

    def cut(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "cut", seat.name), ways[seat].cut():
            time.sleep(chance.uniform(0.1, 4))

    def stall(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "stall", seat.name), ways[seat].stalled():
            time.sleep(chance.uniform(0.2, 4))

    def delay(chance: random.Random) -> None:
        seat = chance.choice(seats)
        there_s, back_s = chance.uniform(0, 0.5), chance.uniform(0, 0.5)
        with trouble(seat.fleet, "delay", seat.name):
            with ways[seat].delayed(there_s, back_s):
                time.sleep(chance.uniform(0.5, 4))
            time.sleep(there_s + back_s)  # for what is on its way still

    def lose(chance: random.Random) -> None:
        seat = chance.choice(seats)
        with trouble(seat.fleet, "lost answers", seat.name), ways[seat].losing_answers():
            time.sleep(chance.uniform(0.2, 3))

    return [cut, stall, delay, lose]


def redis_troubles(fleet: Fleet, server: RedisServer) -> list[Trouble]:
    """The server is killed and comes back with its file, hangs, forgets its scripts, and may not use more memory."""

    def restart(chance: random.Random) -> None:
        with trouble(fleet, "restart"):
            server.kill()
            time.sleep(chance.uniform(0, 2))
            server.start()

    def hang(chance: random.Random) -> None:
        with trouble(fleet, "hang"):
            server.pause()
            time.sleep(chance.uniform(0.2, 4))
            server.resume()

    def forget_scripts(chance: random.Random) -> None:
        with trouble(fleet, "forgotten scripts"), redis.Redis.from_url(server.url, socket_timeout=30) as client:
            client.script_flush()

    def fill_memory(chance: random.Random) -> None:
        with trouble(fleet, "full memory"), redis.Redis.from_url(server.url, socket_timeout=30) as client:
            client.config_set("maxmemory", 1)
            time.sleep(chance.uniform(0.2, 3))
            client.config_set("maxmemory", 0)

    return [restart, hang, forget_scripts, fill_memory]


def sqlite_troubles(fleet: Fleet, file: Path) -> list[Trouble]:
    """Somebody else writes to the file, and takes their time."""

    def lock(chance: random.Random) -> None:
        with trouble(fleet, "lock"), closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(chance.uniform(0.2, 4))

    return [lock]


class Lookout:
    """Asks the store all the time, and notes when it does not answer at once.

    So the judge knows of a store, or a machine, that was slow though nobody did anything to it; and of a file that
    nobody could write to, because a process was paused in the middle of its own writing.

    Args:
        ask: returns when it was answered; called on a thread of the lookout's own.
    """

    def __init__(self, fleet: Fleet, ask: Callable[[], object]) -> None:
        self._fleet = fleet
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lookout")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            from_ms, began = time.time_ns() // 1_000_000, time.monotonic()
            try:
                self._ask()
                answered = True
            except (redis.RedisError, sqlite3.Error):
                answered = False
            if not answered or time.monotonic() - began > _AT_ONCE_S:
                self._fleet.note("trouble", kind="no answer", whom=None, from_ms=from_ms)


@contextmanager
def asking_redis(way: Way) -> Iterator[Callable[[], object]]:
    """A write, by a way like that of any instance: like theirs it is on the disk before it is answered."""
    never_again: Any = Retry(NoBackoff(), 0)
    with redis.Redis(port=way.port, socket_timeout=1, socket_connect_timeout=1, retry=never_again) as client:
        yield lambda: client.set("lookout", "was here")


@contextmanager
def asking_sqlite(file: Path) -> Iterator[Callable[[], object]]:
    """Whether one might write, without writing."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=1, check_same_thread=False)) as connection:
        yield lambda: connection.executescript("BEGIN IMMEDIATE; ROLLBACK")
