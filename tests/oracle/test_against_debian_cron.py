"""Slots are those that Debian's cron would give, as the plodding oracle of ``debian_cron.py`` reads its manual."""

from __future__ import annotations

import os
import random
import secrets
from datetime import date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from debian_cron import DAY, Text, Watched
from random_texts import Window, never_comes, random_date, random_text, random_window

from anarchon.durations import from_ms
from anarchon.errors import ConfigurationError
from anarchon.schedules import cron

TEXTS_A_WINDOW, INSTANTS_A_TEXT, YEARS = 8, 25, 15

# Another seed for each part and run. A failure names its own, and SOAK_SEED in the environment takes it up again.
SOAK = [int(os.environ["SOAK_SEED"])] if "SOAK_SEED" in os.environ else [secrets.randbelow(10**9) for _ in range(50)]


@pytest.mark.parametrize("seed", range(4))
def test_slots_are_those_of_debian_s_cron_in_a_sample(seed: int) -> None:
    assert compare(seed, 2_000) >= 2_000


@pytest.mark.parametrize("seed", range(2))
def test_dates_are_those_of_the_calendar_in_a_sample(seed: int) -> None:
    assert compare_dates(seed, 250) >= 250


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SOAK)
def test_slots_are_those_of_debian_s_cron_in_fifty_parts(seed: int) -> None:
    assert compare(seed, 6_000) >= 6_000


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SOAK)
def test_dates_are_those_of_the_calendar_in_fifty_parts(seed: int) -> None:
    assert compare_dates(seed, 1_000) >= 1_000


def compare(seed: int, triples: int) -> int:
    """Compares so many (text, zone, instant) at least, about changes of the clock, and says how many."""
    chance = random.Random(seed)
    compared = 0
    while compared < triples:
        window = random_window(chance, seconds=chance.random() < 0.2)
        for _ in range(TEXTS_A_WINDOW):
            compared += compare_text(random_text(chance, window), window, chance, f"SOAK_SEED={seed}")
    return compared


def compare_text(text: str, window: Window, chance: random.Random, seed: str) -> int:
    seconds = window.every == 1
    about = f"{seed}: cron({text!r}, {window.zone!r}, {seconds=})"
    meant = Text(text, seconds)
    try:
        schedule = cron(text, window.zone, seconds)
    except ConfigurationError as refused:
        assert "no such day" in str(refused) and never_comes(meant), f"{about}: {refused}"
        return 0
    watched = Watched(meant, window.seen, window.begin)
    for instant in islice(window.instants_ms(chance, watched.slots), INSTANTS_A_TEXT):
        came, expected = schedule.next_after(instant), watched.next_after(instant)
        # What lies outside of the window was not watched: it is enough to know that there is nothing more inside.
        right = came >= window.end * 1_000 if expected is None else came == expected
        assert right, f"{about}: after {shown(instant)} came {shown(came)}, not {shown(expected)}"
        came, expected = schedule.newest_at(instant), watched.newest_at(instant)
        right = came < window.begin * 1_000 if expected is None else came == expected
        assert right, f"{about}: at {shown(instant)} the newest was {shown(came)}, not {shown(expected)}"
    return INSTANTS_A_TEXT


def compare_dates(seed: int, triples: int) -> int:
    """Compares slots up to years away, found by going through the calendar. UTC has no change to watch for."""
    chance = random.Random(seed)
    compared = 0
    while compared < triples:
        first = date(chance.randrange(1970, 2080), 1, 1)
        days = [first + timedelta(days=number) for number in range(YEARS * 366)]
        minute, hour = chance.randrange(60), chance.randrange(24)
        text = f"{minute} {hour} {random_date(chance, chance.choice(days))}"
        about = f"SOAK_SEED={seed}: cron({text!r})"
        meant = Text(text)
        slots = [
            ((day - date(1970, 1, 1)).days * DAY + hour * 3_600 + minute * 60) * 1_000 for day in days if meant.has(day)
        ]
        try:
            schedule = cron(text)
        except ConfigurationError as refused:
            assert "no such day" in str(refused) and never_comes(meant), f"{about}: {refused}"
            continue
        gaps = list(pairwise(slots))
        for earlier, later in chance.sample(gaps, min(len(gaps), INSTANTS_A_TEXT)):
            instant = chance.randrange(earlier, later)
            came = schedule.newest_at(instant), schedule.next_after(instant)
            assert came == (earlier, later), f"{about}: about {shown(instant)} came {shown(came[0])}, {shown(came[1])}"
            compared += 1
    return compared


def shown(instant_ms: int | None) -> datetime | None:
    return None if instant_ms is None else from_ms(instant_ms)
