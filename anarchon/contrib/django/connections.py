"""The connections that a run opens are closed after it, and no other thread ever uses one.

Guarantees:

- Django keeps a connection for each thread and alias, and each run has a thread to itself while it lasts. So a run's
  connections are its own, never a request's or another run's.
- What a handler or a listener opens on a library thread is closed when it has ended, and forgotten: Django does that at
  the end of a request, which a library thread has none of. The next run there begins with nothing, whatever state the
  last one left a connection in. The caches are closed, too, as at the end of a request.
- What a listener opens on any other thread, such as one that serves a request, is left alone: that thread may be in the
  middle of a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.core.cache import caches
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from anarchon.context import RunContext
from anarchon.executor import AroundRun
from anarchon.threads import on_library_thread

__all__ = ["around_run", "own_connections"]

_logger = logging.getLogger("anarchon")

_inside: ContextVar[bool] = ContextVar("anarchon_own_connections", default=False)


def around_run(theirs: AroundRun | None) -> AroundRun:
    """Makes what is entered around every handler call: ours, and inside of it theirs, which may use the database."""

    @contextmanager
    def around(context: RunContext) -> Iterator[None]:
        with own_connections():
            if theirs is None:
                yield
            else:
                with theirs(context):
                    yield

    return around


@contextmanager
def own_connections(event: object = None) -> Iterator[None]:
    """Around what is called on a library thread: the connections that it opens are closed at its end.

    Nothing happens on another thread, nor inside of another such: a handler may cause an event, by asking a store
    that is away for instance, in the middle of its own transaction.
    """
    if _inside.get() or not on_library_thread():
        yield
        return
    outside = _inside.set(True)
    # Whatever else has opened one on this thread, a backend of the site's own for one: it may have gone stale since.
    _close_all()
    try:
        yield
    finally:
        _inside.reset(outside)
        _close_all()


def _close_all() -> None:
    for connection in connections.all(initialized_only=True):
        try:
            connection.close()
            if connection.connection is not None:
                # Django keeps that of an SQLite database in memory, lest the database go with it. A test's is shared,
                # and lives as long as the first one; one that is not shared is of no use to any other thread.
                BaseDatabaseWrapper.close(connection)
        except Exception:
            # How the run has ended is another matter.
            _logger.warning(
                "A run's connection to the database %r could not be closed.", connection.alias, exc_info=True
            )
        # Also what is remembered of it, such as the log of its queries, or a transaction that nobody has left.
        del connections[connection.alias]
    try:
        caches.close_all()
    except Exception:
        _logger.warning("A run's connection to a cache could not be closed.", exc_info=True)
