"""What must always hold, watched from the outside: by the answers that callers get, and by what readers see.

It knows nothing of the claim table, only of the promises that the table is for (docs/protocol.rst, "What must always
hold"; the numbers are those of that list). The eighth is for the instances to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness import Harness
from walks import JOB, Step

from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, DoneReason, Outcome, RunRecord, Verdict


@dataclass
class Attempt:
    """One attempt that was granted, as a careful onlooker knows it."""

    request: ClaimRequest
    reply: ClaimReply
    until_ms: int
    lease_ms: int
    over: bool = False  # whether the store's clock has reached the lease's end since its last renewal
    released: bool = False
    counted: bool = True
    finished: bool = False

    def renewed(self, now_ms: int, lease_ms: int) -> None:
        self.until_ms, self.lease_ms, self.over = now_ms + lease_ms, lease_ms, False

    def look_at(self, now_ms: int) -> None:
        self.until_ms = min(self.until_ms, now_ms + self.lease_ms)
        self.over |= self.until_ms <= now_ms


@dataclass
class Seen:
    """What readers see of a job."""

    active: list[ActiveRun]
    history: list[RunRecord]

    def holds(self, run_id: str) -> bool:
        return any(run.run_id == run_id for run in self.active)


@dataclass
class Watch:
    """Takes the steps of a walk on one store, and checks every promise after each.

    The walk must keep its whole history and must not last longer than finished runs are remembered.
    """

    harness: Harness
    job: str = JOB
    runs: dict[str, list[Attempt]] = field(default_factory=dict)

    def take(self, step: Step) -> Any:
        before = self._look()
        answer = step.take(self.harness)
        now_ms, after = self.harness.backend.time(self.job), self._look()
        if step.call == "claim":
            self._claimed(step.values[0], answer, now_ms, before, after)
        elif step.call == "heartbeat":
            _, run_id, token, lease_ms = step.values
            if answer is Verdict.OK:
                assert self._holder(run_id, token), "4: a renewal by a token that does not hold the run"
                self.runs[run_id][-1].renewed(now_ms, lease_ms)
                assert before.history == after.history
            else:
                assert before == after, "4: a renewal that was refused changed something"
        elif step.call in ("finish", "release"):
            self._ended(step, answer, before, after)
        elif step.call == "save_result":
            key = step.values[1].run_id, step.values[1].attempt
            assert before.active == after.active, "4: a result that was saved changed a run"
            assert others(before.history, key) == others(after.history, key), "4: it changed another record"
        self._always(now_ms, after)
        return answer

    def look(self) -> None:
        """To be called after each move of the clock that was not taken as a step."""
        self._always(self.harness.backend.time(self.job), self._look())

    def _claimed(self, ask: ClaimRequest, reply: ClaimReply, now_ms: int, before: Seen, after: Seen) -> None:
        attempts = self.runs.get(ask.run_id, [])
        if reply.outcome is not Outcome.WON:
            if reply.done in (DoneReason.SUPERSEDED, DoneReason.EXHAUSTED):
                assert not after.holds(ask.run_id)
                assert attempts[-1].released or attempts[-1].over, "1: a run was closed under its live lease"
            else:
                assert before == after, "4: a claim that won nothing changed something"
            return
        if attempts and attempts[-1].request.token == ask.token:
            last = attempts[-1]
            assert not last.released and not last.finished, "3: a late repeat revived an attempt that had ended"
            assert (reply.attempt, reply.fence) == (last.reply.attempt, last.reply.fence), "a repeat, another answer"
            assert reply.latest_ms == last.reply.latest_ms, "a repeat, another latest"
            assert before.history == after.history
            last.renewed(now_ms, ask.lease_ms)
            return
        assert all(attempt.request.token != ask.token for attempt in attempts), "4: a late repeat won a new attempt"
        assert reply.attempt == len(attempts) + 1, "2: attempts do not count up"
        assert reply.fence > max((a.reply.fence for a in self._attempts()), default=0), "2: the fence did not grow"
        if attempts:
            assert before.holds(ask.run_id), "3: a run that was over has been granted again"
            assert not ask.manual, "2: a second attempt of a manual run"
            assert attempts[-1].released or attempts[-1].over, "1: granted under a live lease"
            assert sum(attempt.counted for attempt in attempts) < ask.max_attempts, "2: more attempts than allowed"
        if not ask.manual:
            # A clock may step back over the slot of a run that has begun; taking that over starts nothing.
            assert attempts or ask.slot_ms <= now_ms, "6: started before its slot"
            # The table ignores a newest slot that a stepped clock has put into the future, and with it the older ones.
            newest_ms = max((a.request.slot_ms for a in self._attempts() if not a.request.manual), default=0)
            assert not ask.slot_ms < newest_ms <= now_ms, "3: granted after a newer slot"
        self.runs.setdefault(ask.run_id, []).append(Attempt(ask, reply, now_ms + ask.lease_ms, ask.lease_ms))

    def _ended(self, step: Step, answer: Verdict, before: Seen, after: Seen) -> None:
        run_id, token = step.values[1:3]
        if answer is not Verdict.OK:
            assert before == after, "4: an end that was refused changed something"
            return
        if not self._holder(run_id, token):
            mine = [attempt for attempt in self.runs[run_id] if attempt.request.token == token]
            assert any(attempt.finished or attempt.released for attempt in mine), "4: ended by a stranger"
            assert before == after, "the repeat of an end changed something"
            return
        last = self.runs[run_id][-1]
        last.finished = step.call == "finish" or last.request.manual
        last.released = not last.finished
        last.counted = last.finished or step.values[4]
        assert after.holds(run_id) is last.released
        record = next(r for r in after.history if (r.run_id, r.attempt) == (run_id, last.reply.attempt))
        assert (record.status, record.fence) == (step.values[3].status, last.reply.fence)

    def _always(self, now_ms: int, seen: Seen) -> None:
        for attempt in self._attempts():
            attempt.look_at(now_ms)
        live = [run for run in seen.active if run.lease_left > 0]
        for run in seen.active:
            last = self.runs[run.run_id][-1]
            assert (run.attempt, run.fence) == (last.reply.attempt, last.reply.fence), "1: two hold one run"
        assert len({run.run_id for run in seen.active}) == len(seen.active), "1: two hold one run"
        if len(live) > 1:
            rules = {self.runs[run.run_id][-1].request.overlap for run in live}
            assert rules == {"allow"}, f"5: overlapping runs {[run.run_id for run in live]}"
        keys = [(record.run_id, record.attempt) for record in seen.history]
        assert len(set(keys)) == len(keys), "7: two records of one attempt"
        for attempt in self._attempts():
            key = attempt.request.run_id, attempt.reply.attempt
            held = attempt is self.runs[key[0]][-1] and seen.holds(key[0]) and not attempt.released
            assert held or key in keys, f"7: no record of {key}"
        assert set(keys) <= {(a.request.run_id, a.reply.attempt) for a in self._attempts()}, "7: a record of nothing"

    def _look(self) -> Seen:
        return Seen(self.harness.backend.active(self.job), self.harness.backend.history(self.job, 10_000))

    def _holder(self, run_id: str, token: str) -> bool:
        attempts = self.runs.get(run_id, [])
        last = attempts[-1] if attempts else None
        return last is not None and last.request.token == token and not last.released and not last.finished

    def _attempts(self) -> Iterator[Attempt]:
        for attempts in self.runs.values():
            yield from attempts


def others(history: list[RunRecord], key: tuple[str, int]) -> list[RunRecord]:
    return [record for record in history if (record.run_id, record.attempt) != key]
