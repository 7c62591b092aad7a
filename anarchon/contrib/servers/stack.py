"""What called us, read from the stack: servers and commands are known by the functions of theirs that are under way.

A name in the environment says less: every program that a server starts inherits it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["called", "command", "find", "frames", "module_of", "tool"]

#: Programs that import an application, its server's entry point included, and serve nothing.
_TOOLS = {
    "_pytest": "pytest",
    "unittest": "unittest",
    "celery": "Celery",
    "IPython": "IPython",
    "sphinx": "Sphinx",
}


def frames() -> Iterator[FrameType]:
    """The calls under way on this thread, innermost first, then those on the main thread.

    An application that is made by its first request is made on a server's own thread.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
    main = threading.main_thread()
    if main is not threading.current_thread() and main.ident is not None:
        frame = sys._current_frames().get(main.ident)
        while frame is not None:
            yield frame
            frame = frame.f_back


def module_of(frame: FrameType) -> str:
    """The name of the module that a call belongs to."""
    return str(frame.f_globals.get("__name__", ""))


def find(module: str, function: str) -> FrameType | None:
    """The innermost call of that function that is under way."""
    for frame in frames():
        if frame.f_code.co_name == function and module_of(frame) == module:
            return frame
    return None


def called(*functions: tuple[str, str]) -> bool:
    """Whether one of these functions, by module and name, is under way."""
    return any(find(module, function) is not None for module, function in functions)


def tool() -> str | None:
    """The program, no server, that imports the application; None where none of those is known."""
    for frame in frames():
        package = module_of(frame).partition(".")[0]
        if package in _TOOLS:
            return _TOOLS[package]
    return None


def command() -> str | None:
    """The command of Django's ``manage.py`` or of ``flask`` that is under way, such as ``migrate``; else None."""
    frame = find("django.core.management", "execute")
    if frame is not None:
        return str(frame.f_locals.get("subcommand", "help"))
    if find("flask.cli", "run_command") is not None:
        return "flask run"
    if any(module_of(frame) == "flask.cli" for frame in frames()):
        return "flask"
    return None
