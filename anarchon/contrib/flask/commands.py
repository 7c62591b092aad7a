"""``flask anarchon``: the commands of ``anarchon``, about the scheduler of the app that ``flask`` has loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from typing import NoReturn

import click
from flask import current_app
from flask.cli import AppGroup

from anarchon import commands
from anarchon.durations import parse_duration
from anarchon.errors import ConfigurationError
from anarchon.output import Output
from anarchon.scheduler import Scheduler

__all__ = ["group"]

#: More lines than anybody reads, and no more than a store may be asked for at a time.
_MOST = 1_000_000


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_duration(value, "it")
        except ConfigurationError as error:
            raise click.BadParameter(str(error)) from None
    return value


group = AppGroup("anarchon", help="Scheduled jobs: run them, and see what they did.")

_name = click.argument("name")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document in place of a table.")


@group.command()
@click.option("--stop-timeout", callback=_duration, metavar="25s", help="How long a stop waits for the runs.")
@click.option("--verbose", is_flag=True, help="Log every skipped slot, too.")
@click.option("--http", metavar="HOST:PORT", help="Answer questions and manual runs there.")
@click.option("--token-file", metavar="PATH", help="The token for that; else ANARCHON_TOKEN of the environment.")
def worker(stop_timeout: str | None, verbose: bool, http: str | None, token_file: str | None) -> None:
    """Run the jobs until SIGTERM or SIGINT."""
    waits = stop_timeout or current_app.extensions["anarchon.settings"].stop_timeout
    _end(lambda output: commands.worker(_scheduler(), _app(), waits, verbose, http, token_file))


@group.command()
@_name
@_json
@click.option("--verbose", is_flag=True, help="Log every event.")
def run(name: str, as_json: bool, verbose: bool) -> None:
    """Run a job now, in this process, and say how it ended."""
    _end(lambda output: commands.run(output, _scheduler(), name, as_json, verbose), as_json)


@group.command()
@_json
def jobs(as_json: bool) -> None:
    """List the jobs of the app."""
    _end(lambda output: commands.jobs(output, _scheduler(), _app(), as_json), as_json)


@group.command()
@_name
@click.option("--limit", type=click.IntRange(1, _MOST), default=20, metavar="20", help="How many.")
@_json
def history(name: str, limit: int, as_json: bool) -> None:
    """List the newest attempts of a job, registered or not."""
    _end(lambda output: commands.history(output, _scheduler(), name, limit, as_json), as_json)


@group.command()
@_name
@_json
def active(name: str, as_json: bool) -> None:
    """List the runs of a job that have not finished."""
    _end(lambda output: commands.active(output, _scheduler(), name, as_json), as_json)


@group.command()
@_name
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(name: str, yes: bool) -> None:
    """Remove all that the store keeps of a job that is gone from the code."""
    _end(lambda output: commands.forget(_scheduler(), name, yes, output.owns_process))


def _end(command: Callable[[Output], int], alone: bool = False) -> NoReturn:
    """Runs one command, and ends the process with its exit code; a test, which has called it, has that raised.

    Args:
        alone: what else is printed meanwhile, such as by a handler, goes to standard error.
    """
    # click's runner for tests has put streams of its own in place, and the process is not this command's.
    tested = type(sys.stdout).__module__ == "click.testing"
    output = Output(sys.stdout if tested else None)

    def ending() -> int:
        apart = redirect_stdout(sys.stderr) if tested else output.alone()
        with apart if alone else nullcontext():
            return command(output)

    sys.exit(commands.ending(output, ending))


def _scheduler() -> Scheduler:
    scheduler: Scheduler = current_app.extensions["anarchon"]
    return scheduler


def _app() -> str:
    return f"app {current_app.name!r}"
