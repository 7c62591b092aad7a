"""Where a command's answer goes: standard output, which may be closed, full, wanted by others, or read no longer.

Guarantees:

- An answer that could not be printed is known: it raises, and nothing is left in a buffer to fail at the process's end.
- After ``alone`` the answer has standard output to itself. What else is printed, by a handler, a thread of its own or a
  child process, goes to standard error, until the process ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["Output", "OutputError"]


class OutputError(Exception):
    """The answer could not be printed. What was asked for has been done all the same."""


class Output:
    """Standard output, for as long as one command lasts.

    Args:
        stream: where to print in its place, for a command that a program calls.

    Attributes:
        owns_process: the process is this command's alone. False where a program calls it: then the process's streams,
            its log, and the scheduler and its connections stay as they are.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.owns_process = stream is None
        self._own = stream
        if not self.owns_process:
            return
        _take_closed_numbers()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal that cannot show a sign is no reason to show nothing.
            sys.stdout.reconfigure(errors="backslashreplace")

    def tell(self, text: str, end: str = "\n") -> None:
        """Prints a part of the answer, at once.

        Raises:
            OutputError: it could not be printed.
            BrokenPipeError: whoever read has seen enough.
        """
        stream = self._stream()
        if stream is None:
            raise OutputError("The answer could not be printed: standard output is closed.")
        # In one piece: the stream may be another program's, which ends by itself each line that is written to it.
        _written(lambda: stream.write(text + end))
        _written(stream.flush)

    def flush(self) -> None:
        """Sends off what others have printed; errors as for ``tell``, but for one that is closed: then nobody could."""
        stream = self._stream()
        if stream is not None:
            _written(stream.flush)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Has standard output to itself inside; a process that has a real one, until its end."""
        stream = self._stream()
        if stream is None or not self.owns_process:
            yield
        elif _number(stream) != 1:
            # Somebody has put an object of his own in its place, which no child process knows of.
            self._own = stream
            with contextlib.redirect_stdout(sys.stderr):
                yield
        else:
            self.flush()
            # Not closed by us: the process's end is near, and what it could not write is no news then.
            self._own = open(os.dup(1), "w", encoding=stream.encoding, errors="backslashreplace", closefd=False)
            # Not undone, for a handler that has outlived its timeout may print when the answer is out.
            os.dup2(2, 1)
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
            yield

    def let_go(self) -> None:
        """What cannot be written by now is dropped: at the interpreter's end it would change the exit code."""
        for stream in (self._own, sys.stdout, sys.stderr):
            if stream is None:
                continue
            try:
                stream.flush()
            except (OSError, ValueError):
                number = _number(stream)
                if number is not None:
                    nothing = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nothing, number)
                    os.close(nothing)

    def _stream(self) -> TextIO | None:
        # What a target's module may have put in place of the first is asked for each time.
        return sys.stdout if self._own is None else self._own


def _written(write: Callable[[], object]) -> None:
    try:
        write()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise OutputError(f"The answer could not be printed: {why}.") from None


def _number(stream: TextIO) -> int | None:
    """The stream's number among the process's files; None where it has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _take_closed_numbers() -> None:
    """Opens in silence those of the three standard streams that are closed.

    A store's file would be given such a number, and then everything that a child process prints.
    """
    while True:
        number = os.open(os.devnull, os.O_RDWR)
        if number > 2:
            os.close(number)
            break
        os.set_inheritable(number, True)
    if sys.stderr is None:
        # Python prints to standard output what is sent to no file.
        sys.stderr = open(2, "w", closefd=False)
