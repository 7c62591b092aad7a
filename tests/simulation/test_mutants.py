"""The library with one rule left out is seen by the simulation, or the page of the mutants says why not."""

from __future__ import annotations

import re

import pytest
from aims import AIMED_AT, AIMS
from page import rows, written
from trials import ALL, made, seen_in, try_all
from unseen import UNSEEN

#: As long as a storm may take on a busy machine.
pytestmark = pytest.mark.timeout(600)

#: Each by another judge, and each soon.
SOON = {
    "13: a start minds no overlap": "model",
    "a run is not taken from oneself": "conduct",
    "an interrupted run is released": "conduct",
}


@pytest.mark.parametrize("name", SOON)
def test_a_mutant_is_seen(name: str) -> None:
    with made(ALL[name]):
        sight = seen_in(0)
    assert sight is not None and sight.by == SOON[name]


#: Likewise, each in its aim: an answer of the store, a deadline, a race of two threads, a clock.
AIMED_AT_SOON = {
    "10: latest counts only in the past": "model",
    "a lease is counted from just before its renewal was sent": "conduct",
    "a run whose thread had not begun when the stop came never begins": "conduct",
    "the backups know what may have been granted before the next claim is asked": "conduct",
    "a slot to come gives way to one that is due": "oracle",
    "whatever a handler raises is its failure": "exception",
}


@pytest.mark.parametrize("name", AIMED_AT_SOON)
def test_a_mutant_is_seen_where_it_is_aimed_at(name: str) -> None:
    with made(ALL[name]):
        sight = seen_in(0, AIMED_AT[name])
    assert sight is not None and sight.by == AIMED_AT_SOON[name]


def test_each_aim_is_for_a_mutant_and_none_of_these_is_called_unseen() -> None:
    assert set(AIMED_AT.values()) == set(AIMS)
    assert set(AIMED_AT) <= set(ALL) - set(UNSEEN)


def test_the_page_has_each_mutant_and_no_other() -> None:
    assert [row[:-1] for row in written()] == [rows(mutant) for mutant in ALL.values()]


def test_the_page_says_of_each_where_it_is_seen_or_why_not() -> None:
    for name, row in zip(ALL, written(), strict=True):
        if name in UNSEEN:
            assert row[-1] == UNSEEN[name]
        else:
            seen = re.fullmatch(
                r"(wild |\*(.+)\*, )?seed \d+(, \d+ s)?: (model|conduct|oracle|exception|hang)", row[-1]
            )
            assert seen and (seen[2] is None or seen[2] in AIMS), name
    assert set(UNSEEN) <= set(ALL)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_mutant_is_seen_that_the_simulation_can_see(capsys: pytest.CaptureFixture[str]) -> None:
    """In up to sixteen seeds of its aim, if it has one; else of a storm and a wild one of each."""
    unseen = []
    for name, sight in try_all([name for name in ALL if name not in UNSEEN], seeds=16):
        with capsys.disabled():
            print(f"{name}: {sight}", flush=True)
        if sight is None:
            unseen.append(name)
    assert unseen == []
