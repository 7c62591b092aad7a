"""When this process serves requests, and so runs jobs: what a framework's automatic start goes by.

Guarantees, of ``when_serving(start, ready)``:

- In every process that serves requests, ``start`` is called once; in no other process is it called at all. The others
  are: a master that loads the application before it forks (gunicorn's ``--preload``, uWSGI), the parent of a reloader,
  uWSGI's mules and spoolers, what a view or a handler forks, and programs that only import the application: management
  commands, shells, tests, task queues, builds of documentation.
- ``start`` comes after ``ready``, on a library thread; what imports the application waits for neither. A gunicorn
  worker has set itself up by then: its user and group are those it is to have.
- It is arranged in the process that asks, and reaches that process and its workers. Nothing of the server is replaced,
  but for hooks that it offers; a hook that was set before is called first.

How each kind of process is known stands in a file of its own: ``gunicorn.py``, ``uwsgi.py``, and ``watch.py`` for
servers that can only be known by their serving, which are those of development.
"""

from __future__ import annotations

from collections.abc import Callable

from anarchon.contrib.servers import gunicorn, uwsgi, watch
from anarchon.contrib.servers.begin import begin
from anarchon.contrib.servers.stack import called, command, tool

__all__ = ["when_serving"]


def when_serving(start: Callable[[], object], ready: Callable[[], object] | None = None) -> str | None:
    """Arranges that ``start`` is called once in every process that serves requests, and nowhere else.

    To be called while the application is made, on the thread that makes it: the server is known by what called it.

    Args:
        start: called on a library thread. What it raises is told to ``threading.excepthook``.
        ready: blocks until the application can take a run; called before, on the same thread. None: it can at once.

    Returns:
        None where this process starts, now or when it serves; else why nothing will be started in this process, a
        sentence for the log. What must be set right by somebody has been logged here as an error.
    """

    def go() -> None:
        begin(start, ready or _at_once)

    if uwsgi.inside():
        return uwsgi.arrange(go)
    if gunicorn.inside():
        return gunicorn.arrange(go)
    if (name := tool()) is not None:
        return f"{name} imports the application, and serves no requests."
    if (name := command()) is not None and name not in watch.COMMANDS:
        return f"The command {name!r} serves no requests."
    if name is None and called(
        ("django.core.wsgi", "get_wsgi_application"), ("django.core.asgi", "get_asgi_application")
    ):
        go()
        return None
    return watch.arrange(go, certain=name is not None)


def _at_once() -> None:
    """Nothing has to be waited for."""
