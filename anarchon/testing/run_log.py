"""What really ran, written down by the handlers themselves, outside the store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anarchon.clock import Clock, SystemClock
from anarchon.context import RunContext
from anarchon.durations import from_ms, to_ms
from anarchon.errors import ConfigurationError

__all__ = ["Ran", "RunLog"]


@dataclass(frozen=True)
class Ran:
    """One call of a handler.

    Attributes:
        job, attempt, trigger, fence, instance_id: as in the context.
        slot: the due instant, aware.
        started_at: when the handler began, aware, on its host's clock.
        ended_at: when it was over; None where that was never written: it goes on, or its process was killed.
        told: why its signal was set until then (``stop``, ``timeout``, ``lease-lost``); None if it was not.
    """

    job: str
    slot: datetime
    attempt: int
    trigger: str
    fence: int
    instance_id: str
    started_at: datetime
    ended_at: datetime | None = None
    told: str | None = None


class RunLog:
    """A file to which every handler of every process writes when it begins and when it ends.

    Hand its ``around_run`` to the schedulers, ``Scheduler(..., around_run=log.around_run)``, or enter it in a handler:
    ``with log.around_run(ctx): ...``. Each line is one append of the operating system's, so that any number of threads
    and processes of one host may write to one file, and a process that is killed leaves whole lines.

    Args:
        path: of the file; it is made where there is none, and added to where there is.
        clock: where the time comes from; None: the host's clock.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock | None = None) -> None:
        self._path = os.fspath(path)
        self._clock = clock or SystemClock()

    @contextmanager
    def around_run(self, ctx: RunContext) -> Iterator[None]:
        """Writes that the run begins; and, however the code inside ends, that it has ended.

        Raises:
            OSError: the file could not be written. Nothing runs that could not be written down.
        """
        which = {"job": ctx.job, "slot_ms": to_ms(ctx.slot), "fence": ctx.fence, "instance_id": ctx.instance_id}
        self._write("begin", **which, attempt=ctx.attempt, trigger=ctx.trigger)
        try:
            yield
        finally:
            self._write("end", **which, told=ctx.reason)

    def read(self) -> list[Ran]:
        """What was written so far, in the order in which it began.

        Raises:
            ConfigurationError: a line is none of ours; the file and the line are named.
            OSError: the file could not be read.
        """
        begun: dict[tuple[Any, ...], Ran] = {}
        # Bytes: what is no text at all is no line of ours either.
        with open(self._path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    _take(json.loads(line), begun)
                except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
                    raise ConfigurationError(f"{self._path}:{number} is no line of a run log.") from None
        return list(begun.values())

    def _write(self, what: str, **facts: object) -> None:
        line = json.dumps({"what": what, "at_ms": self._clock.now_ms(), **facts}) + "\n"
        # Opened anew each time: no file is shared with a child that a fork makes, nor left open by one that is killed.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _take(line: dict[str, Any], begun: dict[tuple[Any, ...], Ran]) -> None:
    which: tuple[Any, ...] = (line["job"], line["slot_ms"], line["fence"], line["instance_id"])
    at = from_ms(line["at_ms"])
    if line["what"] == "begin":
        if which in begun:
            # A fence is granted once. Kept under a name of its own, for the oracle to see.
            which = (*which, len(begun))
        begun[which] = Ran(
            line["job"], from_ms(line["slot_ms"]), line["attempt"], line["trigger"], line["fence"],
            line["instance_id"], at,
        )  # fmt: skip
    elif line["what"] == "end":
        ran = begun[which]
        begun[which] = Ran(**{**ran.__dict__, "ended_at": at, "told": line["told"]})
    else:
        raise ValueError(line["what"])
