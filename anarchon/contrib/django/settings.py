"""``settings.ANARCHON``: checked as a whole, and made into a scheduler. Starts nothing and connects to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured

from anarchon.backends import ClaimOnlyBackend, LeaseBackend
from anarchon.backends.memory import MemoryBackend
from anarchon.callables import check_takes
from anarchon.contrib.django.connections import around_run, own_connections
from anarchon.contrib.settings import SCHEDULER_SETTINGS, by_dotted_path, make_scheduler, unknown_settings
from anarchon.durations import parse_duration
from anarchon.errors import ConfigurationError, shown
from anarchon.options import option_names, parse_options, resolve_options
from anarchon.scheduler import Scheduler

__all__ = ["SETTINGS", "errors_of_permission", "option", "permission", "read"]

#: What this app reads itself, with what holds where the site says nothing.
_OWN: dict[str, Any] = {"AUTOSTART": False, "JOBS_MODULE": "jobs", "PERMISSION": None, "STOP_TIMEOUT": "25s"}

SETTINGS = (*SCHEDULER_SETTINGS, *_OWN)

_EXAMPLE = "{'BACKEND': 'redis://localhost:6379/0'}"


def option(name: str) -> Any:
    """One of the settings that are not the scheduler's, or its default, as it is now: a test may override it.

    Raises:
        ImproperlyConfigured: ``ANARCHON`` is no dictionary.
    """
    given = getattr(settings, "ANARCHON", None)
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(_no_mapping(given).msg)
    return given.get(name, _OWN[name])


def permission() -> Callable[[Any], object] | None:
    """What PERMISSION names: who may ask over HTTP; None where the site says nothing.

    Raises:
        ConfigurationError: it is nothing that takes a request.
    """
    found: Callable[[Any], object] | None = _callable("PERMISSION", option("PERMISSION"), "the request")
    return found


def errors_of_permission() -> list[Error]:
    """What is wrong with PERMISSION. To be asked when the jobs are there: its module may well import them."""
    try:
        permission()
    except ConfigurationError as error:
        return [_wrong("PERMISSION", error, "anarchon.E004")]
    return []


def read(given: object) -> tuple[Scheduler | None, list[Error]]:
    """Makes the scheduler that ``ANARCHON`` describes, or finds everything that is wrong with it.

    Returns:
        The scheduler and no error; or None and the errors, as Django's system checks show them. Whatever a module that
        a dotted path names raises at its import comes as it is.
    """
    if not isinstance(given, Mapping):
        return None, [_no_mapping(given)]
    errors = [_unknown(name, nearest) for name, nearest in unknown_settings(list(given), SETTINGS).items()]
    # Made once: a callable that BACKEND names may do more than once is good for.
    backend = None
    try:
        backend = make_scheduler({name: given.get(name) for name in ("BACKEND", "PREFIX")}).backend
    except ConfigurationError as error:
        errors.append(_wrong("BACKEND", error, "anarchon.E003"))
    # The history alone is not where a failure is looked for, and does not know of a store that is away.
    given = {"TIMEZONE": settings.TIME_ZONE, "LOG": True, **given}
    errors += _wrong_values(given)
    if errors or backend is None:
        return None, errors
    return _made(given, backend), []


def _made(given: Mapping[str, Any], backend: LeaseBackend | ClaimOnlyBackend) -> Scheduler:
    theirs = _callable("AROUND_RUN", given.get("AROUND_RUN"), "the context")
    scheduler = make_scheduler({**given, "BACKEND": backend, "PREFIX": None}, around_run=around_run(theirs))
    scheduler._events.around = own_connections
    return scheduler


def _wrong_values(given: Mapping[str, Any]) -> Iterator[Error]:
    """Each value by itself, so that all that are wrong are told at once; then those that are tied to each other."""
    options = {name: given[name.upper()] for name in option_names() if name.upper() in given}
    tied = True
    for name in SETTINGS:
        if name not in given:
            continue
        try:
            _check(name, given[name])
        except ConfigurationError as error:
            tied = tied and name.lower() not in options
            hint = "Where ANARCHON has none, it is settings.TIME_ZONE." if name == "TIMEZONE" else None
            yield _wrong(name, error, "anarchon.E004", hint)
    if tied:
        try:
            resolve_options(parse_options(options), {})
        except ConfigurationError as error:
            yield Error(str(error), obj="ANARCHON", id="anarchon.E005")


def _check(name: str, value: Any) -> None:
    if name.lower() in option_names():
        parse_options({name.lower(): value})
    elif name in ("TIMEZONE", "INSTANCE_ID", "LOG"):
        make_scheduler({"BACKEND": MemoryBackend(), name: value})
    elif name == "AROUND_RUN":
        _callable(name, value, "the context")
    elif name == "PERMISSION":
        # A path is looked up later: see errors_of_permission.
        if not isinstance(value, str):
            _callable(name, value, "the request")
    elif name == "STOP_TIMEOUT":
        if value is not None:
            parse_duration(value, name)
    elif name == "AUTOSTART":
        if not isinstance(value, bool):
            # "False" from an environment variable would be true.
            raise ConfigurationError(f"AUTOSTART must be True or False, not {shown(value)}.")
    elif name == "JOBS_MODULE" and value is not None and not (isinstance(value, str) and value.isidentifier()):
        raise ConfigurationError(f"JOBS_MODULE must be a module's name, such as 'jobs', or None, not {shown(value)}.")


def _callable(name: str, value: Any, argument: str) -> Any:
    if isinstance(value, str):
        value = by_dotted_path(value, name)
    if value is not None:
        check_takes(value, name, argument)
    return value


def _no_mapping(given: object) -> Error:
    # Not what it is: that may be a URL with a password.
    message = "is missing." if given is None else f"must be a dictionary, not {type(given).__name__}."
    hint = f"Give the store, such as ANARCHON = {_EXAMPLE}"
    return Error(f"The setting ANARCHON {message}", hint=hint, obj="ANARCHON", id="anarchon.E001")


def _unknown(name: object, nearest: str | None) -> Error:
    hint = f"Did you mean {nearest!r}?" if nearest else f"Known are {', '.join(sorted(SETTINGS))}."
    return Error("Nobody reads this setting.", hint=hint, obj=f"ANARCHON[{shown(name)}]", id="anarchon.E002")


def _wrong(name: str, error: ConfigurationError, id: str, hint: str | None = None) -> Error:
    return Error(str(error), hint=hint, obj=f"ANARCHON[{name!r}]", id=id)
