"""A framework's settings in capitals, made into what a ``Scheduler`` takes. Knows no framework.

``LEASE`` is ``Scheduler(lease=...)``, and so on for every option; ``BACKEND`` is a URL, a dotted path to a backend (or
to a callable that makes one), or the object itself; ``PREFIX`` goes with a Redis URL.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from anarchon.backends import ClaimOnlyBackend, LeaseBackend, open_backend
from anarchon.callables import can_be_called, named, signature_of
from anarchon.errors import ConfigurationError, shown
from anarchon.options import option_names
from anarchon.scheduler import Scheduler

__all__ = ["SCHEDULER_SETTINGS", "by_dotted_path", "make_scheduler", "unknown_settings"]

#: What becomes an argument of the scheduler, beside BACKEND and PREFIX.
_ARGUMENTS = ("timezone", "instance_id", "log", "around_run", *option_names())

SCHEDULER_SETTINGS = ("BACKEND", "PREFIX", *(name.upper() for name in _ARGUMENTS))


def unknown_settings(given: Collection[str], known: Collection[str]) -> dict[str, str | None]:
    """The names that nobody reads, each with the nearest right one, or None."""

    def nearest(name: str) -> str | None:
        found = difflib.get_close_matches(str(name).upper(), known, n=1)
        return found[0] if found else None

    return {name: nearest(name) for name in given if name not in known}


def make_scheduler(given: Mapping[str, Any], **overrides: Any) -> Scheduler:
    """Makes a scheduler of settings whose names are known.

    Args:
        given: by their names in capitals, without a framework's prefix; others than ``SCHEDULER_SETTINGS`` are passed
            over.
        overrides: arguments of the scheduler that are not the settings' to give, or that the framework has a default
            for; they go before the settings.

    Raises:
        ConfigurationError: BACKEND is missing, or a value is none of what was expected; the setting is named.
    """
    arguments = {name: given[name.upper()] for name in _ARGUMENTS if name.upper() in given}
    if isinstance(arguments.get("around_run"), str):
        arguments["around_run"] = by_dotted_path(arguments["around_run"], "AROUND_RUN")
    return Scheduler(_backend(given), **{**arguments, **overrides})


def by_dotted_path(path: str, setting: str) -> Any:
    """What stands at ``package.module.name``.

    Raises:
        ConfigurationError: there is nothing of that name; an error inside the module is raised as it came.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(f"{setting} must be a dotted path such as 'package.module.name', not {shown(path)}.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # Theirs was found, and lacks something itself.
            raise
        raise ConfigurationError(f"{setting}: there is no module {error.name!r} ({shown(path)}).") from None
    if not hasattr(module, name):
        nearest = difflib.get_close_matches(name, dir(module), n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigurationError(f"{setting}: {module_name} has no {name!r}.{hint}")
    return getattr(module, name)


def _backend(given: Mapping[str, Any]) -> LeaseBackend | ClaimOnlyBackend:
    backend = given.get("BACKEND")
    if backend is None:
        raise ConfigurationError(
            "BACKEND is missing: give the store's URL, such as 'redis://localhost:6379/0' or 'sqlite:////srv/jobs.db'."
        )
    if isinstance(backend, str) and "://" in backend:
        return open_backend(backend, prefix=given.get("PREFIX"))
    if given.get("PREFIX") is not None:
        raise ConfigurationError("PREFIX goes with the URL of a Redis; a backend object has its own.")
    if isinstance(backend, str):
        if not all(part.isidentifier() for part in backend.split(".")):
            # Not what it is: a URL with a slip of the pen may hold a password.
            raise ConfigurationError(
                "BACKEND must be a dotted path such as 'package.module.name', or a URL such as"
                " 'redis://localhost:6379/0'."
            )
        backend = by_dotted_path(backend, "BACKEND")
    if not isinstance(backend, (LeaseBackend, ClaimOnlyBackend)) and callable(backend):
        backend = _made(backend)
    if not isinstance(backend, (LeaseBackend, ClaimOnlyBackend)):
        raise ConfigurationError(
            "BACKEND must be a URL, or a backend object or a callable that makes one, or the dotted path of either;"
            f" not {type(backend).__name__}."
        )
    return backend


def _made(maker: Callable[..., Any]) -> Any:
    signature = signature_of(maker)
    if signature is not None and not can_be_called(signature):
        raise ConfigurationError(f"BACKEND must be made by a call without arguments; {named(maker)} takes {signature}.")
    return maker()
