"""``manage.py anarchon_jobs``"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from anarchon import commands
from anarchon.contrib.django import scheduler
from anarchon.contrib.django.management.base import JobsCommand, add_json, site_name
from anarchon.output import Output


class Command(JobsCommand):
    help = "Lists the jobs of this site."

    def add_arguments(self, parser: CommandParser) -> None:
        add_json(parser)

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        return commands.jobs(output, scheduler, site_name(), options["json"])
