"""Servers that can only be known by their serving: those of development, and a script that calls one.

The parent of a reloader imports the application as the child does that serves, and nothing tells them apart before the
one begins to serve and the other to wait for its child. So a library thread looks, ten times a second, at what this
process is doing, until it does one or the other.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType

from anarchon.clock import SystemClock
from anarchon.contrib.servers.begin import on_thread
from anarchon.contrib.servers.stack import module_of

__all__ = ["COMMANDS", "arrange"]

_logger = logging.getLogger("anarchon")

#: Commands that serve, of Django and its extensions and of Flask.
COMMANDS = ("runserver", "runserver_plus", "flask run")

_SERVING = {
    ("werkzeug.serving", "serve_forever"),
    ("django.core.servers.basehttp", "run"),
    ("waitress.server", "run"),
}
_RELOADING = {
    ("werkzeug._reloader", "restart_with_reloader"),
    ("django.utils.autoreload", "restart_with_reloader"),
}

_UNKNOWN = "No server has been recognised: call scheduler.start() where requests are served."

_LOOK_AGAIN_MS = 100

#: How long a script may take until it serves.
_SCRIPT_MS = 600_000


def arrange(go: Callable[[], None], certain: bool) -> str | None:
    """Calls ``go`` when this process begins to serve.

    Args:
        certain: it is known that this process serves, or waits for a child that does.
    """
    if not certain and not hasattr(sys.modules.get("__main__"), "__file__"):
        return _UNKNOWN
    on_thread(lambda: _watch(go, None if certain else _SCRIPT_MS))
    return None


def _watch(go: Callable[[], None], for_ms: int | None) -> None:
    clock = SystemClock()
    end_ms = None if for_ms is None else clock.monotonic_ms() + for_ms
    never = clock.event()
    while end_ms is None or clock.monotonic_ms() < end_ms:
        doing = _doing()
        if doing & _SERVING:
            go()
            return
        if doing & _RELOADING:
            return
        clock.wait(never, _LOOK_AGAIN_MS)
    _logger.info("%s", _UNKNOWN)


def _doing() -> set[tuple[str, str]]:
    """The functions that are under way in this process, by module and name."""
    doing = set()
    for frame in list(sys._current_frames().values()):
        call: FrameType | None = frame
        while call is not None:
            doing.add((module_of(call), call.f_code.co_name))
            call = call.f_back
    return doing
