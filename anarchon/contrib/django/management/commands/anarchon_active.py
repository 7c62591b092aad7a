"""``manage.py anarchon_active NAME``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, add_json, add_name
from anarchon.output import Output


class Command(JobsCommand):
    help = "Lists the runs of a job that have not finished."

    def add_arguments(self, parser: CommandParser) -> None:
        add_name(parser)
        add_json(parser)

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        return commands.active(output, scheduler, options["name"], options["json"])
