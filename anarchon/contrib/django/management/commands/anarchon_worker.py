"""``manage.py anarchon_worker``"""

from __future__ import annotations

from typing import Any

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

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        stop_timeout = options["stop_timeout"]
        if stop_timeout is None:
            stop_timeout = option("STOP_TIMEOUT")
        else:
            parse_duration(stop_timeout, "--stop-timeout")
        return commands.worker(scheduler, site_name(), stop_timeout, verbose=options["verbosity"] > 1)

    def complaint(self, code: int, options: dict[str, Any]) -> str:
        return "Not every run ended in time."
