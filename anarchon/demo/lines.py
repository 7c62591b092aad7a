"""What the workers of the demo tell, outside the store: one line of JSON down a pipe for each thing they do.

All of them write to one pipe, and a write of so few bytes is never mixed with another's; so the order of the lines is
the order of the facts, and a worker that is killed leaves whole lines behind.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

__all__ = ["Line", "read_line", "write_line"]


@dataclass(frozen=True)
class Line:
    """One fact.

    Attributes:
        worker: who tells it.
        what: ``ready`` (its code is loaded), ``started`` (its scheduler is), ``begin``, ``step`` and ``end`` (written
            by a handler), ``stored`` (the result of a run is in the store), ``late`` (a slot was skipped) or ``error``.
        at_ms: when, on the host's clock.
        job, slot_ms, attempt, fence: of the run, where it is about one.
        text: of an error.
    """

    worker: str
    what: str
    at_ms: int
    job: str = ""
    slot_ms: int = 0
    attempt: int = 0
    fence: int = 0
    text: str = ""


def write_line(file: int, line: Line) -> None:
    """One write, past every buffer."""
    os.write(file, json.dumps(asdict(line)).encode("ascii") + b"\n")


def read_line(text: str | bytes) -> Line:
    return Line(**json.loads(text))
