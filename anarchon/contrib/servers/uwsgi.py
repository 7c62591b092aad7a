"""uWSGI: its workers serve; its master, mules and spoolers do not.

Inside it there is a module ``uwsgi``. It forks in C and tells Python nothing of it, but calls ``uwsgi.post_fork_hook``
in every child, mules and spoolers included, and in the one process that serves where it does not fork at all.
``uwsgidecorators`` sets that hook, when it is first imported, to its own list; what is on that list is not lost.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any

from anarchon.surroundings import NO_THREADS
from anarchon.threads import call_guarded

__all__ = ["arrange", "inside"]

_logger = logging.getLogger("anarchon")

Go = Callable[[], None]


def inside() -> bool:
    """Whether this process is one of uWSGI's."""
    return hasattr(sys.modules.get("uwsgi"), "worker_id")


def arrange(go: Go) -> str | None:
    """In a worker ``go`` is called now; in a process that will fork workers or become one, after the fork."""
    uwsgi: Any = sys.modules["uwsgi"]
    if not uwsgi.has_threads:
        _logger.error("%s", NO_THREADS)
        return NO_THREADS
    if uwsgi.worker_id() > 0:
        go()
        return None
    if uwsgi.mule_id() > 0 or uwsgi.i_am_the_spooler():
        return "This is a mule or a spooler of uWSGI, which serves no requests."

    def in_child() -> None:
        if uwsgi.worker_id() > 0:
            call_guarded(go)

    _after_fork(uwsgi, in_child)
    return "This is uWSGI's master, which serves no requests; its workers start." if uwsgi.masterpid() else None


def _after_fork(uwsgi: Any, call: Callable[[], None]) -> None:
    """Has ``call`` called after each fork, beside whatever else is or will be."""
    theirs = getattr(uwsgi, "post_fork_hook", None)
    imported = "uwsgidecorators" in sys.modules
    try:
        decorators = importlib.import_module("uwsgidecorators")
    except Exception:
        # It is not installed, or there is no master, without which it refuses: nobody will set the hook to its list.
        decorators = None
    if decorators is not None and not imported and theirs is not None:
        decorators.postfork(theirs)  # that import has just taken its place
    if decorators is not None and uwsgi.post_fork_hook is decorators.postfork_chain_hook:
        decorators.postfork(call)
        return

    def hook() -> None:
        if theirs is not None:
            theirs()
        call()

    uwsgi.post_fork_hook = hook
