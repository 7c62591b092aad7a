"""What the extension was asked to register: checked when it is asked, and done on each app that it is given.

What does not hang on an app's config is refused at once. The rest, such as a heartbeat too long for the lease that
the config gives, is refused when the two meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flask import Flask

from anarchon.errors import ConfigurationError
from anarchon.job import check_job_name
from anarchon.options import parse_options, resolve_options
from anarchon.scheduler import Scheduler

__all__ = ["Registration", "Registry", "check_options"]


@dataclass(frozen=True)
class Registration:
    """One call of ``every``, ``cron`` or ``on``.

    Attributes:
        job: the job's name; None for a listener.
        call: makes it, on an app's scheduler.
    """

    job: str | None
    call: Callable[[Flask, Scheduler], object]

    def do(self, app: Flask, scheduler: Scheduler) -> None:
        """Makes the call for one app.

        Raises:
            ConfigurationError: the app's config, or what is registered on its scheduler alone, contradicts it.
        """
        try:
            self.call(app, scheduler)
        except ConfigurationError as error:
            raise ConfigurationError(f"Job {self.job!r} of app {app.name!r}: {error}") from error


class Registry:
    """All registrations of one extension, in order."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []

    def __iter__(self) -> Iterator[Registration]:
        return iter(list(self._registrations))

    def add(self, registration: Registration) -> None:
        self._registrations.append(registration)

    def check_name(self, name: str) -> None:
        """Refuses a name that no job can have, or that one of this extension has.

        Raises:
            ConfigurationError: one of these.
        """
        check_job_name(name)
        if name in [registration.job for registration in self._registrations]:
            raise ConfigurationError(
                f"A job named {name!r} is registered already. (An app factory that registers its jobs each time it is"
                " called needs an extension of its own: Anarchon(app) inside of it.)"
            )


def check_options(given: Mapping[str, object], beside: tuple[str, ...] = (), interval_ms: int | None = None) -> None:
    """Refuses options that are wrong whatever an app's config says.

    Raises:
        ConfigurationError: an unknown option, a value that is none of what was expected, or two that contradict each
            other.
    """
    own = parse_options(given, beside)
    # What the config may still put right is taken to be right.
    lenient: dict[str, Any] = {"lease": 3 * own["heartbeat"]} if "heartbeat" in own else {}
    if "jitter" in own:
        lenient["max_late"] = own["jitter"] + 1
    resolve_options(lenient, own, interval_ms)
