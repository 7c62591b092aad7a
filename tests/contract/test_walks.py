"""Random walks: every store beside the model, and the promises that must always hold.

The seeds of the short walks are fixed, so that a failure is the same everywhere; it prints the fewest steps that show
it. For the long walk: ``ANARCHON_SOAK_SEED=1 ANARCHON_SOAK_WALKS=2000 pytest tests/contract -m soak``.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest
from harness import Harness, MemoryHarness
from invariants import Watch
from walks import Pair, Walker, compare

STEPS = 300


@pytest.mark.parametrize("seed", range(6))
def test_store_answers_as_the_model_does(make_store: Callable[[], Harness], seed: int) -> None:
    compare(make_store, seed, STEPS)


@pytest.mark.soak
def test_store_answers_as_the_model_does_for_as_long_as_you_like(make_store: Callable[[], Harness]) -> None:
    first, walks = int(os.environ.get("ANARCHON_SOAK_SEED", "1000")), int(os.environ.get("ANARCHON_SOAK_WALKS", "300"))
    for seed in range(first, first + walks):
        compare(make_store, seed, STEPS)


def test_walks_reach_every_line_of_the_claim_table() -> None:
    lines: Counter[int] = Counter()
    for seed in range(10):
        with closing(MemoryHarness()) as store:
            pair, walker = Pair(store), Walker(random.Random(seed))
            for step in walker.steps(STEPS, pair.reference.backend):
                walker.saw(step, pair.take(step)[0])
            lines.update(pair.model.lines)
    assert set(lines) == set(range(1, 15))
    assert min(lines.values()) >= 5, lines


def walk_and_watch(make: Callable[[], Harness], seed: int) -> None:
    """A walk whose every step is checked against what must always hold."""
    walker = Walker(random.Random(seed), modest=True)
    with closing(make()) as store:
        watch = Watch(store)
        for step in walker.steps(150, store.backend):
            walker.saw(step, watch.take(step))


@pytest.mark.parametrize("seed", range(2))
def test_store_keeps_what_must_always_hold(make_store: Callable[[], Harness], seed: int) -> None:
    walk_and_watch(make_store, seed)


def test_claim_table_keeps_what_must_always_hold_on_many_walks() -> None:
    for seed in range(100, 200):
        walk_and_watch(MemoryHarness, seed)
