"""A job: a name, a schedule, a handler and options. A frozen value; nothing here runs it."""

from __future__ import annotations

import functools
import inspect
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anarchon.callables import can_be_called, named, refuse_deferred, signature_of
from anarchon.errors import ConfigurationError
from anarchon.options import JobOptions

if TYPE_CHECKING:
    from anarchon.context import RunContext
    from anarchon.schedules import Schedule

__all__ = ["Handler", "Job", "check_job_name", "make_call"]

Handler = Callable[["RunContext"], object] | Callable[[], object]

_LONGEST_NAME = 200


@dataclass(frozen=True)
class Job:
    """A registered job.

    Attributes:
        call: the handler, made to take a context whether it wants one or not.
    """

    name: str
    schedule: Schedule
    handler: Handler
    call: Callable[[RunContext], object]
    options: JobOptions


def check_job_name(name: object) -> str:
    """Returns the name, if every store, key and log line can hold it.

    Raises:
        ConfigurationError: not text, empty, over 200 characters, or with white space, control characters or braces
            (a Redis cluster reads braces in a key as the part that chooses the node).
    """
    if not isinstance(name, str):
        raise ConfigurationError(f"A job's name must be text, not {type(name).__name__}.")
    if not name:
        raise ConfigurationError("A job's name must not be empty.")
    if len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"A job's name must have at most {_LONGEST_NAME} characters, not {len(name)}.")
    for character in name:
        if character.isspace() or character in "{}" or unicodedata.category(character) in ("Cc", "Cs"):
            raise ConfigurationError(
                f"A job's name must not have white space, control characters or braces: {name!r} has {character!r}."
            )
    return name


def make_call(handler: object, job: str) -> Callable[[Any], object]:
    """Makes a handler callable with the context, whether it takes it or nothing.

    A handler that can be called with nothing is, unless its first parameter is called ``ctx`` or ``context`` or it
    takes any arguments (``*args``): an optional parameter that means something else must not be handed the context.

    Raises:
        ConfigurationError: not callable, a coroutine or generator function, or it needs other arguments.
    """
    if not callable(handler):
        raise ConfigurationError(f"The handler of job {job!r} must be callable, not {type(handler).__name__}.")
    refuse_deferred(handler, f"The handler of job {job!r}")
    signature = signature_of(handler)
    if signature is None and isinstance(handler, functools.partial) and signature_of(handler.func) is not None:
        raise ConfigurationError(f"The handler of job {job!r} is a partial whose function cannot take its arguments.")
    if signature is None:
        # Some callables of C say nothing of their arguments; the context is what the docs promise.
        return handler
    if can_be_called(signature, None):
        if not can_be_called(signature) or _wants_context(signature):
            return handler
        return functools.partial(_without_context, handler)
    if can_be_called(signature):
        return functools.partial(_without_context, handler)
    raise ConfigurationError(
        f"The handler of job {job!r} must take the context or nothing;"
        f" {named(handler)}{signature} takes something else."
    )


def _without_context(handler: Callable[[], object], context: object) -> object:
    return handler()


def _wants_context(signature: inspect.Signature) -> bool:
    first = next(iter(signature.parameters.values()))
    return first.name in ("ctx", "context") or first.kind is inspect.Parameter.VAR_POSITIONAL
