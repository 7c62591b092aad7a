"""Every error that anarchon raises. ``AnarchonError`` is the root."""

from __future__ import annotations

__all__ = [
    "AnarchonError",
    "BackendError",
    "ConfigurationError",
    "JobNotRegistered",
    "RunInterrupted",
    "RunRefused",
    "error_text",
    "shown",
]


class AnarchonError(Exception):
    """Something went wrong in anarchon."""

    def __init__(self, message: str | None = None) -> None:
        # The docstring is the default message, so that each error says one thing in one place.
        super().__init__(message if message is not None else type(self).__doc__)


class ConfigurationError(AnarchonError, ValueError):
    """An option, a schedule, a job or a store was described wrongly."""


class JobNotRegistered(AnarchonError, LookupError):
    """This scheduler has no job of that name.

    Attributes:
        job: the name asked for.
        nearest: the registered name most like it, or None.
    """

    def __init__(self, job: str, nearest: str | None = None) -> None:
        self.job = job
        self.nearest = nearest
        hint = f" Did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"No job named {job!r} is registered on this scheduler.{hint}")

    def __reduce__(self) -> tuple[type[JobNotRegistered], tuple[str, str | None]]:
        return type(self), (self.job, self.nearest)


class RunRefused(AnarchonError):
    """A manual run met a run of the same job that is still going.

    Attributes:
        job: the job's name.
        holder: the instance id of whoever is running it, or None where that is not known.
        stopping: True where nothing is in the way, but this scheduler stops: another may run it.
    """

    def __init__(self, job: str, holder: str | None = None, why: str | None = None, stopping: bool = False) -> None:
        self.job = job
        self.holder = holder
        self.stopping = stopping
        where = "" if holder is None else f" on {holder!r}"
        super().__init__(why or f"Job {job!r} is already running{where}, and its overlap rule is 'skip'.")

    def __reduce__(self) -> tuple[type[RunRefused], tuple[str, str | None, str, bool]]:
        return type(self), (self.job, self.holder, str(self), self.stopping)


class BackendError(AnarchonError):
    """The store could not be reached, or it refused the call. The driver's own error is chained as the cause."""


class RunInterrupted(AnarchonError):
    """The run was told to stop. Raised by ``ctx.raise_if_cancelled()``.

    Attributes:
        reason: ``stop``, ``timeout`` or ``lease-lost``.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The run was told to stop: {reason}.")

    def __reduce__(self) -> tuple[type[RunInterrupted], tuple[str]]:
        return type(self), (self.reason,)


def shown(value: object, most: int = 80) -> str:
    """A value for a message: its ``repr``, cut to ``most`` characters."""
    try:
        text = repr(value)
    except Exception:
        # What users hand in may have any repr; an int of over 4300 digits has none. The message comes all the same.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 3] + "..."


def error_text(error: BaseException) -> str:
    """An exception as ``"ValueError: ..."``, whatever its own ``__str__`` does: a handler's may raise, too."""
    try:
        text = str(error)
    except BaseException as fault:
        text = f"(its text could not be had: {type(fault).__name__})"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
