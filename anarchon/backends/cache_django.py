"""Django's caches: which of them can serve, and how each call asks one.

Guarantees:

- Each call has a cache object of its own, made from ``settings.CACHES`` as they are then, and its connection is closed
  at the end of the call. Nothing is shared between threads, nor with a forked child.
- A database connection that a call opened, on whatever thread, is closed at its end; one that was open before stays
  open, in its transaction, unless it is broken.
- ``VERSION`` is left out of the keys: sites raise it to pass over what older code has cached, and during a deploy two
  versions of it would each run every slot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from anarchon.backends.cache_calls import AtomicCache
from anarchon.backends.cache_pymemcache import CONNECT_TIMEOUT_S, TIMEOUT_S
from anarchon.backends.redis_url import ESCAPE
from anarchon.errors import ConfigurationError

__all__ = ["DjangoCaches", "is_django"]

_logger = logging.getLogger("anarchon")

_BACKENDS = "django.core.cache.backends."

_KNOWN = ("redis.RedisCache", "memcached.PyMemcacheCache", "db.DatabaseCache")

_REFUSED = {
    "locmem.LocMemCache": "is the memory of each process alone, so every process would run every slot",
    "dummy.DummyCache": "keeps nothing, so every process would run every slot",
    "filebased.FileBasedCache": "looks for the file and writes it in two steps, so several processes win one slot",
}

_INSTEAD = (
    "Use a cache on Redis, memcached or the database; on one host also SQLiteBackend, and in one process MemoryBackend."
)

#: Beyond MAX_ENTRIES a database cache removes live entries, claims among them. Django's default is 300.
LEAST_MAX_ENTRIES = 10_000

_LONGEST_KEY = 250
_VERSION = 1


class DjangoCaches:
    """Makes a cache object for each call.

    Args:
        given: ``django.core.cache.cache``, or ``caches["alias"]``.
        longest_key: as long as keys get.

    Raises:
        ConfigurationError: a cache that cannot serve, or that is not one of ``settings.CACHES``.
    """

    def __init__(self, given: Any, longest_key: str) -> None:
        self._alias = _alias_of(given)
        cache = self._new_cache()
        if not any(_is(cache, _BACKENDS + name) for name in _KNOWN):
            _logger.warning(
                "CacheBackend does not know %s: its add must be atomic for all processes, and seen at once by any get.",
                f"{type(cache).__module__}.{type(cache).__qualname__}",
            )
        key = cache.make_key(longest_key, version=_VERSION)
        size = len(key.encode())
        if size > _LONGEST_KEY or any(ord(character) < 33 or ord(character) == 127 for character in key):
            raise ConfigurationError(
                f"CacheBackend: keys of the cache {self._alias!r} must have at most {_LONGEST_KEY} bytes, without white"
                f" space or control characters, and get {size}: see its KEY_PREFIX, and the prefix."
            )

        if key == cache.make_key(longest_key[:-1], version=_VERSION):
            raise ConfigurationError(
                f"CacheBackend: the KEY_FUNCTION of the cache {self._alias!r} makes one key of two, and every slot has"
                " one of its own."
            )

    def __repr__(self) -> str:
        return f"django cache {self._alias!r}"

    @contextmanager
    def __call__(self) -> Iterator[AtomicCache]:
        cache = self._new_cache()
        with _database_connections_as_they_were():
            try:
                yield _Django(cache)
            finally:
                _close(cache)

    def _new_cache(self) -> Any:
        from django.core.cache import caches

        cache: Any = caches.create_connection(self._alias)
        # Each time: a test may have put another cache in the place of the one that was looked at.
        _check(cache, self._alias)
        _bound(cache)
        return cache


class _Django(AtomicCache):
    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def add(self, key: str, value: str, seconds: int | None) -> object:
        return self._cache.add(key, value, seconds, version=_VERSION)

    def get(self, key: str) -> str | bytes | None:
        found: str | bytes | None = self._cache.get(key, version=_VERSION)
        return found

    def get_many(self, keys: Sequence[str]) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = self._cache.get_many(keys, version=_VERSION)
        return found

    def set(self, key: str, value: str, seconds: int) -> object:
        return self._cache.set(key, value, seconds, version=_VERSION)

    def delete(self, key: str) -> object:
        return self._cache.delete(key, version=_VERSION)


def is_django(cache: object) -> bool:
    """Whether it is one of Django's cache objects, or stands for one; without importing Django."""
    return _is(cache, _BACKENDS + "base.BaseCache") or _is(cache, "django.utils.connection.ConnectionProxy")


def _is(cache: object, path: str) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" == path for kind in type(cache).__mro__)


def _alias_of(given: Any) -> str:
    from django.core.cache import caches

    if getattr(given, "_connections", None) is caches:
        proxied: str = given._alias
        return proxied
    for alias in caches:
        try:
            if caches[alias] is given:
                return alias
        except Exception:
            # That one cannot be made, for want of its driver perhaps; it is not the one that was given.
            continue
    _check(given, "given")
    raise ConfigurationError(
        'CacheBackend takes a cache of settings.CACHES: django.core.cache.cache, or caches["alias"] as this thread sees'
        f" it. This {type(given).__qualname__} is none of them."
    )


def _check(cache: Any, alias: str) -> None:
    """Refuses what cannot say who came first."""
    for name, why in _REFUSED.items():
        if _is(cache, _BACKENDS + name):
            raise ConfigurationError(
                f"CacheBackend cannot use the cache {alias!r}: {name.split('.')[1]} {why}. {_INSTEAD}"
            )
    servers = getattr(cache, "_servers", None)
    if isinstance(servers, (list, tuple)) and len(servers) > 1:
        raise ConfigurationError(
            f"CacheBackend cannot use the cache {alias!r}, whose LOCATION names {len(servers)} servers: processes would"
            " not always ask the same one, and two of them could be told that they came first. Name one server."
        )
    if _is(cache, _BACKENDS + "db.BaseDatabaseCache"):
        _check_database(cache, alias)
    if _is(cache, _BACKENDS + "redis.RedisCache") and not all(_is_plain_url(server) for server in cache._servers):
        raise ConfigurationError(
            f"CacheBackend cannot use the cache {alias!r}: its LOCATION cannot be read as a URL. {ESCAPE}"
        )


def _check_database(cache: Any, alias: str) -> None:
    from django.db import router

    if cache._max_entries < LEAST_MAX_ENTRIES or not cache._cull_frequency:
        raise ConfigurationError(
            f"CacheBackend cannot use the cache {alias!r} as it is set up: over MAX_ENTRIES, now {cache._max_entries},"
            " Django removes live entries, claims among them. Give anarchon a cache table of its own, with"
            f' OPTIONS {{"MAX_ENTRIES": {LEAST_MAX_ENTRIES}}} or more and a CULL_FREQUENCY that is not 0.'
        )
    model = cache.cache_model_class
    if router.db_for_read(model) != router.db_for_write(model):
        raise ConfigurationError(
            f"CacheBackend cannot use the cache {alias!r}: a database router sends its reads to another database than"
            " its writes, and a claim must be read where it was written."
        )


def _is_plain_url(server: str) -> bool:
    """Whether each part stands where it belongs; errors of redis-py's would show what is left of a password."""
    try:
        parts = urlsplit(server)
        return parts.port != 0 and "#" not in server and "@" not in parts.path + parts.query
    except ValueError:
        return False


def _bound(cache: Any) -> None:
    """Sees to it that a server that does not answer is an error, soon, and not an empty cache."""
    # This object is ours alone, and has not made its client yet.
    if _is(cache, _BACKENDS + "memcached.PyMemcacheCache"):
        limits: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S, "timeout": TIMEOUT_S}
        cache._options = {
            **cache._options,
            **_missing(limits, cache._options),
            "ignore_exc": False,
            "default_noreply": False,
        }
    elif _is(cache, _BACKENDS + "redis.RedisCache"):
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        # redis-py's own retries would multiply the time-outs; who claims repeats by itself.
        limits = {"socket_timeout": TIMEOUT_S, "retry": Retry(NoBackoff(), 0)}
        if not str(cache._servers[0]).startswith("unix:"):
            limits["socket_connect_timeout"] = CONNECT_TIMEOUT_S
        cache._options = {**cache._options, **_missing(limits, cache._options)}


def _missing(limits: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The limits that the site has not set; None, which is no limit, is not one."""
    return {name: limit for name, limit in limits.items() if not options.get(name)}


def _close(cache: Any) -> None:
    cache.close()
    # Django's Redis cache leaves its connections to the garbage collector.
    client = cache.__dict__.get("_cache")
    if _is(cache, _BACKENDS + "redis.RedisCache") and client is not None:
        for pool in getattr(client, "_pools", {}).values():
            pool.disconnect()


@contextmanager
def _database_connections_as_they_were() -> Iterator[None]:
    """Closes the connections of this thread that were opened inside, and any that turned out to be broken."""
    from django.db import connections

    open_before = {
        connection.alias for connection in connections.all(initialized_only=True) if connection.connection is not None
    }
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.connection is None or connection.in_atomic_block:
                continue
            broken = connection.errors_occurred and not connection.is_usable()
            if connection.alias not in open_before or broken:
                connection.close()
