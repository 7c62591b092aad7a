"""``manage.py anarchon_forget NAME``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, add_name
from anarchon.output import Output


class Command(JobsCommand):
    help = "Removes all that the store keeps of a job that is gone from the code."

    def add_arguments(self, parser: CommandParser) -> None:
        add_name(parser)
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        return commands.forget(scheduler, options["name"], options["yes"], output.owns_process)

    def complaint(self, code: int, options: dict[str, Any]) -> str:
        return "Nothing was removed."
