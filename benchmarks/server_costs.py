"""What each call costs the Redis server, in microseconds of its time on the processor.

A server that is asked seldom is woken up for each call, and that alone costs several times what the call does. So a
call is measured twice: alone, one answered before the next is sent; and many at once, each on a connection of its own,
as a server sees them that is near its limit. With the latter it is calculated what one server holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import redis
from harness import new_redis
from store_path import Ours

from anarchon import RedisBackend

__all__ = ["Costs", "cpu_us", "measure_costs"]

CONNECTIONS, ROUNDS = 64, 40


class Costs(NamedTuple):
    """Microseconds of each: claims that win or lose, a backup's check, a heartbeat, a finish."""

    win: float
    lose: float
    check: float
    heartbeat: float
    finish: float


class _Words(BaseException):
    """A command as it would be sent; no Exception, which the backend would take for the server's."""


class _Telling(redis.Redis):
    """Tells what it would send of a script, and does not send it."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        if words[0] == "EVALSHA":
            raise _Words(*words)
        return super().execute_command(*words, **options)  # type: ignore[no-untyped-call]


def measure_costs() -> tuple[Costs, Costs]:
    """Alone, and many at once."""
    with new_redis() as url, _Telling.from_url(url, protocol=2, max_connections=CONNECTIONS + 1) as client:
        first = Ours(RedisBackend(url, prefix="first:"))
        first.begin_anew()
        for call in calls_of(first):
            call()  # and the server knows the scripts
        jobs = [Ours(RedisBackend(client=client, prefix=f"{number}:")) for number in range(CONNECTIONS)]
        connections = [client.connection_pool.get_connection() for _ in jobs]
        try:
            _measure(client, jobs, connections, 1)  # to warm up
            return _measure(client, jobs, connections, 1), _measure(client, jobs, connections, CONNECTIONS)
        finally:
            for connection in connections:
                connection.disconnect()


def _measure(client: redis.Redis, jobs: list[Ours], connections: list[Any], together: int) -> Costs:
    costs = [0.0] * len(Costs._fields)
    for _ in range(ROUNDS):
        for job in jobs:
            job.begin_anew()
        for kind in range(len(costs)):
            asked = [(connection, _words(calls_of(job)[kind])) for connection, job in zip(connections, jobs)]
            before = cpu_us(client)
            for start in range(0, len(asked), together):
                group = asked[start : start + together]
                for connection, words in group:
                    connection.send_command(*words)
                for connection, _ in group:
                    connection.read_response()
            costs[kind] += cpu_us(client) - before
    return Costs(*(cost / len(jobs) / ROUNDS for cost in costs))


def calls_of(job: Ours) -> tuple[Callable[[], None], ...]:
    """In the order of Costs, which is one in which each finds what it needs."""
    return job.claim, job.lose, job.check, job.heartbeat, job.finish


def _words(call: Callable[[], None]) -> tuple[Any, ...]:
    try:
        call()
    except _Words as told:
        return told.args
    raise AssertionError("no script was asked for")


def cpu_us(client: redis.Redis) -> float:
    told: Any = client.info("cpu")
    return 1e6 * float(told["used_cpu_user"] + told["used_cpu_sys"])
