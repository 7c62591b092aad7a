"""A user's client, made anew in a child process: same kind, same options, and no lock or socket of the parent's."""

from __future__ import annotations

from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
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
    nodes = client.nodes_manager
    options = {
        name: value for name, value in nodes.connection_kwargs.items() if name not in ("retry", "connection_class")
    }
    options["redis_connect_func"] = client.user_on_connect_func  # the cluster's own stands in its place there
    if nodes.connection_kwargs.get("connection_class") is redis.SSLConnection:
        options["ssl"] = True  # it was made from a URL
    if hasattr(client, "cluster_error_retry_attempts"):  # redis-py 5
        options["cluster_error_retry_attempts"] = client.cluster_error_retry_attempts
    if hasattr(client, "load_balancing_strategy"):
        options["load_balancing_strategy"] = client.load_balancing_strategy
    node_class: Any = ClusterNode
    return RedisCluster(
        startup_nodes=[node_class(node.host, node.port) for node in nodes.startup_nodes.values()],
        require_full_coverage=nodes._require_full_coverage,
        dynamic_startup_nodes=nodes._dynamic_startup_nodes,
        address_remap=nodes.address_remap,
        reinitialize_steps=client.reinitialize_steps,
        read_from_replicas=client.read_from_replicas,
        retry=getattr(client, "retry", None),
        **options,
    )
