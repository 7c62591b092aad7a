"""The demo's two worker processes, and the pipe down which both tell what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from anarchon.demo.lines import Line, read_line

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Workers"]


class Workers:
    """Started one by one; when the ``with`` ends, however it ends, none is left.

    Args:
        folder: where they work; their store is in there.
        path: of the store's file.
    """

    def __init__(self, folder: str, path: str) -> None:
        self._folder = folder
        self._path = path
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        read_end, self._write_end = os.pipe()
        self._log = os.fdopen(read_end, "rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            with process:
                """Closes its input and waits for its end."""
        self._log.close()
        self._close_write_end()

    def start(self, name: str) -> int:
        """Starts a worker; returns its process id."""
        process = subprocess.Popen(
            [sys.executable, "-m", "anarchon.demo.worker", name, self._path],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=self._write_end,
            # What is here importable is so there; and no file of the directory where the demo was called is in the way.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=self._folder,
            # Ctrl-C is for the parent alone, which knows what to do about it.
            start_new_session=True,
        )
        self._processes[name] = process
        return process.pid

    def lines(self) -> Iterator[Line]:
        """What the workers tell, as they do; ends when none is left to tell anything."""
        self._close_write_end()
        for text in self._log:
            yield read_line(text)

    def tell(self, text: str) -> None:
        """Writes a line to every worker."""
        for process in self._processes.values():
            # One that is gone, or told to stop, needs to be told nothing.
            if process.stdin is not None and not process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(f"{text}\n".encode("ascii"))

    def stop(self) -> None:
        """Asks every worker to stop, and returns at once."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()

    def freeze(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """``kill -9``: it is gone between two instructions, and nothing of it can tell anybody."""
        self._processes[name].kill()

    def exit_codes(self) -> dict[str, int | None]:
        """How each ended; waits until all have."""
        for process in self._processes.values():
            with process:
                """Closes its input and waits for its end."""
        return {name: process.returncode for name, process in self._processes.items()}

    def _close_write_end(self) -> None:
        """The pipe ends for its reader when the last who could write has closed it."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
