"""The extension: registers jobs before or after it knows an app, and gives each app a scheduler of its own.

Guarantees:

- What is registered here is registered on every app that the extension is given, whichever comes first.
- Apps do not mix: each has its own scheduler, store and config. The scheduler is in ``app.extensions["anarchon"]``;
  the extension knows its apps by weak references alone, and keeps none alive.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flask import Blueprint, Flask, current_app

from anarchon.callables import check_takes
from anarchon.contrib.flask.blueprint import make_blueprint
from anarchon.contrib.flask.commands import group
from anarchon.contrib.flask.contexts import in_context_of, listener_in_context_of
from anarchon.contrib.flask.loading import until_made
from anarchon.contrib.flask.registry import Registration, Registry, check_options
from anarchon.contrib.flask.settings import Permission, Settings, check_permission, read_settings
from anarchon.contrib.servers import when_serving
from anarchon.durations import Duration
from anarchon.errors import ConfigurationError
from anarchon.events import Listener, check_event_type
from anarchon.job import Handler, make_call
from anarchon.records import ActiveRun, Event, JobInfo, RunRecord
from anarchon.scheduler import Scheduler
from anarchon.schedules import cron, every

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from anarchon.options import GivenOptions

__all__ = ["Anarchon"]

_H = TypeVar("_H", bound=Callable[..., object])
_L = TypeVar("_L", bound=Callable[[Event], object])

_logger = logging.getLogger("anarchon")


class Anarchon:
    """Scheduled jobs for Flask apps.

    Args:
        app: given to ``init_app`` at once; None: later, as app factories do.

    Registering and ``init_app`` belong to the set-up of an app, which Flask has on one thread; everything else may be
    called on any.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._registry = Registry()
        self._apps: weakref.WeakSet[Flask] = weakref.WeakSet()
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Gives the app its scheduler, with all jobs, and the command ``flask anarchon``.

        The config is read here, and not again. With ``ANARCHON_AUTOSTART`` the scheduler starts where the process
        serves requests, once the app has been made; else nothing is started.

        Raises:
            ConfigurationError: the app's ``ANARCHON_*`` config is wrong, or contradicts a job; or the app has a
                scheduler already.
        """
        if "anarchon" in app.extensions:
            raise ConfigurationError(f"App {app.name!r} has its scheduler already: init_app was called twice for it.")
        settings = read_settings(app.config)
        scheduler = settings.make_scheduler(in_context_of(app, settings.around_run))
        for registration in self._registry:
            registration.do(app, scheduler)
        app.extensions["anarchon"] = scheduler
        app.extensions["anarchon.settings"] = settings
        app.cli.add_command(group)
        self._apps.add(app)
        if settings.autostart:
            why_not = when_serving(scheduler.start, until_made())
            if why_not is not None:
                _logger.info("%s", why_not)

    # -- registering

    @overload
    def every(self, name: str, interval: Duration, handler: Handler, **options: Unpack[GivenOptions]) -> Self: ...
    @overload
    def every(self, name: str, interval: Duration, **options: Unpack[GivenOptions]) -> Callable[[_H], _H]: ...
    def every(self, name: str, interval: Duration, handler: Any = None, **options: Any) -> Any:
        """Registers a job at an interval, on every app; all as for ``Scheduler.every``.

        Raises:
            ConfigurationError: a name, interval, handler or option that is none of what was expected, or a name that
                is registered already. What only an app's config makes wrong is refused where the two meet.
        """
        self._registry.check_name(name)
        check_options(options, interval_ms=every(interval).interval_ms)
        return self._register(
            name, handler, lambda scheduler, function: scheduler.every(name, interval, function, **options)
        )

    @overload
    def cron(
        self, name: str, text: str, handler: Handler, *, seconds: bool = False, **options: Unpack[GivenOptions]
    ) -> Self: ...
    @overload
    def cron(
        self, name: str, text: str, *, seconds: bool = False, **options: Unpack[GivenOptions]
    ) -> Callable[[_H], _H]: ...
    def cron(self, name: str, text: str, handler: Any = None, *, seconds: bool = False, **options: Any) -> Any:
        """Registers a job by a cron text, in each app's own time zone; all as for ``Scheduler.cron``.

        Everything else, the errors included, is as for ``every``.
        """
        self._registry.check_name(name)
        check_options(options, beside=("seconds",))
        cron(text, seconds=seconds)
        return self._register(
            name, handler, lambda scheduler, function: scheduler.cron(name, text, function, seconds=seconds, **options)
        )

    @overload
    def on(self, event: str, listener: Listener) -> Self: ...
    @overload
    def on(self, event: str) -> Callable[[_L], _L]: ...
    def on(self, event: str, listener: Any = None) -> Any:
        """Calls ``listener`` with each event of that type, of every app and in its app context; else as
        ``Scheduler.on``.

        Raises:
            ConfigurationError: an unknown event, or a listener that cannot be called with one.
        """
        check_event_type(event)

        def listen(function: Any) -> Any:
            check_takes(function, f"The listener of {event!r} events", "the event")
            self._add(
                Registration(None, lambda app, scheduler: scheduler.on(event, listener_in_context_of(app, function)))
            )
            return function

        if listener is None:
            return listen
        listen(listener)
        return self

    # -- asking: each of these asks the current app's scheduler

    @property
    def scheduler(self) -> Scheduler:
        """The current app's scheduler.

        Raises:
            RuntimeError: there is no current app, or ``init_app`` was not called for it.
        """
        scheduler: Scheduler = self._of_current_app("anarchon")
        return scheduler

    def jobs(self) -> list[JobInfo]:
        """``Scheduler.jobs``."""
        return self.scheduler.jobs()

    def next_run(self, name: str) -> datetime:
        """``Scheduler.next_run``."""
        return self.scheduler.next_run(name)

    @overload
    def run_now(self, name: str) -> RunRecord: ...
    @overload
    def run_now(self, name: str, *, wait: Duration | None) -> RunRecord | None: ...
    def run_now(self, name: str, *, wait: Duration | None = None) -> RunRecord | None:
        """``Scheduler.run_now``: on another thread, in an app context of its own, without a request."""
        return self.scheduler.run_now(name, wait=wait)

    def history(self, name: str, limit: int = 20) -> list[RunRecord]:
        """``Scheduler.history``."""
        return self.scheduler.history(name, limit)

    def last_run(self, name: str) -> RunRecord | None:
        """``Scheduler.last_run``."""
        return self.scheduler.last_run(name)

    def active(self, name: str) -> list[ActiveRun]:
        """``Scheduler.active``."""
        return self.scheduler.active(name)

    def blueprint(self, permission: Permission | None = None) -> Blueprint:
        """Makes a blueprint with the jobs and their runs as JSON, for ``app.register_blueprint``.

        Args:
            permission: takes the request, and returns True for those who may see them; it goes before the
                config's ``ANARCHON_PERMISSION``. None: that one; where there is none either, debug mode alone lets
                anybody in.

        Raises:
            ConfigurationError: a permission that cannot be called with a request.
        """
        return make_blueprint(self, permission and check_permission(permission))

    # -- inside

    @property
    def _settings(self) -> Settings:
        settings: Settings = self._of_current_app("anarchon.settings")
        return settings

    def _of_current_app(self, key: str) -> Any:
        if not current_app:
            raise RuntimeError(
                "There is no current app, and each app has its own scheduler. A request, a job and a command of flask"
                " have one; elsewhere, say 'with app.app_context():', or take app.extensions['anarchon']."
            )
        app = current_app._get_current_object()  # type: ignore[attr-defined]
        if app not in self._apps:
            raise RuntimeError(f"App {app.name!r} has no scheduler of this extension: init_app was not called for it.")
        return app.extensions[key]

    def _register(self, name: str, handler: Any, put: Callable[[Scheduler, Any], object]) -> Any:
        def register(function: Any) -> Any:
            self._registry.check_name(name)
            make_call(function, name)
            self._add(Registration(name, lambda app, scheduler: put(scheduler, function)))
            return function

        if handler is None:
            return register
        register(handler)
        return self

    def _add(self, registration: Registration) -> None:
        for app in list(self._apps):
            registration.do(app, app.extensions["anarchon"])
        self._registry.add(registration)
