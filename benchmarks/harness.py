"""What the benchmarks share: a Redis server of their own, rounds in which the sides take turns, tables and JSON.

Machines differ and are busy, so nothing here is worth anything but a ratio within one run: each round measures every
side, one after the other, and what counts is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from servers import RedisServer  # noqa: E402

__all__ = ["Row", "new_redis", "percentile", "ratio", "show", "table"]

Row = dict[str, Any]


@contextmanager
def new_redis(**options: str) -> Iterator[str]:
    """The URL of a private server that is gone afterwards; it does not write to the disk unless told to."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        server = RedisServer(Path(directory) / "redis", **{"appendonly": "no", **options}).start()
        try:
            yield server.url
        finally:
            server.kill()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of all."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(mine / theirs for mine, theirs in zip(ours, others, strict=True))


def show(doc: str | None, measure: Callable[[argparse.Namespace], list[Row]], **more: dict[str, Any]) -> None:
    """The command line of a benchmark: measures, and prints a table, or every figure as JSON.

    Args:
        doc: the module's docstring; its first line is the help.
        measure: gives the rows. A row's names are the table's columns; lists of figures are for the JSON alone.
        more: further arguments, as ``argparse`` takes them.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="every figure, as JSON")
    for name, how in more.items():
        parser.add_argument(f"--{name}", **how)
    arguments = parser.parse_args()
    rows = measure(arguments)
    if arguments.json:
        print(json.dumps({"cores": os.cpu_count(), "python": sys.version.split()[0], "rows": rows}))
    else:
        print(table(rows))


def table(rows: list[Row]) -> str:
    """A table with the names of the fullest row for its heads, for one of a missing peer has few; lists are left out.

    A row whose first name is another begins a table of its own.
    """
    tables = [list(group) for _, group in itertools.groupby(rows, key=lambda row: next(iter(row)))]
    return "\n\n".join(map(_one_table, tables))


def _one_table(rows: list[Row]) -> str:
    heads = [name for name, value in max(rows, key=len).items() if not isinstance(value, list)]
    cells = [heads, *([_cell(row.get(head)) for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 100
        else f"{value:.0f}"
        if isinstance(value, float)
        else f"{value}"
    )
