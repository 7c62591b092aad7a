"""Whether this process can run jobs: they, and the heartbeats of their leases, need threads that run by themselves."""

from __future__ import annotations

import logging
import sys
from typing import Any

__all__ = ["NO_THREADS", "check_threads"]

_logger = logging.getLogger("anarchon")

NO_THREADS = "uWSGI runs no threads here, so no job can run: set enable-threads = true."

_GREEN = (
    "%s has put green threads in the place of real ones in this process. One runs until it waits for something: a job"
    " that computes for longer than its lease holds up its own heartbeat, and another instance takes its run over while"
    " it goes on. Serve with real threads (gunicorn's gthread), or run the jobs in a worker."
)


def check_threads() -> None:
    """To be called before anything is started: warns of green threads.

    Raises:
        RuntimeError: threads that are started here would never run.
    """
    if not getattr(sys.modules.get("uwsgi"), "has_threads", True):
        raise RuntimeError(NO_THREADS)
    library = _green_library()
    if library is not None:
        _logger.warning(_GREEN, library)


def _green_library() -> str | None:
    """The library that has taken the place of ``threading``; None where its threads are the system's."""
    # Whoever patches has imported these; nobody pays for them who has not.
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return "gevent"
    patcher: Any = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        return "eventlet"
    return None
