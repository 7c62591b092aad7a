"""What a start warns of: a server that is too old, that evicts what decides, or that has too few replicas."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis

from anarchon.backends.redis_limits import is_cluster

__all__ = ["advice_of"]


def advice_of(client: Any, place: str, replicas: int) -> list[str]:
    """Asks the server, in a cluster its primaries, and says in a sentence each what it should be told otherwise.

    Args:
        place: where the server is, for people.
        replicas: how many ``wait_replicas`` waits for; 0: for none.
    """
    found = []
    for node, facts in _facts(client, each=replicas > 0):
        found += _advice(place + (f", node {node}," if node else ""), facts, replicas)
    return found


def _facts(client: Any, each: bool) -> list[tuple[str | None, dict[str, Any]]]:
    """What the server says of itself; in a cluster, what one of its primaries does, or each, by its place."""
    if not is_cluster(client):
        return [(None, client.execute_command("INFO"))]
    found: list[tuple[str | None, dict[str, Any]]] = []
    # Each has replicas of its own. One that is away has none, and another in its place soon.
    for node in client.get_primaries() if each else client.get_primaries()[:1]:
        with suppress(redis.RedisError, OSError):
            found.append((node.name, client.execute_command("INFO", target_nodes=node)))
    return found


def _advice(where: str, facts: dict[str, Any], wanted: int) -> list[str]:
    found = []
    version = str(facts.get("redis_version", ""))
    if version.split(".")[0] in ("1", "2", "3", "4", "5"):
        found.append(f"{where} is version {version}. anarchon needs 6.0 or newer; an older one may refuse its scripts.")
    policy = str(facts.get("maxmemory_policy", ""))
    if policy.startswith("allkeys"):
        found.append(
            f"{where} may evict any key (maxmemory-policy {policy}), and with it what is known of a run: a slot could"
            " then run twice. Set noeviction, or give anarchon a server of its own."
        )
    replicas = int(facts.get("connected_slaves", 0))
    if replicas < wanted:
        found.append(
            f"{where} has {replicas} replicas, and wait_replicas={wanted} waits for more: until it has them no claim is"
            " relied on, and no job runs."
        )
    return found
