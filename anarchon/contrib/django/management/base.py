"""What the commands share: one answer from ``anarchon.commands``, and Django's way of saying what was wrong.

From a shell, the exit codes are those of the command line ``anarchon``. A program that uses ``call_command`` gets the
answer on the ``stdout`` that it gives, and where the code would be another than 0 a CommandError with it as
``returncode``; its signals, its log and its scheduler, which may be at work, stay as they are.
"""

from __future__ import annotations

import signal
import sys
from contextlib import nullcontext
from typing import Any, TextIO, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from anarchon.commands import ERRORS, exit_code
from anarchon.contrib.django import scheduler
from anarchon.output import Output

__all__ = ["JobsCommand", "add_json", "add_name", "site_name"]


class JobsCommand(BaseCommand):
    """A command that prints one answer."""

    _from_shell = False

    def run_from_argv(self, argv: list[str]) -> None:
        self._from_shell = True
        super().run_from_argv(argv)

    def answer(self, output: Output, options: dict[str, Any]) -> int:
        """Prints the answer; returns the exit code."""
        raise NotImplementedError

    def complaint(self, code: int, options: dict[str, Any]) -> str:
        """What an exit code of ``answer`` other than 0 means, in a sentence."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        # Django's stream hands on all that it does not do itself to the one that it wraps.
        output = Output() if self._from_shell else Output(cast(TextIO, self.stdout))
        if self._from_shell and "LOG" not in settings.ANARCHON:
            # What the answer says, the log need not say beside it. A run and a worker log what they have to tell.
            scheduler._events._log = None
        try:
            with output.alone() if options.get("json") else nullcontext():
                code = self.answer(output, options)
            output.flush()
        except ERRORS as error:
            raise CommandError(str(error), returncode=exit_code(error)) from error
        except (BrokenPipeError, KeyboardInterrupt) as error:
            if not self._from_shell:
                raise
            # Whoever read has seen enough, or it was Ctrl-C.
            sys.exit(128 + (signal.SIGPIPE if isinstance(error, BrokenPipeError) else signal.SIGINT))
        finally:
            if self._from_shell:
                output.let_go()
        if code:
            raise CommandError(self.complaint(code, options), returncode=code)


def add_name(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the job's name")


def add_json(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document in place of a table")


def site_name() -> str:
    """What the site is called in what is said of it."""
    return settings.SETTINGS_MODULE or "this site"
