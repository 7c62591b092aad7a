"""``wait_replicas``: an answer that is relied on only when so many replicas have what it wrote.

WAIT tells how many replicas have everything that its own connection has written. On another connection it would tell
of older writes, or of none, and call that enough:

  1. a claim is granted on connection A, and no replica has it yet
  2. WAIT is sent on connection B, which last wrote when all was well: as many replicas as ever "have it"

So a call is made as ever, and what it granted, renewed or finished is asked for once more with the same token, and WAIT
right behind it, in one go on one connection. A repeat writes again what stands there, so that WAIT waits for all of it;
a connection that has to be made anew is sent both; and a server that was promoted in between decides anew.
"""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import AskError, ReadOnlyError

from anarchon.backends.redis_limits import is_cluster
from anarchon.durations import format_duration

__all__ = ["NotReplicated", "repeat_and_wait", "serves_no_longer"]

#: Where a client sets no time-out; none such is registered with a job.
_READ_S = 2.0


class NotReplicated(redis.RedisError):
    """Too few replicas have acknowledged in time what a call wrote."""


def repeat_and_wait(client: Any, key: bytes, replicas: int, call: tuple[Any, ...], raw: dict[str, Any]) -> Any:
    """Sends a call once more, and WAIT behind it.

    Returns:
        What the call was answered this time, and None, or the error to raise where too few replicas have it.
    """
    if not is_cluster(client):
        return _in_one_go(client, replicas, [call], raw)
    node = client.get_node_from_key(key)
    try:
        return _in_one_go(client.get_redis_connection(node), replicas, [call], raw)
    except AskError as elsewhere:
        # The job's keys have gone to another node, or are on their way and there already (MovedError is one, too).
        node = client.get_node(host=elsewhere.host, port=elsewhere.port)
        return _in_one_go(client.get_redis_connection(node), replicas, [("ASKING",), call], raw)


def serves_no_longer(error: Exception) -> bool:
    """Whether the server that gave this error is perhaps no primary any more, so that another should be looked for."""
    if isinstance(error, (NotReplicated, ReadOnlyError)):
        return True
    # A script's error begins with other words on a server before 7.0.
    told = str(error) if isinstance(error, redis.ResponseError) else ""
    return any(word in told for word in ("READONLY", "NOREPLICAS", "UNBLOCKED"))


def _in_one_go(client: Any, replicas: int, calls: list[tuple[Any, ...]], raw: dict[str, Any]) -> Any:
    wait_ms = _wait_ms(client)
    with client.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.execute_command(*call, **raw)
        pipeline.execute_command("WAIT", replicas, wait_ms)
        *answers, acknowledged = pipeline.execute(raise_on_error=False)
    for answer in (*answers, acknowledged):
        if isinstance(answer, Exception):
            raise answer
    if acknowledged >= replicas:
        return answers[-1], None
    return answers[-1], NotReplicated(
        f"{acknowledged} of the {replicas} replicas that wait_replicas asks for acknowledged it within "
        f"{format_duration(wait_ms)}"
    )


def _wait_ms(client: Any) -> int:
    """Half the time that an answer may take: WAIT has to be answered in time, too. Never 0, which would be for ever."""
    read_s = client.connection_pool.connection_kwargs.get("socket_timeout") or _READ_S
    return max(1, int(500 * read_s))
