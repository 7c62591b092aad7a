"""What holds for every cron text, in every zone, at every instant; and that an answer never takes long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any

import pytest
import pytz
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_schedules_clock_changes import ALWAYS, DAY, Steps

from anarchon.durations import to_ms
from anarchon.errors import ConfigurationError
from anarchon.schedules import Cron, cron


def field(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last).map(str)
    steps = st.integers(1, min(last, 60)).map(str)
    item = st.one_of(
        number, st.builds("{}-{}".format, number, number), st.builds("{}-{}/{}".format, number, number, steps)
    )
    return st.one_of(
        st.just("*"), st.builds("*/{}".format, steps), st.lists(item, min_size=1, max_size=3).map(",".join)
    )


TEXTS = st.tuples(
    field(0, 59),
    field(0, 23),
    st.one_of(st.just("*"), field(1, 31), st.sampled_from(["L", "1W", "15W", "31W"])),
    st.one_of(st.just("*"), field(1, 12)),
    st.one_of(st.just("*"), field(0, 7), st.sampled_from(["fri#2", "0#5", "L5"])),
).map(" ".join)

BEGIN = to_ms(datetime(2010, 1, 1, tzinfo=timezone.utc))
INSTANTS = st.integers(BEGIN, to_ms(datetime(2037, 1, 1, tzinfo=timezone.utc)))


@st.composite
def made_up_zones(draw: st.DrawFn) -> tzinfo:
    """A zone whose clock does what no government has thought of yet; at most once a week."""
    second = BEGIN // 1_000
    steps: list[tuple[float, int]] = [(ALWAYS, 0)]
    for weeks, offset in draw(st.lists(st.tuples(st.integers(1, 80), st.integers(-14 * 60, 14 * 60)), max_size=20)):
        second += weeks * 7 * DAY + draw(st.integers(0, 1_439)) * 60
        steps.append((second, offset * 60))
    return Steps(*steps)


ZONES = st.one_of(
    st.sampled_from(["Europe/Athens", "America/St_Johns", "Australia/Lord_Howe", "Asia/Beirut", "Antarctica/Troll"]),
    st.sampled_from(pytz.common_timezones),
    made_up_zones(),
)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(text=TEXTS, zone=ZONES, instant=INSTANTS, data=st.data())
def test_every_instant_has_one_slot_before_and_one_after_it(
    text: str, zone: str | tzinfo, instant: int, data: st.DataObject
) -> None:
    schedule = schedule_of(text, zone)
    newest, following = schedule.newest_at(instant), schedule.next_after(instant)
    assert newest <= instant < following
    # The one is the other's neighbour, ...
    assert schedule.next_after(newest - 1) == newest == schedule.newest_at(newest)
    assert schedule.newest_at(following) == following == schedule.next_after(following - 1)
    # ... and whoever asks from between them is told the same.
    between = data.draw(st.integers(newest, following - 1))
    assert (schedule.newest_at(between), schedule.next_after(between)) == (newest, following)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(text=TEXTS, zone=ZONES, instant=INSTANTS)
def test_slots_are_the_same_line_forward_and_backward(text: str, zone: str | tzinfo, instant: int) -> None:
    schedule = schedule_of(text, zone)
    line = [schedule.next_after(instant)]
    for _ in range(12):
        line.append(schedule.next_after(line[-1]))
    assert all(earlier < later for earlier, later in pairwise(line))
    back = [line[-1]]
    for _ in range(12):
        back.append(schedule.newest_at(back[-1] - 1))
    assert back[::-1] == line


def schedule_of(text: str, zone: str | tzinfo) -> Cron:
    try:
        return cron(text, zone)
    except ConfigurationError as refused:
        assume("no such day" not in str(refused) and "skips that time" not in str(refused))
        raise


class Counted(tzinfo):
    """A zone that counts how often it is asked."""

    def __init__(self, name: str) -> None:
        self.zone = pytz.timezone(name)
        self.asked = 0

    def fromutc(self, instant: datetime) -> datetime:
        self.asked += 1
        return self.zone.fromutc(instant.replace(tzinfo=None)).replace(tzinfo=self)

    def utcoffset(self, instant: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, instant: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, instant: datetime | None) -> str:
        return str(self.zone)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often croniter is asked, and how many fields it goes through to answer."""
    counts: Counter[str] = Counter()

    def counting(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            counts[what] += 1
            return function(*args, **options)

        return counted

    for name in ("get_next", "get_prev"):
        monkeypatch.setattr(croniter, name, counting("searches", getattr(croniter, name)))
    for name in ("_get_next_nearest_diff", "_get_prev_nearest_diff"):
        monkeypatch.setattr(croniter, name, staticmethod(counting("fields", getattr(croniter, name))))
    return counts


@pytest.mark.parametrize(
    "text",
    ["0 0 29 2 *", "0 0 31 12 0", "0 0 31 12 */7", "0 0 29 2 */7", "30 3 */28 2 4#5", "0 0 29 2 1", "30 3 31 3 *"],
)
def test_the_rarest_slot_is_found_in_a_few_dozen_looks(text: str, counts: Counter[str]) -> None:
    for year in range(1990, 2037, 3):
        for month in (1, 3, 10):
            instant = to_ms(datetime(year, month, 28, 12, tzinfo=timezone.utc))
            zone = Counted("Europe/Athens")
            schedule = cron(text, zone)
            for ask in (schedule.next_after, schedule.newest_at):
                zone.asked = 0
                counts.clear()
                ask(instant)
                assert 0 < zone.asked <= 60
                assert 0 < counts["searches"] <= 2
                assert 0 < counts["fields"] <= 300
