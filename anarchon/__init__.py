"""Scheduled jobs inside the processes that a web application already has: each due slot runs once.

Every process registers the same jobs and starts its scheduler; a shared store decides who runs each slot. There is no
leader, no extra daemon and no broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anarchon.backends import ClaimOnlyBackend, LeaseBackend, open_backend
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
    from anarchon.backends.memory import MemoryBackend
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


# A backend brings its driver with it, or takes its time, so it is imported by those who use it.
_HOMES = {
    "CacheBackend": "anarchon.backends.cache",
    "MemoryBackend": "anarchon.backends.memory",
    "RedisBackend": "anarchon.backends.redis",
    "RemoteWorkers": "anarchon.web.remote",
    "SQLiteBackend": "anarchon.backends.sqlite",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        # Written down in setup.cfg alone. Reading it takes longer than importing all the rest.
        from importlib import metadata

        return metadata.version("anarchon")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
