"""The site's scheduler: made of the settings at its first use, given its jobs, and started where the site serves."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, cast

from django.apps import apps
from django.conf import settings
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import LazyObject
from django.utils.module_loading import autodiscover_modules

from anarchon.clock import SystemClock
from anarchon.contrib.django.settings import errors_of_permission, option, read
from anarchon.contrib.servers import when_serving
from anarchon.contrib.servers.stack import command
from anarchon.scheduler import Scheduler

__all__ = ["begin", "errors", "scheduler"]

if TYPE_CHECKING:
    from typing_extensions import Self

_logger = logging.getLogger("anarchon")


class _Settings:
    """What has been made of the settings, once in a process."""

    def __init__(self) -> None:
        # Held while modules that a dotted path names are imported, which may come back here on this thread.
        self._lock = threading.RLock()
        self._reading = False
        self._read: tuple[Scheduler | None, list[Error]] | None = None

    def read(self) -> tuple[Scheduler | None, list[Error]]:
        with self._lock:
            if self._reading:
                raise ImproperlyConfigured(
                    "A module that ANARCHON names for BACKEND or AROUND_RUN uses the scheduler, which is not made"
                    " before that module has been imported. Keep what is named apart from the jobs."
                )
            if self._read is None:
                self._reading = True
                try:
                    self._read = read(getattr(settings, "ANARCHON", None))
                finally:
                    self._reading = False
            return self._read


_settings = _Settings()


def errors() -> list[Error]:
    """What is wrong with the settings; the system checks show it."""
    return _settings.read()[1] or errors_of_permission()


class _SiteScheduler(LazyObject):  # type: ignore[type-arg]
    """Stands for the scheduler, so that a module may import it before the settings are known to be right."""

    def _setup(self) -> None:
        self._wrapped = _made()

    # Python looks these up on the class, where Django passes on only its own choice of such methods.

    def __enter__(self) -> Self:
        _made().__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        _made().__exit__(*exc_info)

    def __repr__(self) -> str:
        # Nothing is made for a debugger's sake.
        found = _settings._read
        return repr(found[0]) if found and found[0] else "<Scheduler of this site, not made yet>"


#: The site's scheduler. Where the settings are wrong its first use raises ImproperlyConfigured.
scheduler: Scheduler = cast(Scheduler, _SiteScheduler())


def begin() -> None:
    """Finds the jobs, and starts them in a process that serves. Called once the apps' models are there.

    Raises:
        ImproperlyConfigured: the settings are wrong, in a process that runs no system checks, such as a web server's.
    """
    made, wrong = _settings.read()
    if made is not None:
        module = option("JOBS_MODULE")
        if module is not None:
            autodiscover_modules(module)
        wrong = errors_of_permission()
    if not wrong:
        if option("AUTOSTART"):
            _autostart()
    elif command() is None:
        raise _improper(wrong)
    # A command runs the checks before it does anything, and they say it better than a traceback.


def _made() -> Scheduler:
    made, wrong = _settings.read()
    if made is None:
        raise _improper(wrong)
    return made


def _improper(errors: list[Error]) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        " ".join(f"{error.obj}: {error.msg}" + (f" {error.hint}" if error.hint else "") for error in errors)
    )


def _autostart() -> None:
    why_not = when_serving(scheduler.start, _wait_until_ready)
    if why_not is not None:
        # Nobody expects a command that serves nothing to run jobs.
        level = logging.INFO if command() is None else logging.DEBUG
        _logger.log(level, "AUTOSTART: no job runs in this process. %s", why_not)


def _wait_until_ready() -> None:
    """Until every app is: a handler may need any of them."""
    clock = SystemClock()
    clock.wait(apps.ready_event, None)
