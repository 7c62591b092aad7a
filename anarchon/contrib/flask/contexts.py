"""An app context around whatever of the app's is called on a thread of the library's.

A run's thread has none of its own, and is never one that serves a request: each run has a fresh app context, its own
``g`` with it, and no request. The teardown functions are called when it ends, as at the end of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from flask import Flask

from anarchon.context import RunContext
from anarchon.executor import AroundRun
from anarchon.records import Event

__all__ = ["in_context_of", "listener_in_context_of"]


def in_context_of(app: Flask, own: AroundRun | None) -> AroundRun:
    """Makes what is entered around each run: an app context, and in it what the app itself wants around its runs.

    A teardown function that raises makes the run a failure: what it was to do, such as to commit, is not done.
    """

    @contextmanager
    def around_run(context: RunContext) -> Iterator[None]:
        with app.app_context(), own(context) if own is not None else nullcontext():
            yield

    return around_run


def listener_in_context_of(app: Flask, listener: Callable[[Event], object]) -> Callable[[Event], object]:
    """The same for a listener, which is told of a run before and after it."""

    def told(event: Event) -> None:
        with app.app_context():
            listener(event)

    return told
