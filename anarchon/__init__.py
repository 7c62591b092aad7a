"""Scheduled jobs inside the processes that a web application already has: each due slot runs once.

Every process registers the same jobs and starts its scheduler; a shared store decides who runs each slot. There is no
leader, no extra daemon and no broker.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from anarchon.backends import ClaimOnlyBackend, LeaseBackend, open_backend
from anarchon.backends.memory import MemoryBackend
from anarchon.context import RunContext
from anarchon.errors import (
    AnarchonError,
    BackendError,
    ConfigurationError,
    JobNotRegistered,
    RunInterrupted,
    RunRefused,
)
from anarchon.records import ActiveRun, Event, JobInfo, RunRecord
from anarchon.scheduler import Scheduler

if TYPE_CHECKING:
    from anarchon.backends.cache import CacheBackend
    from anarchon.backends.redis import RedisBackend
    from anarchon.backends.sqlite import SQLiteBackend
    from anarchon.web.remote import RemoteWorkers

__all__ = [
    "ActiveRun",
    "AnarchonError",
    "BackendError",
    "CacheBackend",
    "ClaimOnlyBackend",
    "ConfigurationError",
    "Event",
    "JobInfo",
    "JobNotRegistered",
    "LeaseBackend",
    "MemoryBackend",
    "RedisBackend",
    "RemoteWorkers",
    "RunContext",
    "RunInterrupted",
    "RunRecord",
    "RunRefused",
    "SQLiteBackend",
    "Scheduler",
    "open_backend",
]

__version__ = metadata.version("anarchon")


def __getattr__(name: str) -> Any:
    # A backend brings its driver with it, so it is imported by those who use it.
    if name == "CacheBackend":
        from anarchon.backends.cache import CacheBackend

        return CacheBackend
    if name == "RedisBackend":
        from anarchon.backends.redis import RedisBackend

        return RedisBackend
    if name == "SQLiteBackend":
        from anarchon.backends.sqlite import SQLiteBackend

        return SQLiteBackend
    if name == "RemoteWorkers":
        from anarchon.web.remote import RemoteWorkers

        return RemoteWorkers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
