"""Each rule about gaps and folds is left out or turned round in turn, and the named test notices.

A mutant is a copy of the schedules with one snippet of text replaced. A snippet that is no longer there is an error, so
that this table moves with the code.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import test_schedules_clock_changes as changes
import test_schedules_cron as texts

from anarchon.errors import ConfigurationError

CRON, CRON_TEXT, STRETCHES = (f"anarchon.schedules.{name}" for name in ("cron", "cron_text", "stretches"))


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        fault: what the broken rules do.
        of: the module that has the snippet.
        old, new: the snippet, which is there exactly once, and what stands in its place.
        noticed_by: the test that fails with it.
    """

    fault: str
    of: str
    old: str
    new: str
    noticed_by: Callable[..., None]

    def modules(self) -> dict[str, ModuleType]:
        """Copies of the three modules, the fault in one of them, that import from each other."""
        copies = {name: self._copy(name) for name in (STRETCHES, CRON_TEXT, CRON)}
        vars(copies[CRON])["Stretches"] = copies[STRETCHES].Stretches
        vars(copies[CRON])["parse_text"] = copies[CRON_TEXT].parse_text
        return copies

    def _copy(self, name: str) -> ModuleType:
        text = inspect.getsource(importlib.import_module(name))
        if name == self.of:
            assert text.count(self.old) == 1, f"{self}: the snippet is there {text.count(self.old)} times"
            text = text.replace(self.old, self.new)
        copy = ModuleType(name)
        exec(compile(text, f"mutant of {name}", "exec"), vars(copy))
        return copy

    def __str__(self) -> str:
        return self.fault


REACHED = "stretch.start + stretch.offset if self.wildcard else stretch.reached"
WALL = "wall = reached if begin == stretch.start else max(reached, begin + stretch.offset)"
WILDCARD = 'wildcard=given[MINUTE][0] == "*" or given[HOUR][0] == "*",'
MEMORY = "max(reached, change + before) if abs(shift) <= _LARGEST_SHIFT else change + offset"

MUTANTS = [
    # A time that a jump skips.
    Mutant("wildcard times are made up for", CRON, REACHED, "stretch.reached", changes.test_athens_in_spring),
    Mutant(
        "fixed times are not made up for",
        CRON,
        WALL,
        "wall = max(reached, begin + stretch.offset)",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "fixed times follow the wall clock",
        CRON,
        REACHED,
        "stretch.start + stretch.offset",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "a skipped time lies before the jump",
        CRON,
        "slot = max(stretch.start, match - stretch.offset)",
        "slot = match - stretch.offset",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "a skipped time lies before the jump, looking back",
        CRON,
        "return max(stretch.start, match - stretch.offset) * 1000",
        "return (match - stretch.offset) * 1000",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "the first skipped second is lost, looking back",
        CRON,
        "if match >= self._reached(stretch):",
        "if match > self._reached(stretch):",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "a wildcard time that the jump skips comes at its end",
        CRON,
        "if slot < stretch.end:",
        "if slot <= stretch.end:",
        changes.test_athens_in_spring,
    ),
    Mutant(
        "a yearly time east of Greenwich is passed over",
        CRON,
        "begin = max(begin, match - DAY)",
        "begin = max(begin, match)",
        changes.test_a_yearly_slot_is_found_from_any_month_east_and_west_of_greenwich,
    ),
    Mutant(
        "a yearly time west of Greenwich is passed over, looking back",
        CRON,
        "until = min(until, match + DAY)",
        "until = min(until, match)",
        changes.test_a_yearly_slot_is_found_from_any_month_east_and_west_of_greenwich,
    ),
    # A time that comes twice.
    Mutant("wildcard times come once", CRON, REACHED, "stretch.reached", changes.test_athens_in_autumn),
    Mutant("fixed times come twice", CRON, REACHED, "stretch.start + stretch.offset", changes.test_athens_in_autumn),
    Mutant(
        "fixed times come twice to those who ask in between",
        CRON,
        WALL,
        WALL.replace("max(reached, begin + stretch.offset)", "begin + stretch.offset"),
        changes.test_in_the_midst_of_a_repeated_hour_its_fixed_times_are_over,
    ),
    Mutant(
        "fixed times come twice, looking back",
        CRON,
        "if match >= self._reached(stretch):",
        "if match >= stretch.start + stretch.offset:",
        changes.test_athens_in_autumn,
    ),
    Mutant(
        "an answer from before the clock was put back is kept",
        CRON,
        "not searched <= wall <= match",
        "not wall <= match",
        changes.test_athens_in_autumn,
    ),
    Mutant(
        "an answer from after the clock was put back is kept, looking back",
        CRON,
        "not match <= wall <= searched",
        "not match <= wall",
        changes.test_athens_in_autumn,
    ),
    Mutant(
        "of two changes only the last is remembered",
        STRETCHES,
        "max(reached, change + before)",
        "change + before",
        changes.test_two_changes_back_to_back_repeat_a_fixed_time_no_more_than_one_does,
    ),
    Mutant(
        "a change is forgotten at the next span",
        STRETCHES,
        "start = first - DAY",
        "start = first",
        changes.test_wherever_a_clock_is_put_back_the_repeated_hour_is_known_as_such,
    ),
    Mutant(
        "what a clock got to is forgotten at the next span",
        STRETCHES,
        "max(stretch.reached, first + stretch.offset)",
        "first + stretch.offset",
        changes.test_wherever_a_clock_is_put_back_the_repeated_hour_is_known_as_such,
    ),
    Mutant(
        "what was before a span is skipped anew at its start",
        STRETCHES,
        "max(stretch.reached, first + stretch.offset)",
        "stretch.reached",
        changes.test_stretches_of_a_zone_without_changes_are_all_alike,
    ),
    Mutant(
        "a zone that knows no fold shows the wrong one of two hours",
        STRETCHES,
        "instant.astimezone(self._zone).replace(tzinfo=None)",
        "(instant + instant.astimezone(self._zone).utcoffset()).replace(tzinfo=None)",
        changes.test_a_hand_made_tzinfo_is_followed_as_it_shows_the_time,
    ),
    Mutant(
        "a change lies a second late",
        STRETCHES,
        "                other = middle\n        return other",
        "                other = middle\n        return other + 1",
        changes.test_stretches_begin_and_end_at_every_change_that_pytz_lists,
    ),
    # A change of more than three hours.
    Mutant("no change is made up for", STRETCHES, MEMORY, "change + offset", changes.test_athens_in_spring),
    Mutant(
        "a day left out is made up for",
        STRETCHES,
        MEMORY,
        "max(reached, change + before)",
        changes.test_apia_which_left_out_a_day,
    ),
    Mutant(
        "seven hours back repeat no fixed time",
        STRETCHES,
        "abs(shift) <= _LARGEST_SHIFT",
        "shift <= _LARGEST_SHIFT",
        changes.test_a_change_of_more_than_three_hours_back_repeats_fixed_times,
    ),
    Mutant(
        "three hours are too many",
        STRETCHES,
        "abs(shift) <= _LARGEST_SHIFT",
        "abs(shift) < _LARGEST_SHIFT",
        changes.test_a_change_of_three_hours_is_still_made_up_for,
    ),
    # Which is which.
    Mutant(
        "wildcard by the minute alone",
        CRON_TEXT,
        WILDCARD,
        'wildcard=given[MINUTE][0] == "*",',
        texts.test_wildcard_is_a_text_whose_minute_or_hour_begins_with_a_star,
    ),
    Mutant(
        "wildcard by the hour alone",
        CRON_TEXT,
        WILDCARD,
        'wildcard=given[HOUR][0] == "*",',
        texts.test_wildcard_is_a_text_whose_minute_or_hour_begins_with_a_star,
    ),
    Mutant(
        "wildcard by both only",
        CRON_TEXT,
        WILDCARD,
        WILDCARD.replace(" or ", " and "),
        texts.test_wildcard_is_a_text_whose_minute_or_hour_begins_with_a_star,
    ),
    Mutant(
        "wildcard by a star anywhere",
        CRON_TEXT,
        WILDCARD,
        'wildcard="*" in given[MINUTE] + given[HOUR],',
        texts.test_wildcard_is_a_text_whose_minute_or_hour_begins_with_a_star,
    ),
    Mutant(
        "wildcard by any field",
        CRON_TEXT,
        WILDCARD,
        'wildcard="*" in [word[0] for word in given.values()],',
        texts.test_a_star_for_the_second_does_not_make_a_text_wildcard,
    ),
    Mutant(
        "days are always either",
        CRON_TEXT,
        'if given[DAY_OF_MONTH][0] in "*?" or given[DAY_OF_WEEK][0] in "*?":',
        'if given[DAY_OF_MONTH] in "*?" or given[DAY_OF_WEEK] in "*?":',
        texts.test_day_of_month_and_day_of_week_go_together_as_in_debian_s_cron,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_rule_left_out_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    use(mutant, monkeypatch)
    assert any(fails(mutant.noticed_by, case) for case in cases(mutant.noticed_by))


def test_a_copy_without_a_fault_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the fault that is noticed, then, and not the copying."""
    use(Mutant("none", STRETCHES, MEMORY, MEMORY, changes.test_athens_in_spring), monkeypatch)
    for test in {mutant.noticed_by for mutant in MUTANTS}:
        for case in cases(test):
            test(**case)


def use(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = mutant.modules()
    for module in (changes, texts):
        monkeypatch.setattr(module, "cron", modules[CRON].cron)
    monkeypatch.setattr(changes, "Stretches", modules[STRETCHES].Stretches)


def fails(test: Callable[..., None], case: dict[str, Any]) -> bool:
    try:
        test(**case)
    except (AssertionError, ConfigurationError, OverflowError):
        return True
    return False


def cases(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The arguments that a test is called with, by its parametrize marks."""
    tables = []
    for mark in getattr(test, "pytestmark", []):
        names, rows = mark.args
        names = [names] if isinstance(names, str) else names
        tables.append([dict(zip(names, row if len(names) > 1 else [row])) for row in rows])
    for rows in itertools.product(*tables):
        yield {name: value for row in rows for name, value in row.items()}
