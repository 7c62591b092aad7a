"""What is to be done in the child of a fork, also where Python is not told of one: uWSGI forks in C.

Python calls us in a child of its own forks, before anything else runs there. Of another fork nobody tells; so whoever
is about to use what a fork makes useless calls ``meet_fork`` first, which costs one look at the process id.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from anarchon.threads import call_guarded

__all__ = ["in_child", "meet_fork"]

_calls: list[Callable[[], object]] = []
_pid = os.getpid()
_meetings: dict[int, AbstractContextManager[bool]] = {}


def in_child(call: Callable[[], object]) -> None:
    """Has ``call`` called once in every child, in the order of these calls. It may take no lock that existed before."""
    _calls.append(call)


def meet_fork() -> None:
    """Finds out whether this is a child that has not been told so, and does what is to be done in one."""
    if os.getpid() == _pid:
        return
    # One lock a process, made in one step: an inherited one could be held for ever.
    with _meetings.setdefault(os.getpid(), threading.RLock()):
        if os.getpid() != _pid:
            _be_child()


def _be_child() -> None:
    global _pid
    for call in _calls:
        call_guarded(call)
    # Last: it tells the other threads of the child that all is ready.
    _pid = os.getpid()


os.register_at_fork(after_in_child=_be_child)
