"""How long schedules take, beside croniter's own answers for aware times and beside cronsim.

    python benchmarks/schedules.py [--json]

Over the texts of docs/schedules.rst: to understand a text; the slots one after another, as a timer asks for them; and
one slot from each of many instants years apart, by objects that remember nothing of the zone. Then, over those texts
and some worse ones, the longest single call about a change of the clock.

Only ratios within one run tell something, since machines differ and are busy. Time is the thread's own on the
processor, the libraries take turns, and of each task the fastest of some rounds counts: what else the machine does is
left out as far as may be.
"""

from __future__ import annotations

import argparse
import json
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
from time import thread_time
from typing import Any

import pytz
from croniter import croniter

from anarchon.durations import to_ms
from anarchon.schedules import cron

PAGE = Path(__file__).resolve().parents[1] / "docs" / "schedules.rst"
ROUNDS, SLOTS, ZONE = 5, 20, "Europe/Athens"
BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)
KINDS: dict[str, Callable[[str], tzinfo]] = {"pytz": pytz.timezone, "zoneinfo": zoneinfo.ZoneInfo}

Step = Callable[[], object]
Make = Callable[[str, tzinfo, datetime, bool], Step]


def by_anarchon(text: str, zone: tzinfo, begin: datetime, later: bool) -> Step:
    """A function that gives one slot after another, or before another. The other two do the same."""
    schedule, now = cron(text, zone), to_ms(begin)

    def step() -> int:
        nonlocal now
        now = schedule.next_after(now) if later else schedule.newest_at(now - 1)
        return now

    return step


def by_croniter(text: str, zone: tzinfo, begin: datetime, later: bool) -> Step:
    # By default it takes either day where the other begins with a star, which is another schedule.
    stepper = croniter(text, begin.astimezone(zone), implement_cron_bug=True)
    return partial(stepper.get_next if later else stepper.get_prev, datetime)


def by_cronsim(text: str, zone: tzinfo, begin: datetime, later: bool) -> Step:
    from cronsim import CronSim

    return partial(next, CronSim(text, begin.astimezone(zone), reverse=not later))


LIBRARIES: dict[str, Make] = {"anarchon": by_anarchon, "croniter": by_croniter}
if find_spec("cronsim"):
    LIBRARIES["cronsim"] = by_cronsim


def texts() -> list[str]:
    """Those of five fields that the page says are understood."""
    page = PAGE.read_text(encoding="utf-8")
    table = re.search(r"^text +meaning +slots$.*?(?=With ``seconds=True``)", page, re.MULTILINE | re.DOTALL)
    assert table
    return re.findall("^``(.+?)``  ", table[0], re.MULTILINE)


def new(make: Make, text: str, zone: tzinfo) -> list[Step]:
    return [partial(make, text, zone, BEGIN, True)] * SLOTS


def walked(later: bool, make: Make, text: str, zone: tzinfo) -> list[Step]:
    return [make(text, zone, BEGIN, later)] * SLOTS


def anywhere(later: bool, make: Make, text: str, zone: tzinfo) -> list[Step]:
    chance = Random(2024)
    return [make(text, zone, BEGIN + timedelta(minutes=chance.randrange(6_000_000)), later) for _ in range(SLOTS)]


TASKS: dict[str, Callable[[Make, str, tzinfo], list[Step]]] = {
    "new": new,
    "next, one after another": partial(walked, True),
    "next, from anywhere": partial(anywhere, True),
    "newest, one after another": partial(walked, False),
    "newest, from anywhere": partial(anywhere, False),
}


def fastest(steps_of: Mapping[str, Callable[[], list[Step]]], rounds: int) -> dict[str, float]:
    """Seconds that each library needs for its steps. Those are made anew for each round, which is not counted."""
    found: dict[str, float] = {}
    for _ in range(rounds):
        for library, make_steps in steps_of.items():
            try:
                steps = make_steps()
                begun = thread_time()
                for step in steps:
                    step()
                took = thread_time() - begun
            except Exception:  # each has errors of its own for a text that it does not take, or finds nothing for
                if library == "anarchon":
                    raise
                continue
            found[library] = min(took, found.get(library, took))
    return found


def on_average() -> Iterator[dict[str, Any]]:
    """Microseconds for a step, by task, kind of zone, text and library."""
    for (kind, zone), (task, steps), text in product(KINDS.items(), TASKS.items(), texts()):
        steps_of = {library: partial(steps, make, text, zone(ZONE)) for library, make in LIBRARIES.items()}
        took = fastest(steps_of, ROUNDS)
        yield {"zone": kind, "task": task, "text": text, "us": {who: took[who] / SLOTS * 1e6 for who in took}}


#: The first instants of another offset: by one hour, half an hour, two hours, at midnight, and by a whole day.
CHANGES = [
    ("Europe/Athens", "2026-03-29T01:00"),
    ("Europe/Athens", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Asia/Beirut", "2026-03-28T22:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
]
#: A leap day that is the fifth of its weekday; times that a clock skips in every year of which pytz knows its changes.
WORSE = ["30 3 */28 2 4#5", "*/30 3 25-31 3 */7", "*/30 2 8-14 3 */7"]
MINUTES_AROUND = (-24 * 60, -60, -1, 0, 30, 60, 24 * 60)


def at_a_change() -> Iterator[dict[str, Any]]:
    """Milliseconds of one call, by zone, text, instant, direction and library."""
    for (kind, zone), (name, at), text in product(KINDS.items(), CHANGES, texts() + WORSE):
        for minutes, later in product(MINUTES_AROUND, (True, False)):
            instant = datetime.fromisoformat(f"{at}+00:00") + timedelta(minutes=minutes)
            # Over the day that Samoa left out croniter takes up to twenty seconds a call.
            asked = [library for library in LIBRARIES if not (library == "croniter" and name == "Pacific/Apia")]
            steps_of = {who: partial(one_step, LIBRARIES[who], text, zone(name), instant, later) for who in asked}
            try:
                took = fastest(steps_of, 3)
            except ValueError:  # a time that the clock of this zone always skips is refused
                continue
            milliseconds = {who: took[who] * 1e3 for who in took}
            yield {
                "zone": f"{name} ({kind})",
                "task": "next" if later else "newest",
                "text": text,
                "at": instant.isoformat(),
                "ms": milliseconds,
            }


def one_step(make: Make, text: str, zone: tzinfo, instant: datetime, later: bool) -> list[Step]:
    return [make(text, zone, instant, later)]


def summary(averages: list[dict[str, Any]], calls: list[dict[str, Any]]) -> Iterator[str]:
    others = list(LIBRARIES)[1:]
    heads = [f"{head:>20}" for other in others for head in (f"{other}, us", f"ratio to {other}")]
    yield f"{'zone':10}{'task':28}{'anarchon, us':>14}" + "".join(heads)
    for kind, task in product(KINDS, TASKS):
        rows = [row["us"] for row in averages if (row["zone"], row["task"]) == (kind, task)]
        line = f"{kind:10}{task:28}{mean(row['anarchon'] for row in rows):14.1f}"
        for other in others:
            both = [row for row in rows if other in row]
            ratio = mean(row["anarchon"] / row[other] for row in both)
            line += f"{mean(row[other] for row in both):20.1f}{ratio:14.2f} of {len(both):2}"
        yield line
    yield ""
    yield "The longest single call about a change of the clock:"
    for library, task in product(LIBRARIES, ("next", "newest")):
        asked = [row for row in calls if row["task"] == task and library in row["ms"]]
        longest = max(asked, key=lambda row: row["ms"][library])
        yield (
            f"{library:10}{task:8}{longest['ms'][library]:10.2f} ms  {longest['text']!r} in {longest['zone']}"
            f" at {longest['at']}, longest of {len(asked)}"
        )
    if "cronsim" not in LIBRARIES:
        yield "cronsim is not installed, and so it is missing here."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="every figure, as JSON")
    arguments = parser.parse_args()
    averages, calls = list(on_average()), list(at_a_change())
    print(json.dumps({"average": averages, "change": calls}) if arguments.json else "\n".join(summary(averages, calls)))


if __name__ == "__main__":
    main()
