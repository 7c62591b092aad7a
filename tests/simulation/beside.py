"""The simulated store, judged: every call is also done by the plain model of the protocol, and must be answered alike.

The two are asked one after the other on one clock, in the order in which the calls reach the server. Neither knows the
other: the model was written from ``docs/protocol.rst`` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from model import Model

from anarchon.backends import LeaseBackend
from anarchon.backends.memory import MemoryBackend
from anarchon.clock import Clock
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, Outcome, RunRecord, Verdict

__all__ = ["BesideTheModel"]

#: Answers that change nothing: where the page leaves open whether an end is still remembered, each is as good.
_CHANGE_NOTHING = (Verdict.LOST, Verdict.FINISHED, Outcome.DONE, Outcome.LATE, Outcome.NONE, Outcome.OVERLAP)


class BesideTheModel(LeaseBackend):
    """A store in memory and the model; the store's answers are the ones that count.

    Args:
        complain: told of the first answer that differs. The two may go on differing from then on: no more is said.
        every: after so many calls what is kept of a job is compared as well. Seldom, in a long storm: the model keeps
            lists.
    """

    def __init__(self, clock: Clock, complain: Callable[[str], object], every: int = 50) -> None:
        self.store = MemoryBackend(clock)
        self._model = Model(clock.now_ms)
        self._complain = complain
        self._every = every
        self._agree = True
        self._calls = 0

    def claim(self, request: ClaimRequest) -> ClaimReply:
        return self._both("claim", request.job, request)

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        return self._both("heartbeat", job, job, run_id, token, lease_ms)

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        return self._both("finish", job, job, run_id, token, record)

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        return self._both("release", job, job, run_id, token, record, counts)

    def save_result(self, job: str, record: RunRecord) -> None:
        self._both("save_result", job, job, record)

    def time(self, job: str) -> int:
        return self.store.time(job)

    def active(self, job: str) -> list[ActiveRun]:
        return self._both("active", job, job)

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._both("history", job, job, limit)

    def forget(self, job: str) -> None:
        self._both("forget", job, job)

    def compare_what_is_kept(self, jobs: Sequence[str]) -> None:
        """The unfinished runs, and the whole history."""
        for job in jobs:
            self.active(job)
            self.history(job, 1_000_000)

    @property
    def lines(self) -> Counter[int]:
        """How often each line of the claim table has answered."""
        return self._model.lines

    def _both(self, verb: str, job: str, *values: Any) -> Any:
        answer = getattr(self.store, verb)(*values)
        if self._agree:
            expected = getattr(self._model, verb)(*values)
            if answer != expected and not self._left_open(verb, values, answer, expected):
                self._agree = False
                self._complain(f"{verb}{values} was answered\n  by the store {answer}\n  by the model {expected}")
            self._calls += 1
            # Where it is compared after every call, the comparison's own are none.
            if self._calls % self._every == 0 and (self._every > 1 or verb not in ("active", "history")):
                self.compare_what_is_kept([job])
        return answer

    def _left_open(self, verb: str, values: tuple[Any, ...], answer: Any, expected: Any) -> bool:
        """Whether the answer depends on an end that the store may have forgotten by now, and changes nothing."""
        if verb == "claim":
            request = values[0]
            same_end = self._model.left_open(request.job, request.run_id, request.token)
            return same_end and answer.outcome in _CHANGE_NOTHING
        if verb in ("heartbeat", "finish", "release"):
            return self._model.left_open(values[0], values[1], values[2]) and answer in _CHANGE_NOTHING
        return False
