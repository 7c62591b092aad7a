"""An app's ``ANARCHON_*`` config: read once, by ``init_app``, and checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flask import Config, Request

from anarchon.callables import check_takes
from anarchon.contrib.settings import SCHEDULER_SETTINGS, by_dotted_path, make_scheduler, unknown_settings
from anarchon.durations import Duration, parse_duration
from anarchon.errors import ConfigurationError, shown
from anarchon.executor import AroundRun
from anarchon.scheduler import Scheduler

__all__ = ["Permission", "Settings", "check_permission", "read_settings"]

#: Says of a request whether whoever asks may see the jobs.
Permission = Callable[[Request], bool]

_PREFIX = "ANARCHON_"
_OWN = ("AUTOSTART", "PERMISSION", "STOP_TIMEOUT")
_KNOWN = (*SCHEDULER_SETTINGS, *_OWN)


@dataclass(frozen=True)
class Settings:
    """What the config says.

    Attributes:
        given: all of it, by names without the prefix.
        around_run: what the app wants around each run; None: nothing.
        autostart: whether processes that serve requests run the jobs, too.
        permission: who may ask over HTTP; None: anybody, and that in debug mode alone.
        stop_timeout: how long a worker waits for its runs when it is told to stop.
    """

    given: Mapping[str, Any]
    around_run: AroundRun | None
    autostart: bool
    permission: Permission | None
    stop_timeout: Duration

    def make_scheduler(self, around_run: AroundRun) -> Scheduler:
        """Makes the app's scheduler.

        Events are logged unless the config says otherwise: the history alone is not where a failure is looked for.

        Raises:
            ConfigurationError: a value is none of what was expected.
        """
        try:
            return make_scheduler({"LOG": True, **self.given}, around_run=around_run)
        except ConfigurationError as error:
            raise ConfigurationError(_by_its_key(str(error))) from error


def read_settings(config: Config) -> Settings:
    """Reads an app's config.

    Raises:
        ConfigurationError: a key that nobody reads, with the nearest right one; or a value that is none of what was
            expected. An error inside a module that a dotted path names is raised as it came.
    """
    given = config.get_namespace(_PREFIX, lowercase=False)
    _refuse_unknown(given)
    autostart = given.get("AUTOSTART", False)
    if autostart not in (True, False):
        # 'True', in quotes, is what FLASK_ANARCHON_AUTOSTART=True becomes.
        hint = " In the environment that is true or false, in small letters." if isinstance(autostart, str) else ""
        raise ConfigurationError(f"ANARCHON_AUTOSTART must be True or False, not {shown(autostart)}.{hint}")
    stop_timeout = given.get("STOP_TIMEOUT", "25s")
    parse_duration(stop_timeout, "ANARCHON_STOP_TIMEOUT")
    return Settings(
        given=given,
        around_run=_callable(given, "AROUND_RUN", "the context"),
        autostart=bool(autostart),
        permission=_callable(given, "PERMISSION", "the request"),
        stop_timeout=stop_timeout,
    )


def check_permission(permission: Permission) -> Permission:
    """Refuses what cannot say of a request whether it may.

    Raises:
        ConfigurationError: not callable, a coroutine function (its answer would always count as yes), or it takes
            something else.
    """
    check_takes(permission, "permission", "the request")
    return permission


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    unknown = unknown_settings(given, _KNOWN)
    if unknown:
        said = [
            f"{_PREFIX}{name}" + (f" (did you mean {_PREFIX}{nearest}?)" if nearest else "")
            for name, nearest in unknown.items()
        ]
        expected = ", ".join(_PREFIX + name for name in sorted(_KNOWN))
        raise ConfigurationError(f"The app's config has what nobody reads: {', '.join(said)}. Expected: {expected}.")


def _callable(given: Mapping[str, Any], name: str, argument: str) -> Any:
    value = given.get(name)
    if value is None:
        return None
    key = _PREFIX + name
    if isinstance(value, str):
        value = by_dotted_path(value, key)
    check_takes(value, key, argument)
    return value


def _by_its_key(message: str) -> str:
    """The message, which begins with an option's name, for those who know it by its key: ANARCHON_LEASE for lease."""
    name, space, rest = message.partition(" ")
    if name.strip(":").upper() in SCHEDULER_SETTINGS:
        return f"{_PREFIX}{name.upper()}{space}{rest}"
    return f"The app's {_PREFIX}* config: {message}"
