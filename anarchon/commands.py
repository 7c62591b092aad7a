"""What the commands do, for whichever command line asks: anarchon's own, Django's ``manage.py``, or Flask's.

Each is handed a scheduler that somebody else found, prints its answer to an ``Output``, and returns the exit code.
``ending`` goes around one: it says how the process ends where something was wrong.
"""

from __future__ import annotations

import difflib
import enum
import json
import logging
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from anarchon.durations import Duration
from anarchon.errors import BackendError, ConfigurationError, JobNotRegistered, RunRefused
from anarchon.output import Output, OutputError
from anarchon.records import RunRecord
from anarchon.scheduler import Scheduler
from anarchon.tables import active_table, history_table, jobs_table, record_list
from anarchon.targets import UsageError
from anarchon.web.tokens import find_token

if TYPE_CHECKING:
    from anarchon.web.server import WorkerServer

__all__ = [
    "ERRORS",
    "Exit",
    "active",
    "ending",
    "exit_code",
    "forget",
    "history",
    "jobs",
    "run",
    "say",
    "sigterm_ends",
    "worker",
]


class Exit(enum.IntEnum):
    """What the process says at its end; docs/cli.rst has the table. Signals end it with 128 and their number."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 3
    REFUSED = 4
    STORE = 5
    NOT_REGISTERED = 6
    OUTPUT = 7


_OF_STATUS = {"success": Exit.SUCCESS, "failed": Exit.FAILED, "interrupted": Exit.INTERRUPTED}

_OF_ERROR: dict[type[Exception], Exit] = {
    UsageError: Exit.USAGE,
    ConfigurationError: Exit.USAGE,
    RunRefused: Exit.REFUSED,
    BackendError: Exit.STORE,
    JobNotRegistered: Exit.NOT_REGISTERED,
    OutputError: Exit.OUTPUT,
}

#: What a command may raise that one line tells; ``exit_code`` has the code for each.
ERRORS = tuple(_OF_ERROR)


def exit_code(error: Exception) -> Exit:
    """The code that a command ends with which one of ``ERRORS`` has ended."""
    return next(code for kind, code in _OF_ERROR.items() if isinstance(error, kind))


def ending(output: Output, command: Callable[[], int]) -> int:
    """Runs one command; returns its exit code, and says in a line what was wrong."""
    try:
        code = command()
        output.flush()
        return code
    except ERRORS as error:
        _complain(error)
        return exit_code(error)
    except BrokenPipeError:
        # Whoever read has seen enough.
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        output.let_go()


def worker(
    scheduler: Scheduler,
    named: str,
    stop_timeout: Duration = "25s",
    verbose: bool = False,
    http: str | None = None,
    token_file: str | None = None,
) -> int:
    """Runs the jobs until SIGTERM or SIGINT.

    Args:
        named: what the scheduler is called where it was found.
        verbose: logs every skipped slot, too.
        http: ``HOST:PORT`` at which questions and manual runs are answered meanwhile. None: nowhere.
        token_file: where the token for that stands. None: in ``ANARCHON_TOKEN`` of the environment, if anywhere.
    """
    jobs = scheduler.jobs()
    if not jobs:
        raise UsageError(f"{named} has no jobs, and a worker without jobs has nothing to do.")
    log = _log_events(scheduler, logging.DEBUG if verbose else logging.INFO)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    server = _http_server(scheduler, http, token_file)

    def answer() -> None:
        # Not before: who is answered may take it that the jobs are started, and that SIGTERM stops them in order.
        if server is not None:
            server.start()
            log.info("Answers %s at %s.", server.whom, server.url)

    ended = False
    try:
        log.info("%s runs %s of %s until SIGTERM or SIGINT.", scheduler.instance_id, count, named)
        ended = scheduler._run_forever(stop_timeout, answer)
    finally:
        if server is not None:
            # Whoever waits for a run that has not ended by now cannot be answered.
            server.close(drain="5s" if ended else "500ms")
            # A question that came after the stop has opened a connection again.
            scheduler.stop("0s")
    log.info("Stopped: %s.", "every run has ended" if ended else "not every run ended in time")
    return Exit.SUCCESS if ended else Exit.FAILED


def run(output: Output, scheduler: Scheduler, name: str, as_json: bool = False, verbose: bool = False) -> int:
    """Runs one job in this process, and prints its record.

    Args:
        verbose: logs every event, where the log is this command's to set.
    """
    if output.owns_process:
        _log_events(scheduler, logging.DEBUG if verbose else logging.WARNING)
    try:
        with _opened(scheduler, output.owns_process), sigterm_ends() if output.owns_process else nullcontext():
            record = scheduler.run_now(name)
    except (KeyboardInterrupt, SystemExit):
        say(f"anarchon: {name} was told to stop, and is recorded as interrupted if it heeded that.")
        raise
    _print(output, as_json, record, lambda: record_list(record, scheduler.timezone))
    return _OF_STATUS[record.status]


def jobs(output: Output, scheduler: Scheduler, named: str, as_json: bool = False) -> int:
    """Lists what is registered."""
    with _opened(scheduler, output.owns_process):
        found = scheduler.jobs()
        _print(output, as_json, found, lambda: jobs_table(found))
        if not found:
            say(f"{named} has no jobs.")
    return Exit.SUCCESS


def history(output: Output, scheduler: Scheduler, name: str, limit: int = 20, as_json: bool = False) -> int:
    """Lists the newest attempts of a job, registered or not."""
    with _opened(scheduler, output.owns_process):
        records = scheduler.history(name, limit)
        _print(output, as_json, records, lambda: history_table(records, scheduler.timezone, _screen()))
        if not records:
            say(f"Nothing is recorded of {name!r} in {scheduler.backend!r}.{_nearest(scheduler, name)}")
    return Exit.SUCCESS


def active(output: Output, scheduler: Scheduler, name: str, as_json: bool = False) -> int:
    """Lists the runs of a job that have not finished."""
    with _opened(scheduler, output.owns_process):
        runs = scheduler.active(name)
        _print(output, as_json, runs, lambda: active_table(runs, scheduler.timezone))
        if not runs:
            say(f"No run of {name!r} is unfinished in {scheduler.backend!r}.{_nearest(scheduler, name)}")
    return Exit.SUCCESS


def forget(scheduler: Scheduler, name: str, yes: bool, owns_process: bool = True) -> int:
    """Removes all that the store keeps of a job; asks first, unless ``yes``.

    Args:
        owns_process: as of an ``Output``.
    """
    with _opened(scheduler, owns_process):
        # One that is registered is refused below, and need not be asked about.
        known = name in [job.name for job in scheduler.jobs()]
        if not known and not yes and not _confirmed(scheduler, name):
            return Exit.FAILED
        scheduler.forget(name)
        say(f"All that the store kept of {name!r} is removed.")
    return Exit.SUCCESS


def _print(output: Output, as_json: bool, found: Any, for_people: Callable[[], str]) -> None:
    """What was found, as one JSON document or for people; an empty table is left to those who can say more."""
    if as_json:
        values = found.to_dict() if isinstance(found, RunRecord) else [one.to_dict() for one in found]
        output.tell(json.dumps(values, indent=2))
    elif found:
        output.tell(for_people())


def say(text: str, end: str = "\n") -> None:
    """To people, beside the answer, which is none the worse where it cannot be said."""
    with suppress(OSError, ValueError):
        print(text, end=end, file=sys.stderr, flush=True)


def _complain(error: Exception) -> None:
    theirs = error.__cause__ if isinstance(error, UsageError) else None
    # A traceback that does not reach into the target's code would only show ours.
    if theirs is not None and (theirs.__traceback__ is not None or isinstance(theirs, SyntaxError)):
        with suppress(Exception):
            # One of theirs may be made so that it cannot even be shown.
            traceback.print_exception(theirs)
    say(f"anarchon: {error}")


@contextmanager
def _opened(scheduler: Scheduler, ours: bool) -> Iterator[Scheduler]:
    """Closes the connections of one that was never started; not of one that is not ours, for it may be at work."""
    try:
        yield scheduler
    finally:
        if ours:
            scheduler.stop("0s")


@contextmanager
def sigterm_ends() -> Iterator[None]:
    """While inside, SIGTERM ends the process as Ctrl-C does: what is going on is interrupted, and cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        # None: it was not Python that had set it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _log_events(scheduler: Scheduler, level: int) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """Logs the scheduler's events to where its owner has set, else to stderr."""
    # Does nothing where the target's module has set up logging by itself.
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    events = scheduler._events
    if events._log is None:
        events._log = logging.getLogger("anarchon")
    logger = events._log.logger if isinstance(events._log, logging.LoggerAdapter) else events._log
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
    return events._log


def _http_server(scheduler: Scheduler, http: str | None, token_file: str | None) -> WorkerServer | None:
    """What will answer at ``http``, where it listens already; None where that is none."""
    if http is None:
        if token_file is not None:
            raise UsageError("--token-file is for those who ask over HTTP: it goes with --http.")
        return None
    try:
        from anarchon.web.server import WorkerServer
    except ModuleNotFoundError as error:
        if error.name not in ("waitress", "werkzeug"):
            raise
        raise UsageError("--http needs waitress and Werkzeug: pip install 'anarchon[web]'.") from None
    return WorkerServer(scheduler, http, find_token(token_file))


def _confirmed(scheduler: Scheduler, name: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"There is nobody to ask whether {name!r} shall be forgotten: say --yes.")
    running = [run.instance_id for run in scheduler.active(name) if run.lease_left > 0]
    note = "".join(f" It is running on {instance_id} right now." for instance_id in running)
    say(f"Remove all that the store keeps of {name!r}, its history included?{note} [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _nearest(scheduler: Scheduler, name: str) -> str:
    known = [job.name for job in scheduler.jobs()]
    nearest = [] if name in known else difflib.get_close_matches(name, known, n=1)
    return "".join(f" Did you mean {job!r}?" for job in nearest)


def _screen() -> int | None:
    """How wide the screen is; None where a pipe or a file reads."""
    # A standard output that is closed is None.
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
