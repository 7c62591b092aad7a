"""Who is told what happened. Listeners run on the thread that tells, one after another; none can harm a run."""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
from collections.abc import Callable
from typing import Union

from anarchon.callables import check_takes
from anarchon.errors import ConfigurationError, error_text, shown
from anarchon.records import Event, iso
from anarchon.threads import end_forked_child

__all__ = ["EVENT_TYPES", "Events", "Listener", "Log", "check_event_type"]

Listener = Callable[[Event], object]
Log = Union[bool, None, logging.Logger, "logging.LoggerAdapter[logging.Logger]"]

EVENT_TYPES = ("start", "success", "failure", "interrupted", "skip", "error")

_LEVELS = {"start": logging.INFO, "success": logging.INFO, "skip": logging.DEBUG}


class Events:
    """The listeners of one scheduler. Events may be told on any thread; listeners come and go one at a time.

    Args:
        log: True for the logger ``anarchon``, or a logger; None or False: events are not logged.
    """

    def __init__(self, log: Log = None) -> None:
        if log is True:
            log = logging.getLogger("anarchon")
        elif log is False:
            log = None
        elif log is not None and not isinstance(log, (logging.Logger, logging.LoggerAdapter)):
            raise ConfigurationError(f"log must be True, a Logger or None, not {type(log).__name__}.")
        self._log = log
        #: Entered around every listener call, on its thread: where a framework's part closes what a listener opened.
        self.around: Callable[[Event], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        # Replaced, never changed: emit walks it without a lock.
        self._listeners: dict[str, tuple[Listener, ...]] = {}

    def on(self, type: str, listener: Listener) -> None:
        """Adds a listener; the same one twice is told twice."""
        check_event_type(type)
        check_takes(listener, f"The listener of {type!r} events", "the event")
        self._listeners = {**self._listeners, type: (*self._listeners.get(type, ()), listener)}

    def off(self, type: str, listener: Listener) -> None:
        """Removes a listener that was added; nothing happens where it was not."""
        check_event_type(type)
        listeners = list(self._listeners.get(type, ()))
        if listener in listeners:
            listeners.remove(listener)
            self._listeners = {**self._listeners, type: tuple(listeners)}

    def emit(self, event: Event) -> None:
        """Writes the event to the log and tells every listener of its type. Whatever one raises is logged."""
        listeners = self._listeners.get(event.type, ())
        for listener in listeners if self._log is None else (self._write, *listeners):
            try:
                with self.around(event):
                    _call(listener, event)
            except BaseException:
                self._complain(event)

    def _write(self, event: Event) -> None:
        assert self._log is not None
        self._log.log(
            _LEVELS.get(event.type, logging.WARNING),
            "%s",
            describe(event),
            # A handler's traceback is worth its lines. A store that is away is not: its one line says all.
            exc_info=event.exception if event.type == "failure" else None,
        )

    def _complain(self, event: Event) -> None:
        # A logger with a filter that raises is beyond help.
        with contextlib.suppress(BaseException):
            (self._log or logging.getLogger("anarchon")).exception("A listener of %r events raised.", event.type)


def _call(listener: Listener, event: Event) -> None:
    home = os.getpid()
    try:
        listener(event)
    except BaseException as error:
        end_forked_child(home, error)
        raise
    # Before anything of the parent's is left, such as its database connections by ``around``.
    end_forked_child(home)


def check_event_type(type: object) -> None:
    """Refuses what is no event's type, with the nearest one that is.

    Raises:
        ConfigurationError: not one of ``EVENT_TYPES``.
    """
    if type not in EVENT_TYPES:
        nearest = difflib.get_close_matches(str(type), EVENT_TYPES, n=1)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigurationError(f"Unknown event {shown(type)}: expected one of {', '.join(EVENT_TYPES)}.{hint}")


def describe(event: Event) -> str:
    """One line for people."""
    words = [event.job or "anarchon", event.type]
    if event.operation:
        words.append(f"in {event.operation}")
    if event.reason:
        words.append(f"({event.reason})")
    if event.count is None:
        words.append("and more, uncounted slots")
    elif event.count > 1:
        words.append(f"and {event.count - 1} more slots")
    if event.slot is not None:
        words.append(f"slot={iso(event.slot)}")
    for name in ("attempt", "trigger", "fence", "holder"):
        value = getattr(event, name)
        if value is not None:
            words.append(f"{name}={value}")
    if event.record is not None:
        words.append(f"duration={event.record.duration:.3f}s")
    error = event.record.error if event.record else event.exception and error_text(event.exception)
    if error:
        words.append(f"error={error.partition(chr(10))[0]}")
    return " ".join(words)
