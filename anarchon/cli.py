"""The command line. Tables for people, ``--json`` for programs, and an exit code that says what happened."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from datetime import datetime

import anarchon
from anarchon import commands, demo
from anarchon.clock import SystemClock
from anarchon.commands import Exit, ending, sigterm_ends
from anarchon.durations import parse_duration, to_ms
from anarchon.errors import ConfigurationError, shown
from anarchon.output import Output
from anarchon.schedules import cron
from anarchon.schedules.preview import preview
from anarchon.tables import preview_table
from anarchon.targets import UsageError, load_scheduler, open_target
from anarchon.web.addresses import parse_address

__all__ = ["Exit", "main"]

#: More lines than anybody reads, and no more than a store may be asked for at a time.
_MOST = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Where the arguments are wrong, argparse ends the process with 2."""
    output = Output()

    def command() -> int:
        given = _read(arguments, output)
        with output.alone() if given.json else nullcontext():
            code: int = given.command(given)
            return code

    return ending(output, command)


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
    return commands.worker(
        load_scheduler(given.target), given.target, given.stop_timeout, given.verbose, given.http, given.token_file
    )


def run(given: argparse.Namespace) -> int:
    return commands.run(given.output, load_scheduler(given.target), given.name, given.json, given.verbose)


def jobs(given: argparse.Namespace) -> int:
    return commands.jobs(given.output, load_scheduler(given.target), given.target, given.json)


def history(given: argparse.Namespace) -> int:
    return commands.history(given.output, open_target(given.target, given.prefix), given.name, given.limit, given.json)


def active(given: argparse.Namespace) -> int:
    return commands.active(given.output, open_target(given.target, given.prefix), given.name, given.json)


def forget(given: argparse.Namespace) -> int:
    return commands.forget(open_target(given.target, given.prefix), given.name, given.yes)


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
    with sigterm_ends():
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
    command.add_argument(
        "--http",
        type=_address,
        metavar="HOST:PORT",
        help="answer questions and manual runs over HTTP; :PORT: this host's",
    )
    command.add_argument(
        "--token-file", metavar="PATH", help="the token for that (default: ANARCHON_TOKEN of the environment)"
    )
    # Else argparse would take it for the beginning of --token-file, and the token for a file that it then names.
    command.add_argument("--token", type=_no_token, help=argparse.SUPPRESS)

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


def _address(text: str) -> str:
    try:
        parse_address(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _no_token(text: str) -> str:
    raise argparse.ArgumentTypeError(
        "every user of this host can read a command line: put the token into a file for --token-file, or ANARCHON_TOKEN"
    )


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
