"""Every store is like the memory backend and like the model, whatever hypothesis thinks up (``machine.py``).

The short form draws the same everywhere, and keeps nothing. The long one::

    ANARCHON_SOAK_SEED=1 ANARCHON_SOAK_EXAMPLES=20000 pytest -s -m soak tests/contract/test_stateful.py

A failure prints its seed, and the fewest lines that show it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
from harness import Harness, MemoryHarness, RedisHarness, SQLiteHarness
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Stores
from mutants import MUTANTS

from anarchon.backends import memory, sqlite
from anarchon.backends.redis_scripts import Script

SETTINGS = settings(
    derandomize=True,
    database=None,
    # A busy machine is no fault, and neither is an example that takes its time there.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # Without Phase.explain, which traces every line and makes all of it many times slower.
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    max_examples=40,
    stateful_step_count=40,
)

#: A second or two each; but that is some hundreds of examples, and a machine may be kept busy.
PATIENTLY = pytest.mark.timeout(900)

#: Examples of one seed in the long form: few enough to be run again soon.
BATCH = 250


def test_store_is_like_the_memory_backend_and_the_model(make_store: Callable[[], Harness]) -> None:
    run_state_machine_as_test(lambda: Stores(make_store, Counter()), settings=SETTINGS)


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_store_is_like_them_for_as_long_as_you_like(make_store: Callable[[], Harness]) -> None:
    first = int(os.environ.get("ANARCHON_SOAK_SEED", "1000"))
    examples = int(os.environ.get("ANARCHON_SOAK_EXAMPLES", "1000"))
    lines: Counter[int] = Counter()
    for number in range(first, first + -(-examples // BATCH)):
        print(f"seed {number}", flush=True)
        machine = seed(number)(lambda: Stores(make_store, lines))
        run_state_machine_as_test(machine, settings=settings(SETTINGS, derandomize=False, max_examples=BATCH))
    print(f"lines of the claim table: {sorted(lines.items())}")
    assert set(lines) == set(range(1, 15)), "a line of the claim table never answered"


# -- A fault would be noticed, and told in few lines.


def steps_that_show(make: Callable[[], Harness]) -> int:
    """The number of calls in what hypothesis tells of the difference between a store and the others.

    Raises:
        AssertionError: it found none.
    """
    # Short examples, for the faults are such that show in two calls; of long ones it takes its time to get there.
    short = settings(SETTINGS, max_examples=500, stateful_step_count=8)
    with pytest.raises(AssertionError) as found:
        run_state_machine_as_test(lambda: Stores(make, Counter()), settings=short)
    lines = [line for note in found.value.__notes__ for line in note.splitlines() if "state." in line]
    assert lines[0].startswith("state.begin(") and lines[-1] == "state.teardown()", lines
    return len(lines[1:-1])


@PATIENTLY
@pytest.mark.parametrize("fault", ["3: a live lease stands in nobody's way", "13: a start minds no overlap"])
def test_fault_in_memory_is_told_in_few_lines(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "claims", rules_with(fault))
    # Two; but the fewest that hypothesis finds are not always the fewest there are.
    assert steps_that_show(MemoryHarness) <= 5


@PATIENTLY
def test_fault_in_sqlite_is_told_in_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory beside it keeps to the rules as they are."""
    monkeypatch.setattr(sqlite, "claims", rules_with("finish: the record is not kept"))
    assert steps_that_show(lambda: SQLiteHarness(tmp_path)) <= 5


@PATIENTLY
def test_changed_line_of_the_real_script_is_told_in_few_lines(redis_url: str) -> None:
    def make() -> Harness:
        store = RedisHarness(redis_url)
        scripts = store._redis._scripts
        right, wrong = b"if run.token == token then return", b"if true then return"  # of line 2
        assert scripts["claim"].text.count(right) == 1
        text = scripts["claim"].text.replace(right, wrong)
        store._redis._scripts = {**scripts, "claim": Script(text, sha1(text, usedforsecurity=False).hexdigest())}
        return store

    assert steps_that_show(make) <= 5


def rules_with(fault: str) -> object:
    return next(mutant for mutant in MUTANTS if str(mutant) == fault).rules()
