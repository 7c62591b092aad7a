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
from anarchon.records import Verdict

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


def test_token_that_had_released_the_run_long_ago_may_hold_it_again(store: Harness) -> None:
    """A release is remembered for two leases, which may be longer than the end of the same run is.

    1. A token releases a run; its lease was long. Another finishes the run; its lease was short.
    2. That end is forgotten. A newer slot is granted, and the store's clock steps back to before it.
    3. The first token asks again, late, and is granted what is now an unknown run. It is the holder like any other.
    """
    for slot in (store.slot(0), store.slot(1)):
        store.won(slot, "first", lease_ms=400_000, overlap="allow", window_ms=60_000)
        store.release(slot, "first")
        store.won(slot, "second", lease_ms=5_000, overlap="allow")
        store.finish(slot, "second")
        store.advance(10_000)
    store.advance(680_000)
    for number in range(16):
        store.won(f"m{number}", f"t{number}")
        store.finish(f"m{number}", f"t{number}")
    store.won(store.slot(70), "newer", overlap="allow")
    store.step(-10_000)
    for slot in (store.slot(0), store.slot(1)):
        store.won(slot, "first", overlap="allow", window_ms=3_600_000)
        assert store.heartbeat(slot, "first") is Verdict.OK
    assert store.finish(store.slot(0), "first") is Verdict.OK
    assert store.finish(store.slot(0), "first") is Verdict.OK  # the answer was lost
    assert store.release(store.slot(1), "first") is Verdict.OK
    assert (str(store.slot(1)), 1, 0.0) in store.unfinished()


# -- A fault would be noticed, and told in few lines.


def steps_that_show(make: Callable[[], Harness]) -> int:
    """The number of calls in what hypothesis tells of the difference between a store and the others.

    Raises:
        AssertionError: it found none.
    """
    # Short examples, for the faults are such that show in one call or two; from a long one it is a long way there.
    short = settings(SETTINGS, max_examples=500, stateful_step_count=5)
    with pytest.raises(AssertionError) as found:
        run_state_machine_as_test(lambda: Stores(make, Counter()), settings=short)
    lines = [line for note in found.value.__notes__ for line in note.splitlines() if "state." in line]
    assert lines[0].startswith("state.begin(") and lines[-1] == "state.teardown()", lines
    return len(lines[1:-1])


@PATIENTLY
@pytest.mark.parametrize("fault", ["3: a live lease stands in nobody's way", "13: a start minds no overlap"])
def test_fault_in_memory_is_told_in_few_lines(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "claims", rules_with(fault))
    # It takes two; but the fewest that hypothesis finds are not always the fewest there are.
    assert steps_that_show(MemoryHarness) <= 4


@PATIENTLY
def test_fault_in_sqlite_is_told_in_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory beside it keeps to the rules as they are."""
    monkeypatch.setattr(sqlite, "claims", rules_with("finish: the record is not kept"))
    assert steps_that_show(lambda: SQLiteHarness(tmp_path)) <= 4


@PATIENTLY
def test_changed_line_of_the_real_script_is_told_in_few_lines(redis_url: str) -> None:
    def make() -> Harness:
        store = RedisHarness(redis_url)
        scripts = store._redis._scripts
        right, wrong = b"if slot_ms > now_ms then", b"if false then"  # of line 9
        assert scripts["claim"].text.count(right) == 1
        text = scripts["claim"].text.replace(right, wrong)
        store._redis._scripts = {**scripts, "claim": Script(text, sha1(text, usedforsecurity=False).hexdigest())}
        return store

    assert steps_that_show(make) <= 3


def rules_with(fault: str) -> object:
    return next(mutant for mutant in MUTANTS if str(mutant) == fault).rules()
