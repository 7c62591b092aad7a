"""``manage.py anarchon_worker``"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from typing import Any, NoReturn

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, site_name
from anarchon.contrib.django.settings import option
from anarchon.durations import parse_duration
from anarchon.output import Output


class Command(JobsCommand):
    help = "Runs the jobs of this site until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--stop-timeout",
            metavar="25s",
            help="how long a stop waits for the runs (default: ANARCHON['STOP_TIMEOUT'])",
        )
        parser.add_argument("--http", metavar="HOST:PORT", help="where to answer questions and manual runs meanwhile")
        # Else argparse would take it for the beginning of --token-file, and the token for a file that it then names.
        parser.add_argument("--token", type=_no_token, help=SUPPRESS)
        parser.add_argument(
            "--token-file", metavar="PATH", help="where the token for that stands (default: $ANARCHON_TOKEN)"
        )

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        stop_timeout = options["stop_timeout"]
        if stop_timeout is None:
            stop_timeout = option("STOP_TIMEOUT")
        else:
            parse_duration(stop_timeout, "--stop-timeout")
        verbose = options["verbosity"] > 1
        return commands.worker(
            scheduler, site_name(), stop_timeout, verbose, http=options["http"], token_file=options["token_file"]
        )

    def complaint(self, code: int, options: dict[str, Any]) -> str:
        return "Not every run ended in time."


def _no_token(text: str) -> NoReturn:
    raise ArgumentTypeError(
        "every user of this host can read a command line: put the token into a file for --token-file, or ANARCHON_TOKEN"
    )
