"""From what stands on the command line to a scheduler: ``package.module:scheduler``, or the URL of a store."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any, TypeGuard, TypeVar

from anarchon.backends import open_backend
from anarchon.errors import error_text, shown
from anarchon.scheduler import Scheduler

__all__ = ["UsageError", "load_scheduler", "open_target"]

_T = TypeVar("_T")


class UsageError(Exception):
    """What was asked for cannot be done. Where the target's own code raised, that is the cause, worth its traceback."""


def open_target(target: str, prefix: str | None = None) -> Scheduler:
    """The scheduler that the target names; for a URL, one without jobs: a reader.

    Raises:
        UsageError: it names none, or there is a prefix where the target's code has its own.
        ConfigurationError: a URL that is no store's.
    """
    if "://" in target:
        return Scheduler(open_backend(target, prefix=prefix))
    if prefix is not None:
        raise UsageError(f"--prefix goes with the URL of a store; the store of {target} has its own.")
    return load_scheduler(target)


def load_scheduler(target: str) -> Scheduler:
    """Imports ``package.module:scheduler``; a function there that makes a scheduler will do.

    The current directory comes first on the path, as gunicorn has it.

    Raises:
        UsageError: there is no such module or name in it, it is no scheduler, or its code raised.
    """
    module_name, attribute = _split(target)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    found: Any = module
    for name in attribute.split("."):
        found = _attribute(module, found, name)
    if _is_scheduler(found):
        return found
    # To call a job's handler would be to run the job.
    if not callable(found) or _is_handler(module, found):
        raise UsageError(f"{target} is {_a(found)}, not a Scheduler.{_hint(module)}")
    made = _call_theirs(f"{target}()", found)
    if inspect.iscoroutine(made):
        # So that Python does not warn of one that nobody awaits.
        made.close()
        raise UsageError(f"{target}() returned a coroutine, which nobody awaits: expected def, not async def.")
    if not _is_scheduler(made):
        raise UsageError(f"{target}() returned {_a(made)}, not a Scheduler.")
    return made


def _split(target: str) -> tuple[str, str]:
    if "://" in target:
        raise UsageError("A store's URL has no jobs to run: expected package.module:scheduler.")
    module, colon, attribute = target.partition(":")
    likely = module.removesuffix(".py").strip("./").replace("/", ".") or "package.module"
    if not colon or not attribute or likely != module:
        hint = f" Did you mean {likely}:{attribute or 'scheduler'}?" if target else ""
        raise UsageError(f"Expected package.module:scheduler, not {target!r}.{hint}")
    return module, attribute


def _import(name: str) -> ModuleType:
    try:
        return _call_theirs(f"Importing {name}", lambda: importlib.import_module(name))
    except UsageError as error:
        missing = error.__cause__
        # One that is missing inside the module is another matter, and shows where it was asked for.
        if isinstance(missing, ModuleNotFoundError) and missing.name and f"{name}.".startswith(f"{missing.name}."):
            where = f"looked in {os.getcwd()} and on Python's path"
            raise UsageError(f"There is no module {missing.name!r} ({where}).") from None
        raise


def _attribute(module: ModuleType, owner: object, name: str) -> Any:
    try:
        return _call_theirs(f"Looking up {name!r} in {_name(module, owner)}", functools.partial(getattr, owner, name))
    except UsageError as error:
        if isinstance(error.__cause__, AttributeError):
            raise UsageError(_no_such_name(module, owner, name)) from None
        raise


def _call_theirs(what: str, call: Callable[[], _T]) -> _T:
    """Calls code of the target's."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        error.__traceback__ = _from_their_code(error.__traceback__)
        if isinstance(error, SystemExit):
            # Else a script without a main guard would end us with its own code, which may be 0.
            raise UsageError(f"{what} called sys.exit({shown(error.code)}).") from error
        raise UsageError(f"{what} failed: {error_text(error)}") from error


def _from_their_code(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without its first frames: this file's and the import system's."""
    ours = (__file__, importlib.__file__)
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            break
        frames = frames.tb_next
    return frames


def _no_such_name(module: ModuleType, owner: object, name: str) -> str:
    try:
        nearest = difflib.get_close_matches(name, dir(owner), n=1)
    except Exception:
        # What is looked at may have a __dir__ of its own.
        nearest = []
    hint = f" Did you mean {nearest[0]!r}?" if nearest else _hint(module)
    return f"{_name(module, owner)} has no {name!r}.{hint}"


def _name(module: ModuleType, owner: object) -> str:
    return module.__name__ if owner is module else type(owner).__name__


def _hint(module: ModuleType) -> str:
    return "".join(f" Did you mean {module.__name__}:{name}?" for name in _schedulers(module)[:1])


def _is_handler(module: ModuleType, function: object) -> bool:
    schedulers = [getattr(module, name) for name in _schedulers(module)]
    return any(job.handler is function for scheduler in schedulers for job in scheduler._jobs.values())


def _is_scheduler(value: object) -> TypeGuard[Scheduler]:
    try:
        return isinstance(value, Scheduler)
    except Exception:
        # A stand-in is asked for its class, and may raise for want of what it stands for.
        return False


def _schedulers(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_scheduler(value)]


def _a(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
