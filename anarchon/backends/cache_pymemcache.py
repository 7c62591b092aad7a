"""pymemcache's clients, for one memcached server.

The client that was given serves as a pattern: each call of the backend has a client of its own, with the same options.
For a ``Client`` cannot be shared between threads, no client can be shared with a forked child, and the locks of a pool
could be held for ever there. Two options are not taken over: ``ignore_exc``, since a store that is away must not look
like an empty one, and the lack of a time-out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anarchon.backends.cache_calls import AtomicCache
from anarchon.clock import Clock, SystemClock
from anarchon.errors import ConfigurationError

__all__ = ["CONNECT_TIMEOUT_S", "TIMEOUT_S", "PymemcacheClients", "is_pymemcache"]

#: Where the user's own client would wait for ever.
CONNECT_TIMEOUT_S = 1.0
TIMEOUT_S = 2.0

_LONGEST_KEY = 250

# From here on memcached takes a time to keep an item for a Unix time.
_LONGEST_RELATIVE_S = 30 * 86_400


class PymemcacheClients:
    """Makes a client for each call.

    Args:
        given: a ``Client`` or ``PooledClient``, or a ``HashClient`` of one server, also inside a ``RetryingClient``.
        longest_key: as long as keys get.

    Raises:
        ConfigurationError: several servers, or a key prefix that leaves no room.
    """

    def __init__(self, given: Any, longest_key: str) -> None:
        if _is(given, "RetryingClient"):
            given = given._client
        if _is(given, "HashClient"):
            given = _only_server(given)
        self._pattern = given
        size = len(given.key_prefix) + len(longest_key)
        if size > _LONGEST_KEY or any(byte < 33 or byte == 127 for byte in given.key_prefix):
            raise ConfigurationError(
                f"CacheBackend: keys must have at most {_LONGEST_KEY} bytes, without white space or control characters,"
                f" and get {size}: see the client's key_prefix, and the prefix."
            )

    def __repr__(self) -> str:
        return "pymemcache"

    @contextmanager
    def __call__(self) -> Iterator[AtomicCache]:
        client = self._new_client()
        try:
            yield _Memcached(client)
        finally:
            client.close()

    def _new_client(self) -> Any:
        pattern = self._pattern
        if _is(pattern, "PooledClient"):
            client = pattern._create_client()
        else:
            client = copy.copy(pattern)
            client.sock = None
        client.ignore_exc = False
        client.connect_timeout = client.connect_timeout or CONNECT_TIMEOUT_S
        client.timeout = client.timeout or TIMEOUT_S
        return client


class _Memcached(AtomicCache):
    def __init__(self, client: Any, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()

    def add(self, key: str, value: str, seconds: int | None) -> object:
        return self._client.add(key, value, expire=self._expire(seconds), noreply=False)

    def get(self, key: str) -> str | bytes | None:
        found: str | bytes | None = self._client.get(key)
        return found

    def get_many(self, keys: Sequence[str]) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = self._client.get_many(keys)
        return found

    def set(self, key: str, value: str, seconds: int) -> object:
        return self._client.set(key, value, expire=self._expire(seconds), noreply=False)

    def delete(self, key: str) -> object:
        return self._client.delete(key, noreply=False)

    def _expire(self, seconds: int | None) -> int:
        if seconds is None:
            return 0
        return seconds if seconds <= _LONGEST_RELATIVE_S else self._clock.now_ms() // 1000 + seconds


def is_pymemcache(cache: object) -> bool:
    """Whether it is one of pymemcache's clients; without importing pymemcache."""
    return any(_is(cache, name) for name in ("Client", "PooledClient", "HashClient", "RetryingClient"))


def _is(cache: object, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == "pymemcache" for kind in type(cache).__mro__)


def _only_server(given: Any) -> Any:
    clients = list(given.clients.values())
    if len(clients) != 1:
        raise ConfigurationError(
            f"CacheBackend needs one memcached server, not {len(clients)}: while one of several is away, some processes"
            " ask another one in its place, and two of them are told that they came first."
        )
    return clients[0]
