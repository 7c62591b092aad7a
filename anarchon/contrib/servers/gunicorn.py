"""gunicorn: its workers serve, the master that forks them does not.

A worker runs inside of the master's ``spawn_worker``, which the fork left on its stack, with the worker's object at
hand. What is to be started waits for gunicorn's own hook ``post_worker_init``: by then the worker has its user and
group, its signal handlers and the application. After a fork in a master that preloads, Python calls us in the child,
and ``spawn_worker`` is what forked; a child of another kind, such as that of ``multiprocessing``, starts nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from anarchon.contrib.servers.stack import find, frames, module_of

__all__ = ["arrange", "inside"]

Go = Callable[[], None]

#: What the workers of this process are to start.
_for_workers: list[Go] = []


def inside() -> bool:
    """Whether gunicorn called us: its master or one of its workers."""
    return any(module_of(frame).startswith("gunicorn.") for frame in frames())


def arrange(go: Go) -> str | None:
    """In a worker ``go`` is called when it is set up; in a master, in each worker it forks from now on."""
    frame = find("gunicorn.arbiter", "spawn_worker")
    if frame is not None and frame.f_locals.get("pid") == 0:
        _when_set_up(frame.f_locals.get("worker"), go)
        return None
    _for_workers.append(go)
    return "This is gunicorn's master, which serves no requests; its workers start."


def _when_set_up(worker: Any, go: Go) -> None:
    if worker.booted:
        go()
        return
    theirs = worker.cfg.post_worker_init

    def post_worker_init(worker: Any) -> None:
        theirs(worker)
        go()

    worker.cfg.set("post_worker_init", post_worker_init)


def _in_child() -> None:
    # What a child of the worker forks is none of the master's: the list is for one fork.
    given = _for_workers[:]
    _for_workers.clear()
    frame = _forker(sys._getframe(1)) if given else None
    if frame is not None:
        for go in given:
            _when_set_up(frame.f_locals["worker"], go)


def _forker(frame: FrameType | None) -> FrameType | None:
    """The frame of ``spawn_worker``, if it was that which forked; gevent stands in between where it patched ``os``."""
    while frame is not None and module_of(frame).startswith("gevent."):
        frame = frame.f_back
    if frame is not None and (module_of(frame), frame.f_code.co_name) == ("gunicorn.arbiter", "spawn_worker"):
        return frame
    return None


os.register_at_fork(after_in_child=_in_child)
