"""Each rule left out is noticed: by the walks beside the model, or, where they seldom come by, by a named test."""

from __future__ import annotations

import pytest
import test_first_claims
import test_what_is_kept
from harness import Harness, MemoryHarness
from mutants import MUTANTS, Mutant
from walks import first_difference

from anarchon.backends import memory

#: What is forgotten after ten minutes takes more than a walk to tell from what is not.
BY_NAME = {
    "10: the newest slot has not passed": test_first_claims.test_finished_run_that_was_forgotten_has_passed,
    "remembered: for ten minutes however long the lease": lambda store: (
        test_what_is_kept.test_end_is_remembered_for_ten_minutes_and_for_two_leases(store, 400_000, 800_000)
    ),
    "remembered: for two leases however short": lambda store: (
        test_what_is_kept.test_end_is_remembered_for_ten_minutes_and_for_two_leases(store, 30_000, 600_000)
    ),
}


def noticed_by_name(mutant: Mutant) -> bool:
    store: Harness = MemoryHarness()
    try:
        BY_NAME[str(mutant)](store)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "claims", mutant.rules())
    if str(mutant) in BY_NAME:
        assert noticed_by_name(mutant)
    else:
        assert any(first_difference(MemoryHarness, seed, 300) for seed in range(150))


def test_rules_without_a_fault_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the rules as they are behaves as they do, so it is the fault that is noticed and not the copying."""
    monkeypatch.setattr(
        memory,
        "claims",
        Mutant("none", "none", "run = job.runs.get(request.run_id)", "run = job.runs.get(request.run_id)").rules(),
    )
    assert not any(first_difference(MemoryHarness, seed, 300) for seed in range(10))


def test_the_table_names_the_tests_that_are_named_here() -> None:
    assert {str(mutant) for mutant in MUTANTS if mutant.noticed_by} == set(BY_NAME)


def test_every_line_of_the_claim_table_and_every_other_call_has_a_mutant() -> None:
    lines = {line for mutant in MUTANTS for line in mutant.rule.split(", ")}
    calls = {"heartbeat", "finish", "release", "save_result", "active"}
    assert {str(number) for number in range(1, 15)} | calls <= lines
