"""What can be told of a callable before it is called: whether it does its work when it is, and with which arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from anarchon.errors import ConfigurationError, shown

__all__ = ["can_be_called", "check_takes", "named", "refuse_deferred", "signature_of"]


def check_takes(function: object, what: str, argument: str) -> None:
    """Refuses what cannot be called with one argument, or would do nothing when it is.

    Args:
        what: whose it is, to begin the message with.
        argument: what it is called with, for the message.

    Raises:
        ConfigurationError: not callable, a coroutine or generator function, or it takes something else.
    """
    if not callable(function):
        raise ConfigurationError(f"{what} must be callable, not {shown(function)}.")
    refuse_deferred(function, what)
    signature = signature_of(function)
    if signature is not None and not can_be_called(signature, None):
        raise ConfigurationError(f"{what} must take {argument}; {named(function)}{signature} takes something else.")


def refuse_deferred(function: Callable[..., object], what: str) -> None:
    """Refuses a function whose call only makes something that somebody else would have to run.

    Raises:
        ConfigurationError: a coroutine function, a generator function, or an object whose call is one.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    for candidate in (inner, type(inner).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise ConfigurationError(
                f"{what} is a coroutine function: anarchon calls plain functions on threads."
                f" Wrap it: lambda: asyncio.run({named(inner)}())."
            )
        if inspect.isgeneratorfunction(candidate):
            raise ConfigurationError(f"{what} is a generator function: calling it runs nothing.")


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """Its arguments; None where it does not say, as some callables of C do not."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None


def can_be_called(signature: inspect.Signature, *arguments: object) -> bool:
    """Whether it may be called with just these arguments."""
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def named(function: object) -> str:
    """What people call it."""
    return getattr(function, "__qualname__", type(function).__name__)
