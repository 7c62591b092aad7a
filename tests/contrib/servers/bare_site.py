"""A bare WSGI application with a job; what it does, and in which process, it writes into a file of lines.

``BARE_SITE`` in the environment says in JSON: ``log``, the file; ``url`` and ``prefix`` of the store; ``job``, ``tick``
(ends at once), ``waits`` (until told to stop) or ``computes`` (until another has taken it over; no green thread has a
turn); ``every``, how often, and its ``options``; ``hooks``, what else of the site wants to be told of uWSGI's forks.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from anarchon import Event, RunContext, Scheduler, open_backend, process
from anarchon.contrib.servers import when_serving

# Two seconds may be too few on a busy machine for a run that heeds its stop. Less than uWSGI's mercy in its tests.
process._EXIT_GRACE_MS = 8_000

GIVEN = json.loads(os.environ["BARE_SITE"])
_file = os.open(GIVEN["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

logging.basicConfig(level=logging.WARNING, format="%(process)d %(levelname)s %(message)s")


def write(what: str, **more: Any) -> None:
    """One write a line, so that each is whole whoever writes."""
    line = {"what": what, "pid": os.getpid(), "instance": scheduler.instance_id, **more}
    os.write(_file, json.dumps(line).encode() + b"\n")


scheduler = Scheduler(open_backend(GIVEN["url"], prefix=GIVEN["prefix"]), jitter=0)


def tick(ctx: RunContext) -> None:
    write("begin", slot=ctx.slot.timestamp(), name=ctx.instance_id)


def waits(ctx: RunContext) -> None:
    write("begin", slot=ctx.slot.timestamp(), name=ctx.instance_id)
    ctx.signal.wait()
    ctx.raise_if_cancelled()


def computes(ctx: RunContext) -> None:
    write("begin", slot=ctx.slot.timestamp(), name=ctx.instance_id, attempt=ctx.attempt, fence=ctx.fence)
    if ctx.attempt == 1:
        from gevent import monkey

        # The real one does not let another green thread run, and leaves the machine to others.
        sleep = monkey.get_original("time", "sleep")
        log = os.open(GIVEN["log"], os.O_RDONLY)
        while b'"attempt": 2' not in os.pread(log, 1_000_000, 0):
            sleep(0.02)
        os.close(log)
        write("computed")


handler = {"tick": tick, "waits": waits, "computes": computes}[GIVEN["job"]]
scheduler.every("job", GIVEN["every"], handler, **GIVEN["options"])


@scheduler.on("skip")
def skipped(event: Event) -> None:
    if event.reason in ("late", "overlap") and event.slot is not None:
        write("passed-over", slot=event.slot.timestamp())


def start() -> None:
    write("start", thread=threading.current_thread().name, daemon=threading.current_thread().daemon)
    scheduler.start()


def want_hooks(*wanted: str) -> None:
    """Sets hooks of the site's own, such as those of a library that it uses."""
    for want in wanted:
        if want in GIVEN["hooks"]:
            if want.endswith("own"):
                sys.modules["uwsgi"].post_fork_hook = lambda: write("forked", by="own")  # type: ignore[attr-defined]
            else:
                import uwsgidecorators

                uwsgidecorators.postfork(lambda: write("forked", by="decorated"))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Says in which process it is; ``/fork`` forks that process and waits for the child to end."""
    if environ["PATH_INFO"] == "/fork":
        child = os.fork()
        if not child:
            write("child", started=scheduler._engine is not None and scheduler._engine.started)
            os._exit(0)
        os.waitpid(child, 0)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


write("imported")
want_hooks("decorated", "own")
ready = threading.Event()
write("told", sentence=when_serving(start, ready.wait))
want_hooks("decorated-later")
ready.set()

if __name__ == "__main__":
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", 0, application, use_reloader="--reload" in sys.argv, extra_files=sys.argv[1:])
