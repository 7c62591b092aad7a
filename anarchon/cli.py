"""The command line. Tables for people, ``--json`` for programs, and an exit code that says what happened."""

from __future__ import annotations

import argparse
import difflib
import enum
import io
import json
import logging
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from datetime import datetime
from types import FrameType
from typing import Any

import anarchon
from anarchon import demo
from anarchon.clock import SystemClock
from anarchon.durations import parse_duration, to_ms
from anarchon.errors import BackendError, ConfigurationError, JobNotRegistered, RunRefused, shown
from anarchon.output import Output, OutputError
from anarchon.records import RunRecord
from anarchon.scheduler import Scheduler
from anarchon.schedules import cron
from anarchon.schedules.preview import preview
from anarchon.tables import active_table, history_table, jobs_table, preview_table, record_list
from anarchon.targets import UsageError, load_scheduler, open_target

__all__ = ["Exit", "main"]


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


#: More lines than anybody reads, and no more than a store may be asked for at a time.
_MOST = 1_000_000

_OF_STATUS = {"success": Exit.SUCCESS, "failed": Exit.FAILED, "interrupted": Exit.INTERRUPTED}

_OF_ERROR: dict[type[Exception], Exit] = {
    UsageError: Exit.USAGE,
    ConfigurationError: Exit.USAGE,
    RunRefused: Exit.REFUSED,
    BackendError: Exit.STORE,
    JobNotRegistered: Exit.NOT_REGISTERED,
    OutputError: Exit.OUTPUT,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Where the arguments are wrong, argparse ends the process with 2."""
    output = Output()
    try:
        given = _read(arguments, output)
        with output.alone() if given.json else nullcontext():
            code: int = given.command(given)
            output.flush()
            return code
    except tuple(_OF_ERROR) as error:
        _complain(error)
        return next(code for kind, code in _OF_ERROR.items() if isinstance(error, kind))
    except BrokenPipeError:
        # Whoever read has seen enough.
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        output.let_go()


def _read(arguments: Sequence[str] | None, output: Output) -> argparse.Namespace:
    # argparse prints its help itself, and does not care what becomes of it.
    with redirect_stdout(io.StringIO()) as printed:
        try:
            return _parser().parse_args(arguments, argparse.Namespace(output=output, json=False))
        except SystemExit as end:
            asked = not end.code
    if asked:
        output.tell(printed.getvalue(), end="")
    raise SystemExit(Exit.SUCCESS if asked else Exit.USAGE)


def worker(given: argparse.Namespace) -> int:
    scheduler = load_scheduler(given.target)
    jobs = scheduler.jobs()
    if not jobs:
        raise UsageError(f"{given.target} has no jobs, and a worker without jobs has nothing to do.")
    log = _log_events(scheduler, logging.DEBUG if given.verbose else logging.INFO)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    log.info("%s runs %s of %s until SIGTERM or SIGINT.", scheduler.instance_id, count, given.target)
    ended = scheduler.run_forever(given.stop_timeout)
    log.info("Stopped: %s.", "every run has ended" if ended else "not every run ended in time")
    return Exit.SUCCESS if ended else Exit.FAILED


def run(given: argparse.Namespace) -> int:
    scheduler = load_scheduler(given.target)
    _log_events(scheduler, logging.DEBUG if given.verbose else logging.WARNING)
    try:
        with _sigterm_ends():
            record = scheduler.run_now(given.name)
    except (KeyboardInterrupt, SystemExit):
        _say(f"anarchon: {given.name} was told to stop, and is recorded as interrupted if it heeded that.")
        raise
    finally:
        scheduler.stop("0s")
    _print(given, record, lambda: record_list(record, scheduler.timezone))
    return _OF_STATUS[record.status]


def jobs(given: argparse.Namespace) -> int:
    with _opened(load_scheduler(given.target)) as scheduler:
        found = scheduler.jobs()
        _print(given, found, lambda: jobs_table(found))
        if not found:
            _say(f"{given.target} has no jobs.")
    return Exit.SUCCESS


def history(given: argparse.Namespace) -> int:
    with _opened(open_target(given.target, given.prefix)) as scheduler:
        records = scheduler.history(given.name, given.limit)
        _print(given, records, lambda: history_table(records, scheduler.timezone, _screen()))
        if not records:
            _say(f"Nothing is recorded of {given.name!r} in {scheduler.backend!r}.{_nearest(scheduler, given.name)}")
    return Exit.SUCCESS


def active(given: argparse.Namespace) -> int:
    with _opened(open_target(given.target, given.prefix)) as scheduler:
        runs = scheduler.active(given.name)
        _print(given, runs, lambda: active_table(runs, scheduler.timezone))
        if not runs:
            _say(f"No run of {given.name!r} is unfinished in {scheduler.backend!r}.{_nearest(scheduler, given.name)}")
    return Exit.SUCCESS


def forget(given: argparse.Namespace) -> int:
    with _opened(open_target(given.target, given.prefix)) as scheduler:
        # One that is registered is refused below, and need not be asked about.
        known = given.name in [job.name for job in scheduler.jobs()]
        if not known and not given.yes and not _confirmed(scheduler, given.name):
            return Exit.FAILED
        scheduler.forget(given.name)
        _say(f"All that the store kept of {given.name!r} is removed.")
    return Exit.SUCCESS


def next_slots(given: argparse.Namespace) -> int:
    schedule = cron(given.text, given.timezone, seconds=given.seconds)
    after_ms = SystemClock().now_ms() if given.after is None else given.after
    try:
        previews = preview(schedule, after_ms, given.count)
    except OverflowError:
        raise UsageError(
            f"No slot of {given.text!r} can be told from there: it would lie outside the years 1 to 9999."
        ) from None
    if given.json:
        given.output.tell(json.dumps([found.to_dict(schedule.tzinfo) for found in previews], indent=2))
    else:
        given.output.tell(preview_table(previews, schedule.tzinfo))
    return Exit.SUCCESS


def show_demo(given: argparse.Namespace) -> int:
    with _sigterm_ends():
        return Exit.SUCCESS if demo.play(given.output.tell) else Exit.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anarchon", description="Scheduled jobs: each due slot is run by exactly one of many processes."
    )
    parser.add_argument("--version", action="version", version=f"anarchon {anarchon.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(command: Callable[[argparse.Namespace], int], name: str, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=what)
        added.set_defaults(command=command)
        return added

    def add_target(to: argparse.ArgumentParser, or_url: bool = False, name: bool = True) -> None:
        what = "package.module:scheduler, or a function there that makes one"
        to.add_argument("target", metavar="TARGET", help=f"{what}; or the URL of a store" if or_url else what)
        if name:
            to.add_argument("name", metavar="NAME", help="the job's name")
        if or_url:
            to.add_argument("--prefix", help="of the keys, where TARGET is the URL of a Redis (default: anarchon:)")

    def add_json(to: argparse.ArgumentParser) -> None:
        to.add_argument("--json", action="store_true", help="one JSON document in place of a table")

    command = add(worker, "worker", "run the jobs of a scheduler until SIGTERM or SIGINT")
    add_target(command, name=False)
    command.add_argument(
        "--stop-timeout", type=_duration, default="25s", metavar="25s", help="how long a stop waits for the runs"
    )
    command.add_argument("--verbose", action="store_true", help="log every skipped slot, too")

    command = add(run, "run", "run a job now, in this process, and say how it ended")
    add_target(command)
    add_json(command)
    command.add_argument("--verbose", action="store_true", help="log every event")

    command = add(jobs, "jobs", "list the jobs of a scheduler")
    add_target(command, name=False)
    add_json(command)

    command = add(history, "history", "list the newest attempts of a job, registered or not")
    add_target(command, or_url=True)
    command.add_argument("--limit", type=_count, default=20, metavar="20", help="how many")
    add_json(command)

    command = add(active, "active", "list the runs of a job that have not finished")
    add_target(command, or_url=True)
    add_json(command)

    command = add(forget, "forget", "remove all that the store keeps of a job that is gone from the code")
    add_target(command, or_url=True)
    command.add_argument("--yes", action="store_true", help="do not ask")

    command = add(next_slots, "next", "preview the slots of a cron text, and what clock changes do to them")
    command.add_argument("text", metavar="TEXT", help="such as '0 8 * * 1-5' or @daily")
    command.add_argument("--timezone", default="UTC", metavar="ZONE", help="such as Europe/Athens (default: UTC)")
    command.add_argument("--seconds", action="store_true", help="TEXT has six fields, seconds first")
    command.add_argument("-n", "--count", type=_count, default=10, metavar="10", help="how many slots")
    command.add_argument(
        "--after", type=_instant, metavar="INSTANT", help="ISO 8601, such as 2026-03-28T00:00Z (default: now)"
    )
    add_json(command)

    add(show_demo, "demo", "watch two workers, a kill -9 in the middle of a run, and the takeover, for 15 seconds")
    return parser


def _duration(text: str) -> str:
    try:
        parse_duration(text, "--stop-timeout")
    except ConfigurationError:
        raise argparse.ArgumentTypeError(f"expected a duration such as 500ms, 25s or 1m30s, not {text!r}") from None
    return text


def _count(text: str) -> int:
    # Python takes digits of every script for a number, and gives up on one of over 4300.
    count = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST)) else 0
    if not 1 <= count <= _MOST:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {_MOST}, not {shown(text)}")
    return count


def _instant(text: str) -> int:
    try:
        # Python 3.10 reads an offset, but no Z.
        instant = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an instant such as 2026-03-28T00:00Z, not {text!r}") from None
    if instant.tzinfo is None:
        raise argparse.ArgumentTypeError(f"expected an offset, such as Z or +02:00, at the end of {text!r}")
    return to_ms(instant)


def _print(given: argparse.Namespace, found: Any, for_people: Callable[[], str]) -> None:
    """What was found, as one JSON document or for people; an empty table is left to those who can say more."""
    if given.json:
        values = found.to_dict() if isinstance(found, RunRecord) else [one.to_dict() for one in found]
        given.output.tell(json.dumps(values, indent=2))
    elif found:
        given.output.tell(for_people())


def _say(text: str, end: str = "\n") -> None:
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
    _say(f"anarchon: {error}")


@contextmanager
def _opened(scheduler: Scheduler) -> Iterator[Scheduler]:
    """Closes the connections of one that was never started."""
    try:
        yield scheduler
    finally:
        scheduler.stop("0s")


@contextmanager
def _sigterm_ends() -> Iterator[None]:
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


def _confirmed(scheduler: Scheduler, name: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"There is nobody to ask whether {name!r} shall be forgotten: say --yes.")
    running = [run.instance_id for run in scheduler.active(name) if run.lease_left > 0]
    note = "".join(f" It is running on {instance_id} right now." for instance_id in running)
    _say(f"Remove all that the store keeps of {name!r}, its history included?{note} [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _nearest(scheduler: Scheduler, name: str) -> str:
    known = [job.name for job in scheduler.jobs()]
    nearest = [] if name in known else difflib.get_close_matches(name, known, n=1)
    return "".join(f" Did you mean {job!r}?" for job in nearest)


def _screen() -> int | None:
    """How wide the screen is; None where a pipe or a file reads."""
    # A standard output that is closed is None.
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
