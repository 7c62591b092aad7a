"""The demo's judge: it has nothing to say of a log as it should be, and finds each way in which one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anarchon import RunRecord
from anarchon.demo.judge import Facts, expected, judge, passed_over
from anarchon.demo.lines import Line
from anarchon.durations import from_ms

START_MS = 1_700_000_000_000
SINCE_MS, UNTIL_MS = START_MS + 300, START_MS + 10_000
BILLING_MS = START_MS + 2_000


def handled(worker: str, job: str, slot_ms: int, attempt: int = 1, fence: int = 1, end: bool = True) -> list[Line]:
    begin = Line(worker, "begin", slot_ms + 50, job, slot_ms, attempt, fence)
    return [begin, replace(begin, what="end")] if end else [begin]


def record(line: Line, status: str) -> RunRecord:
    slot = from_ms(line.slot_ms)
    return RunRecord(
        line.job, slot, str(line.slot_ms), line.attempt, "scheduled", status, line.worker, line.fence, slot, slot, 0.0
    )


def good() -> Facts:
    """worker-1 is killed at four seconds in the middle of billing, which worker-2 takes over."""
    lines = [Line("worker-1", "ready", START_MS), Line("worker-1", "started", SINCE_MS)]
    for number, (job, slot_ms) in enumerate(expected(SINCE_MS, UNTIL_MS)):
        lines += handled("worker-2" if number % 2 or slot_ms > START_MS + 4_000 else "worker-1", job, slot_ms)
    lines += handled("worker-1", "billing", BILLING_MS, attempt=1, fence=10, end=False)
    lines += handled("worker-2", "billing", BILLING_MS, attempt=2, fence=11)
    history = [record(line, "success") for line in lines if line.what == "end"]
    history += [record(line, "lost") for line in lines if line.what == "begin" and line.fence == 10]
    return Facts(lines, history, "worker-1", {"worker-1": -9, "worker-2": 0}, SINCE_MS, UNTIL_MS)


def without(facts: Facts, gone: Callable[[Line], bool]) -> Facts:
    return replace(facts, lines=[line for line in facts.lines if not gone(line)])


def changed(facts: Facts, which: Callable[[Line], bool], **values: object) -> Facts:
    lines = [replace(line, **values) if which(line) else line for line in facts.lines]  # type: ignore[arg-type]
    return replace(facts, lines=lines)


def rewritten(facts: Facts, which: Callable[[RunRecord], bool], **values: object) -> Facts:
    history = [replace(r, **values) if which(r) else r for r in facts.history]  # type: ignore[arg-type]
    return replace(facts, history=history)


def is_billing(attempt: int, what: str | None = None) -> Callable[[Line | RunRecord], bool]:
    def check(one: Line | RunRecord) -> bool:
        right_kind = what is None or (isinstance(one, Line) and one.what == what)
        return one.job == "billing" and one.attempt == attempt and right_kind

    return check


def test_a_log_as_it_should_be_has_no_fault() -> None:
    assert judge(good()) == []


def test_every_slot_after_the_first_instant_and_up_to_the_second_is_expected() -> None:
    ticks = [slot_ms for job, slot_ms in expected(START_MS, UNTIL_MS) if job == "tick"]
    reports = [slot_ms for job, slot_ms in expected(START_MS, UNTIL_MS) if job == "report"]
    assert ticks == list(range(START_MS + 1_000, UNTIL_MS + 1, 1_000))
    assert reports == [START_MS + 5_000, UNTIL_MS]


def test_a_slot_that_ran_twice_is_found() -> None:
    facts = good()
    again = [*facts.lines, *handled("worker-1", "tick", UNTIL_MS)]
    assert judge(replace(facts, lines=again)) == ["The slot 22:13:30 of tick ran twice: worker-2, then worker-1."]


def test_a_slot_that_the_same_worker_ran_twice_is_found() -> None:
    facts = good()
    again = [*facts.lines, *handled("worker-2", "tick", UNTIL_MS)]
    assert judge(replace(facts, lines=again)) == ["The slot 22:13:30 of tick ran twice: worker-2, then worker-2."]


def test_a_slot_that_begins_again_after_a_run_cut_short_is_a_takeover_only_as_the_next_attempt() -> None:
    facts = changed(good(), is_billing(2), attempt=3)
    assert "The slot 22:13:22 of billing ran twice: worker-1, then worker-2." in judge(facts)


def test_a_slot_that_begins_again_though_nobody_was_killed_is_found() -> None:
    facts = changed(good(), is_billing(1, "begin"), worker="worker-2")
    assert "The slot 22:13:22 of billing ran twice: worker-2, then worker-2." in judge(facts)


def test_a_slot_that_was_not_run_is_found() -> None:
    facts = good()
    slot_ms = START_MS + 6_000
    lost = without(facts, lambda line: line.job == "tick" and line.slot_ms == slot_ms)
    lost = replace(lost, history=[r for r in facts.history if r.run_id != str(slot_ms)])
    assert judge(lost) == ["The slot 22:13:26 of tick was not run: nobody says why."]
    told = replace(lost, lines=[*lost.lines, Line("worker-1", "late", slot_ms + 900, "tick", slot_ms)])
    assert judge(told) == ["The slot 22:13:26 of tick was not run: worker-1 came too late for it."]


def late(facts: Facts, *slots_ms: int, by: tuple[str, ...] = ("worker-1", "worker-2")) -> Facts:
    """Nobody ran these slots of tick, and each of those says that it was late for them."""
    facts = without(facts, lambda line: line.job == "tick" and line.slot_ms in slots_ms)
    told = [Line(name, "late", slot_ms + 1_100, "tick", slot_ms) for slot_ms in slots_ms for name in by]
    kept = [r for r in facts.history if r.job != "tick" or int(r.run_id) not in slots_ms]
    return replace(facts, lines=[*facts.lines, *told], history=kept)


def test_a_slot_for_which_all_who_lived_came_too_late_is_no_fault_and_counted() -> None:
    facts = late(good(), START_MS + 3_000)
    assert judge(facts) == []
    assert passed_over(facts) == {("tick", START_MS + 3_000)}
    after_the_kill = late(good(), START_MS + 6_000, by=("worker-2",))
    assert judge(after_the_kill) == []
    assert passed_over(good()) == set()


def test_a_slot_for_which_one_of_two_came_too_late_is_found() -> None:
    facts = replace(late(good(), START_MS + 3_000, by=("worker-2",)), killed=None)
    assert "The slot 22:13:23 of tick was not run: worker-2 came too late for it." in judge(facts)


def test_more_slots_that_passed_than_were_run_are_a_fault() -> None:
    facts = late(good(), *range(START_MS + 1_000, START_MS + 8_000, 1_000))
    assert judge(facts) == ["7 of 12 slots were not run: all workers came too late for them."]


def test_a_slot_that_began_and_did_not_end_was_not_run() -> None:
    slot_ms = START_MS + 6_000
    facts = without(good(), lambda line: line.job == "tick" and line.slot_ms == slot_ms and line.what == "end")
    assert "The slot 22:13:26 of tick was not run: nobody says why." in judge(facts)


def test_jobs_that_fall_silent_after_the_kill_are_found() -> None:
    facts = without(good(), lambda line: line.job in ("tick", "report") and line.slot_ms > START_MS + 4_000)
    assert sum("was not run" in fault for fault in judge(facts)) == 6 + 2


def test_no_kill_is_a_fault() -> None:
    assert judge(replace(good(), killed=None))[0] == "No worker was killed in the middle of billing."


def test_a_kill_that_came_after_the_end_of_the_run_is_a_fault() -> None:
    facts = good()
    lines = [*facts.lines, *handled("worker-1", "billing", BILLING_MS, attempt=1, fence=10)[1:]]
    assert "Attempt 1 of billing was not cut short on worker-1." in judge(replace(facts, lines=lines))


def test_a_run_that_nobody_takes_over_is_a_fault() -> None:
    assert "Nobody took billing over from worker-1." in judge(without(good(), is_billing(2)))


def test_a_takeover_that_does_not_finish_is_a_fault() -> None:
    assert "worker-2 took billing over and did not finish it." in judge(without(good(), is_billing(2, "end")))


@pytest.mark.parametrize("fence", [9, 10])
def test_a_fence_that_does_not_grow_is_a_fault(fence: int) -> None:
    facts = changed(good(), is_billing(2), fence=fence)
    assert f"The fence of attempt 2 ({fence}) is not greater than that of attempt 1 (10)." in judge(facts)


def test_a_history_without_the_lost_attempt_is_a_fault() -> None:
    facts = good()
    facts = replace(facts, history=[r for r in facts.history if r.status != "lost"])
    assert judge(facts) == [
        "The history of billing should have attempt 1 lost and attempt 2 success; it has attempt 2 success."
    ]


def test_a_history_that_calls_the_lost_attempt_something_else_is_a_fault() -> None:
    facts = rewritten(good(), is_billing(1), status="interrupted")
    assert judge(facts) == [
        "The history of billing should have attempt 1 lost and attempt 2 success;"
        " it has attempt 1 interrupted, attempt 2 success."
    ]


def test_a_history_with_the_workers_confused_is_a_fault() -> None:
    facts = rewritten(good(), is_billing(1), instance_id="worker-2")
    assert judge(facts) == ["The history of billing names the wrong workers."]


@pytest.mark.parametrize("values", [{"fence": 11}, {"fence": 12}, {"run_id": "other"}])
def test_attempts_in_the_history_that_are_not_one_run_with_a_growing_fence_are_a_fault(
    values: dict[str, object],
) -> None:
    facts = rewritten(good(), is_billing(1), **values)
    assert judge(facts) == ["The attempts of billing in the history are not one run with a growing fence."]


def test_a_run_that_is_not_in_the_history_is_a_fault() -> None:
    facts = good()
    facts = replace(facts, history=[r for r in facts.history if r.run_id != str(UNTIL_MS) or r.job != "tick"])
    assert judge(facts) == ["Log and history disagree on attempt 1 of the slot 22:13:30 of tick."]


def test_a_run_in_the_history_that_no_handler_knows_of_is_a_fault() -> None:
    facts = good()
    other = replace(record(handled("worker-2", "tick", UNTIL_MS + 1_000)[0], "success"))
    assert judge(replace(facts, history=[*facts.history, other])) == [
        "Log and history disagree on attempt 1 of the slot 22:13:31 of tick."
    ]


def test_a_survivor_that_does_not_end_in_order_is_a_fault() -> None:
    facts = replace(good(), exit_codes={"worker-1": -9, "worker-2": 1})
    assert judge(facts) == ["worker-2 ended with exit code 1."]


def test_a_demo_in_which_nothing_happened_has_faults() -> None:
    assert judge(Facts([], [], None, {"worker-1": 0, "worker-2": 0}, SINCE_MS, UNTIL_MS))
