"""How long one call of a client given by the user may take, from its time-outs and repeats, and whether that will do.

A client that waits for longer than a third of a lease can lose the lease in one call. So the sum is made when a job is
registered: connecting and reading, as often as the client tries, its pauses, and what it asks to find the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import redis
from redis.cluster import RedisCluster
from redis.sentinel import SentinelConnectionPool

from anarchon.durations import format_duration
from anarchon.errors import ConfigurationError

__all__ = ["check_bound", "is_cluster", "place_of", "pools_of"]

#: How long redis-py waits when a cluster says that it is down, before it asks again.
CLUSTER_PAUSE_S = 0.25


def check_bound(client: Any, limit_ms: int, waits: bool = False) -> None:
    """Refuses a client of which one call may take longer.

    Args:
        waits: a call may be repeated, to wait for replicas.

    Raises:
        ConfigurationError: a time-out is not set, or the sum is over the limit; says what was found, and what to set.
    """
    seconds, sum_told = _cluster_call(client) if is_cluster(client) else _call(client.connection_pool)
    if waits:
        again_s, again_told = max(_call(pool, answers=2) for pool in _serving(client))
        seconds, sum_told = seconds + again_s, f"{sum_told}; and to wait for replicas {again_told}"
    if seconds * 1000 <= limit_ms:
        return
    takes = f"may take {_told(seconds)} for one call" if math.isfinite(seconds) else "may wait for ever in one call"
    raise ConfigurationError(
        f"The client of Redis at {place_of(client)} {takes}: {sum_told}. A lease of {format_duration(3 * limit_ms)} "
        f"allows {format_duration(limit_ms)}, a third of it. Build it so: {_right_one(client, limit_ms, waits)}"
    )


def is_cluster(client: Any) -> bool:
    return isinstance(client, RedisCluster)


def pools_of(client: Any) -> Iterator[Any]:
    """The connection pools of a client, those to its sentinels included."""
    if is_cluster(client):
        for node in client.get_nodes():
            yield client.get_redis_connection(node).connection_pool
        return
    yield client.connection_pool
    if isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            yield sentinel.connection_pool


def _serving(client: Any) -> Iterator[Any]:
    """The pools of those servers that answer calls."""
    return pools_of(client) if is_cluster(client) else iter([client.connection_pool])


def place_of(client: Any) -> str:
    """Where a client's server is, for messages: never who logs in."""
    if is_cluster(client):
        return "cluster " + ", ".join(sorted(f"{node.host}:{node.port}" for node in client.get_nodes()))
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        sentinels = ", ".join(_address(sentinel.connection_pool) for sentinel in pool.sentinel_manager.sentinels)
        return f"{pool.service_name} of sentinels {sentinels}"
    return _address(pool)


def _address(pool: Any) -> str:
    options = pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def _call(pool: Any, answers: int = 1) -> tuple[float, str]:
    """The longest call through a pool, in seconds (infinite where a time-out is not set), and how it adds up."""
    connection = pool.connection_class(**pool.connection_kwargs)  # connects to nothing yet
    connect_s, read_s = _seconds(connection.socket_connect_timeout), _seconds(connection.socket_timeout)
    tries, pauses_s = _repeats(connection.retry)
    told_read = f"read {'' if answers == 1 else f'{answers} x '}{_told(read_s)}"
    told = f"connect {_told(connect_s)} + {told_read}"
    if getattr(connection, "host", None) == "localhost" and not isinstance(pool, SentinelConnectionPool):
        connect_s, told = 2 * connect_s, f"connect 2 x {_told(connect_s)} (two addresses) + {told_read}"
    one_try_s = connect_s + answers * read_s
    if connection.health_check_interval:
        one_try_s, told = one_try_s + read_s, f"{told} + health check {_told(read_s)}"
    if isinstance(pool, SentinelConnectionPool):
        discovery_s = sum(_call(sentinel.connection_pool)[0] for sentinel in pool.sentinel_manager.sentinels)
        one_try_s, told = one_try_s + discovery_s, f"discovery {_told(discovery_s)} + {told}"
    seconds = tries * one_try_s + pauses_s
    if tries > 1:
        told = f"{tries if math.isfinite(tries) else 'endless'} tries x ({told}) + pauses {_told(pauses_s)}"
    if isinstance(pool, redis.BlockingConnectionPool):
        wait_s = _seconds(pool.timeout)
        seconds, told = seconds + wait_s, f"wait for the pool {_told(wait_s)} + {told}"
    return seconds, told


def _cluster_call(client: Any) -> tuple[float, str]:
    node_s, told = max(_call(pool) for pool in pools_of(client))
    repeats = getattr(client, "cluster_error_retry_attempts", None)
    if repeats is None:
        repeats = client.retry.get_retries()
    if not repeats:
        return 2 * node_s, f"({told}) x 2 (the second to read the cluster's map again)"
    seconds = (repeats + 1) * (2 * node_s + CLUSTER_PAUSE_S)
    return seconds, f"{repeats + 1} tries x 2 (the second to read the cluster's map again) x ({told})"


def _repeats(retry: Any) -> tuple[float, float]:
    """How many tries a redis-py Retry makes, and its pauses at their longest. It has no public name for either."""
    repeats = retry._retries
    if repeats < 0:
        return math.inf, math.inf
    return 1 + repeats, sum(_longest_pause(retry._backoff, failures) for failures in range(1, repeats + 1))


def _longest_pause(backoff: Any, failures: int) -> float:
    cap = getattr(backoff, "_cap", None)
    if cap is None:
        return float(backoff.compute(failures))  # none at all, or always the same
    base = getattr(backoff, "_base", cap)
    return float(min(cap, base * 2.0 ** min(failures, 60)))


def _seconds(timeout: float | None) -> float:
    return math.inf if timeout is None else float(timeout)


def _told(seconds: float) -> str:
    return format_duration(round(seconds * 1000)) if math.isfinite(seconds) else "without end"


def _right_one(client: Any, limit_ms: int, waits: bool) -> str:
    pool = None if is_cluster(client) else client.connection_pool
    # One to connect and two to read; and where replicas are waited for, one more and twice two.
    shares, again = 3, 5 if waits else 0
    if pool is None:
        shares *= 2
    elif isinstance(pool, SentinelConnectionPool):
        asking = 3 * len(pool.sentinel_manager.sentinels)
        shares, again = shares + asking, again + asking if waits else 0
    elif "path" not in pool.connection_kwargs and pool.connection_kwargs.get("host", "localhost") == "localhost":
        shares, again = shares + 1, again + 1 if waits else 0
    shares += again
    share_s = math.floor(limit_ms / shares) / 1000
    times = f"socket_connect_timeout={share_s:g}, socket_timeout={2 * share_s:g}"
    if pool is None:
        # redis-py 6 took its name for this away.
        old = hasattr(client, "cluster_error_retry_attempts")
        no_repeats = "cluster_error_retry_attempts=0" if old else "retry=Retry(NoBackoff(), 0)"
        return f"RedisCluster(..., {times}, {no_repeats})."
    if isinstance(pool, SentinelConnectionPool):
        return (
            f"Sentinel([...], sentinel_kwargs=dict({times}, retry=Retry(NoBackoff(), 0)), {times}, "
            f"retry=Retry(NoBackoff(), 0)).master_for({pool.service_name!r})."
        )
    if "path" in pool.connection_kwargs:
        # redis.Redis(unix_socket_path=...) would not pass the time to connect on.
        return (
            "redis.Redis(connection_pool=redis.ConnectionPool(connection_class=redis.UnixDomainSocketConnection, "
            f"path=..., {times}, retry=Retry(NoBackoff(), 0)))."
        )
    return f"redis.Redis(..., {times}, retry=Retry(NoBackoff(), 0))."
