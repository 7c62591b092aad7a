"""Tables for people: plain text in columns, one line a row, whatever the texts hold."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo

from anarchon.durations import format_duration, from_ms
from anarchon.records import ActiveRun, JobInfo, RunRecord
from anarchon.schedules.preview import Preview

__all__ = [
    "active_table",
    "history_table",
    "jobs_table",
    "measured",
    "one_line",
    "preview_table",
    "record_list",
    "table",
]

#: However narrow the screen, so much of the last column is shown.
_LEAST_LAST = 20


def jobs_table(jobs: Iterable[JobInfo]) -> str:
    """What is registered, when it is due, and the options that people ask for."""
    rows = [
        (
            job.name,
            f"{job.kind} {job.schedule}",
            "never" if job.next_run is None else _instant(job.next_run),
            _length(job.options["lease"]),
            _length(job.options["timeout"]),
            job.options["overlap"],
        )
        for job in jobs
    ]
    return table(("JOB", "SCHEDULE", "NEXT RUN", "LEASE", "TIMEOUT", "OVERLAP"), rows)


def preview_table(previews: Iterable[Preview], zone: tzinfo) -> str:
    """One line a slot, with the day of the week; above it what changes of the clock did since the one before."""
    lines = []
    for found in previews:
        lines += [f"    ({note})" for note in found.notes]
        lines.append(f"{from_ms(found.slot_ms).astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z (%z)}")
    return "\n".join(lines)


def history_table(records: Iterable[RunRecord], zone: tzinfo, width: int | None = None) -> str:
    """One line an attempt, in the order given.

    Args:
        zone: of the instants shown.
        width: of the screen, which cuts the errors; None: they are cut to a moderate length.
    """
    rows = []
    for record in records:
        slot, started = record.slot.astimezone(zone), record.started_at.astimezone(zone)
        rows.append(
            (
                _instant(slot),
                str(record.attempt),
                record.trigger,
                _status(record),
                _same_day(started, slot),
                measured(record.duration),
                record.instance_id,
                str(record.fence),
                record.error or "",
            )
        )
    headings = ("SLOT", "ATTEMPT", "TRIGGER", "STATUS", "STARTED", "DURATION", "INSTANCE", "FENCE", "ERROR")
    return table(headings, rows, width or 200)


def active_table(runs: Iterable[ActiveRun], zone: tzinfo) -> str:
    """One line a run that has not finished."""
    rows = []
    for run in runs:
        slot, started = run.slot.astimezone(zone), run.started_at.astimezone(zone)
        left = measured(run.lease_left) if run.lease_left > 0 else "over"
        attempt, fence = str(run.attempt), str(run.fence)
        rows.append((_instant(slot), attempt, run.trigger, _same_day(started, slot), left, run.instance_id, fence))
    return table(("SLOT", "ATTEMPT", "TRIGGER", "STARTED", "LEASE LEFT", "INSTANCE", "FENCE"), rows)


def record_list(record: RunRecord, zone: tzinfo) -> str:
    """One record, a line a field."""
    fields = {
        "job": record.job,
        "slot": _instant(record.slot.astimezone(zone)),
        "attempt": f"{record.attempt} ({record.trigger})",
        "status": _status(record),
        "started": _instant(record.started_at.astimezone(zone)),
        "duration": measured(record.duration),
        "instance": record.instance_id,
        "fence": str(record.fence),
    }
    if record.error is not None:
        fields["error"] = record.error
    return "\n".join(f"{name:<9} {_cut(one_line(value), 1000)}" for name, value in fields.items())


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Columns as wide as their widest cell; the last one is cut where the lines would be wider than ``width``."""
    lines = [list(headings), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(headings))]
    if width is not None:
        widths[-1] = max(_LEAST_LAST, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
    return "\n".join("  ".join(_fit(cell, width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def measured(seconds: float) -> str:
    """How long something took, or has left: ``0.120s``, from a minute on ``1h2m3s``."""
    return f"{seconds:.3f}s" if seconds < 60 else format_duration(round(seconds) * 1000)


def one_line(text: str) -> str:
    """The text without line breaks, and with nothing in it that a terminal would obey."""
    text = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _fit(text: str, width: int) -> str:
    text = _cut(text, width)
    return text + " " * (width - _width(text))


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept = 0
    for end, character in enumerate(text):
        kept += _columns(character)
        if kept > width - 3:
            return text[:end] + "..."
    return text


def _width(text: str) -> int:
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    """What a terminal gives it: two columns for a wide sign of East Asia or an emoji, none for an accent."""
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _instant(instant: datetime) -> str:
    # With the zone, for an hour that the clocks repeat is told apart by nothing else.
    return instant.strftime("%Y-%m-%d %H:%M:%S %Z")


def _same_day(instant: datetime, slot: datetime) -> str:
    return instant.strftime("%H:%M:%S" if instant.date() == slot.date() else "%Y-%m-%d %H:%M:%S")


def _length(seconds: float | None) -> str:
    return "none" if seconds is None else format_duration(round(seconds * 1000))


def _status(record: RunRecord) -> str:
    return f"{record.status} (lease lost)" if record.lease_lost else record.status
