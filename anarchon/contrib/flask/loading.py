"""When an app has been made: its factory has returned, and the module that makes it has been imported.

A run that begins before that could find an extension without its app, and would fail for good. Flask tells nobody when
an app is complete, so the thread that makes it is looked at until it has left the code that does.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType

from anarchon.clock import SystemClock
from anarchon.contrib.servers.stack import module_of

__all__ = ["until_made"]

_LOOK_AGAIN_MS = 20

#: A server that is not among ours may be what called the app's code, and never returns.
_LONGEST_MS = 60_000

_SERVERS = ("gunicorn", "waitress", "werkzeug.serving")

#: Whose calls say nothing of the app. A script's own code may be what serves, and no more of that be seen: uWSGI is
#: written in C. A thread's first call is under way as long as the thread, and modules are imported at any time.
_OTHERS = ("__main__", "threading", "importlib")


def until_made() -> Callable[[], None]:
    """To be called, on the thread that makes an app, while it does.

    Returns:
        What blocks until the app has been made: until the calls that are under way now have returned, or have begun to
        serve. It keeps none of their variables alive.
    """
    thread = threading.get_ident()
    under_way = frozenset(_codes(sys._getframe(1)))

    def wait() -> None:
        clock = SystemClock()
        never = clock.event()
        end_ms = clock.monotonic_ms() + _LONGEST_MS
        while _makes(thread, under_way) and clock.monotonic_ms() < end_ms:
            clock.wait(never, _LOOK_AGAIN_MS)

    return wait


def _codes(frame: FrameType | None) -> list[CodeType]:
    """What called, outwards as far as the server."""
    codes = []
    while frame is not None and not _is_of(frame, _SERVERS):
        if not _is_of(frame, _OTHERS):
            codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def _makes(thread: int, under_way: frozenset[CodeType]) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and not _is_of(frame, _SERVERS):
        if frame.f_code in under_way:
            return True
        frame = frame.f_back
    return False


def _is_of(frame: FrameType, packages: tuple[str, ...]) -> bool:
    module = module_of(frame)
    return any(module == package or module.startswith(f"{package}.") for package in packages)
