"""``manage.py anarchon_run NAME``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, add_json, add_name
from anarchon.output import Output


class Command(JobsCommand):
    help = "Runs a job now, in this process, and says how it ended."

    def add_arguments(self, parser: CommandParser) -> None:
        add_name(parser)
        add_json(parser)

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        return commands.run(output, scheduler, options["name"], options["json"], verbose=options["verbosity"] > 1)

    def complaint(self, code: int, options: dict[str, Any]) -> str:
        how = "failed" if code == commands.Exit.FAILED else "was interrupted"
        return f"The run of {options['name']!r} {how}."
