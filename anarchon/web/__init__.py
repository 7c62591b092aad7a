"""Jobs over HTTP: what is asked of a scheduler, and what a worker answers.

``WorkerEndpoint`` is the worker's side, a WSGI application; ``RemoteWorkers`` is the side that asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anarchon.web.endpoint import WorkerEndpoint
    from anarchon.web.remote import RemoteWorkers

__all__ = ["RemoteWorkers", "WorkerEndpoint"]


def __getattr__(name: str) -> Any:
    # Only the worker's side needs Werkzeug, and who reads the answers for a framework needs neither side.
    if name == "RemoteWorkers":
        from anarchon.web.remote import RemoteWorkers

        return RemoteWorkers
    if name == "WorkerEndpoint":
        try:
            from anarchon.web.endpoint import WorkerEndpoint
        except ModuleNotFoundError as error:
            if error.name != "werkzeug":
                raise
            raise ImportError("WorkerEndpoint needs Werkzeug: pip install 'anarchon[web]'.", name="werkzeug") from None
        return WorkerEndpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
