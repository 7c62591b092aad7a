"""Caches on real servers for the tests of ``CacheBackend``, each under a name; and Django, set up to use them.

``cache_on(kind, request)`` is entered for one test: inside, ``caches[ALIAS]`` is Django's cache of that kind, and
``Store.new_backend()`` makes a backend on it as a process would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from anarchon import CacheBackend

__all__ = ["ALIAS", "DATABASE_KINDS", "KINDS", "Store", "cache_on", "new_backend", "set_up_django"]

ALIAS = "cron"
DATABASE_ALIAS = "cron_cache"

DATABASE_KINDS = ("django-sqlite", "django-postgresql")
KINDS = ("django-redis", "django-memcached", "pymemcache", *DATABASE_KINDS)

_BACKENDS = "django.core.cache.backends."


@dataclass
class Store:
    """A cache of some kind.

    Attributes:
        kind: one of ``KINDS``.
        prefix: of the backends' keys.
        cache: its entry in Django's CACHES, where it is one of Django's.
        database: the entry in Django's DATABASES that it needs.
        address: of a memcached.
    """

    kind: str
    prefix: str
    cache: dict[str, Any] = field(default_factory=dict)
    database: dict[str, Any] = field(default_factory=dict)
    address: str = ""

    def new_backend(self, **options: Any) -> CacheBackend:
        return new_backend(self.address, **{"prefix": self.prefix, **options})


class Router:
    """Keeps the cache's table in its own database."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return DATABASE_ALIAS if model._meta.app_label == "django_cache" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == DATABASE_ALIAS if app_label == "django_cache" else None


def new_backend(address: str, **options: Any) -> CacheBackend:
    """A backend on Django's cache, or on the memcached of that address."""
    if address:
        from pymemcache import Client

        return CacheBackend(Client(address), **options)
    from django.core.cache import caches

    return CacheBackend(caches[ALIAS], **options)


def set_up_django(**values: Any) -> None:
    """Sets up Django, unless the tests of a site have done so; it can be done once in a process."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True, **values)
        django.setup()


@contextmanager
def cache_on(kind: str, request: pytest.FixtureRequest, location: str = "", **entry: Any) -> Iterator[Store]:
    """A cache of that kind that no other test has, and Django set up to use it.

    Args:
        location: of a Redis or memcached other than the session's.
        entry: more of its entry in CACHES.
    """
    from django.core.management import call_command
    from django.db import connections
    from django.test import override_settings

    set_up_django()
    store = Store(kind, request.getfixturevalue("prefix"))
    if kind == "django-redis":
        # Removed at the test's end by what begins with the prefix, so that must be first.
        store.cache = {
            "BACKEND": f"{_BACKENDS}redis.RedisCache",
            "LOCATION": location or request.getfixturevalue("redis_url"),
            "KEY_PREFIX": store.prefix,
        }
    elif kind == "django-memcached":
        address = location or request.getfixturevalue("memcached")
        store.cache = {"BACKEND": f"{_BACKENDS}memcached.PyMemcacheCache", "LOCATION": address}
    elif kind == "pymemcache":
        store.address = location or request.getfixturevalue("memcached")
        yield store
        return
    else:
        if kind == "django-sqlite":
            name = str(request.getfixturevalue("tmp_path") / "cache.db")
            # Nothing here is to outlive the machine.
            options = {"timeout": 20, "init_command": "PRAGMA synchronous = OFF"}
            store.database = {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options}
        else:
            store.database = request.getfixturevalue("postgres").django
        store.cache = {
            "BACKEND": f"{_BACKENDS}db.DatabaseCache",
            "LOCATION": "cron_cache",
            "OPTIONS": {"MAX_ENTRIES": 100_000},
        }
    store.cache |= entry
    changed: dict[str, Any] = {"CACHES": {"default": {"BACKEND": f"{_BACKENDS}dummy.DummyCache"}, ALIAS: store.cache}}
    if store.database:
        changed["DATABASE_ROUTERS"] = [Router()]
        full = connections.configure_settings({"default": {}, DATABASE_ALIAS: dict(store.database)})
        connections.settings[DATABASE_ALIAS] = full[DATABASE_ALIAS]
    with override_settings(**changed):
        try:
            if store.database:
                call_command("createcachetable", database=DATABASE_ALIAS, verbosity=0)
                connections[DATABASE_ALIAS].close()
            yield store
        finally:
            if store.database:
                connections[DATABASE_ALIAS].close()
                del connections[DATABASE_ALIAS]
                del connections.settings[DATABASE_ALIAS]
