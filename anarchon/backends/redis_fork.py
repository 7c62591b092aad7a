"""A user's client, made anew in a child process: same kind, same options, and no lock or socket of the parent's."""

from __future__ import annotations

import copy
import threading
from typing import Any

import redis
from redis.sentinel import SentinelConnectionPool

from anarchon.backends.redis_limits import is_cluster

__all__ = ["renewed"]

# What a pool puts among its options for its own connections; the new pool puts its own there.
_OF_THE_POOL = (
    "connection_pool",
    "event_dispatcher",
    "himport_registry",
    "maint_notifications_pool_handler",
    "maintenance_",
    "orig_",
    "oss_cluster_",
)


def renewed(client: Any) -> Any:
    """A new client like this one. A cluster's asks for the cluster's map, so it connects; the others do not."""
    if is_cluster(client):
        return _cluster(client)
    pool = client.connection_pool
    renew = _sentinel_pool if isinstance(pool, SentinelConnectionPool) else _pool
    return redis.Redis(connection_pool=renew(pool))


def _options(pool: Any) -> dict[str, Any]:
    return {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(_OF_THE_POOL)}


def _pool(pool: Any) -> Any:
    options = _options(pool)
    if isinstance(pool, redis.BlockingConnectionPool):
        options |= {"timeout": pool.timeout, "queue_class": pool.queue_class}
    return type(pool)(connection_class=pool.connection_class, max_connections=pool.max_connections, **options)


def _sentinel_pool(pool: Any) -> Any:
    old = pool.sentinel_manager
    sentinels: Any = type(old)([], old.min_other_sentinels, old.sentinel_kwargs, **old.connection_kwargs)
    sentinels.sentinels = [redis.Redis(connection_pool=_pool(sentinel.connection_pool)) for sentinel in old.sentinels]
    if hasattr(old, "_force_master_ip"):
        sentinels._force_master_ip = old._force_master_ip
    return type(pool)(
        pool.service_name,
        sentinels,
        connection_class=pool.connection_class,
        max_connections=pool.max_connections,
        is_master=pool.is_master,
        check_connection=pool.check_connection,
        **_options(pool),
    )


def _cluster(client: Any) -> Any:
    fresh = copy.copy(client)
    old = client.nodes_manager
    fresh._lock = threading.RLock()
    fresh.nodes_manager = type(old)(
        startup_nodes=[type(node)(node.host, node.port) for node in old.startup_nodes.values()],
        from_url=old.from_url,
        require_full_coverage=old._require_full_coverage,
        dynamic_startup_nodes=old._dynamic_startup_nodes,
        connection_pool_class=old.connection_pool_class,
        address_remap=old.address_remap,
        **old.connection_kwargs,
    )
    return fresh
