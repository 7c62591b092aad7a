"""``manage.py anarchon_history NAME``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, add_json, add_name
from anarchon.output import Output


class Command(JobsCommand):
    help = "Lists the newest attempts of a job, registered or not."

    def add_arguments(self, parser: CommandParser) -> None:
        add_name(parser)
        parser.add_argument("--limit", type=int, default=20, metavar="20", help="how many")
        add_json(parser)

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        return commands.history(output, scheduler, options["name"], options["limit"], options["json"])
