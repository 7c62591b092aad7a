"""The store of a simulation and the way to it: calls that take time, get lost, or come back late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beside import BesideTheModel
from kernel import Kernel, SimClock, Where

from anarchon.backends import LeaseBackend
from anarchon.errors import BackendError
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict

if TYPE_CHECKING:
    from conduct import Conduct

__all__ = ["Line", "Server", "Weather"]


class Server:
    """The one store. What it decides is ``MemoryBackend``'s; that it may be away, or lose all it had, is ours.

    Args:
        complain: told where the model of the protocol's page would have answered otherwise.
        compare_every: after so many calls the model's idea of what is kept is compared as well.
    """

    def __init__(self, kernel: Kernel, complain: Callable[[str], object], compare_every: int = 50) -> None:
        self.clock = SimClock(kernel)
        self.up = True
        self._complain = complain
        self._compare_every = compare_every
        self.lose_everything()

    def lose_everything(self) -> None:
        self.store = BesideTheModel(self.clock, self._complain, self._compare_every)


@dataclass
class Weather:
    """What becomes of one host's calls at the moment; chances are of a thousand.

    Attributes:
        longest_ms: how long a call is on its way, and so its answer. latest_ms: how late a late call is done.
    """

    cut_off: bool = False
    lost_requests: int = 0
    late_requests: int = 0
    lost_answers: int = 0
    late_answers: int = 0
    done_again: int = 0
    longest_ms: int = 3
    latest_ms: int = 12_000

    @property
    def fair(self) -> bool:
        chances = (self.lost_requests, self.late_requests, self.lost_answers, self.late_answers, self.done_again)
        return not self.cut_off and not any(chances)


class Line(LeaseBackend):
    """One host's way to the server. A call that raised may have happened all the same."""

    def __init__(self, kernel: Kernel, server: Server, where: Where, reached: Counter[str]) -> None:
        self._kernel = kernel
        self._server = server
        self._where = where
        self._reached = reached
        self._time_out_ms = 10_000
        self.weather = Weather()
        #: When a call was last done though its sender had given up: of a host that is gone, it may renew a lease.
        self.last_late_ms = 0
        #: Watches what goes this way, and the rest of what its host does.
        self.conduct: Conduct

    def __repr__(self) -> str:
        return f"<Line of {self._where.name}>"

    def bound_calls(self, limit_ms: int) -> None:
        self._time_out_ms = min(self._time_out_ms, limit_ms)

    def claim(self, request: ClaimRequest) -> ClaimReply:
        return self._call("claim", request)

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        return self._call("heartbeat", job, run_id, token, lease_ms)

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        return self._call("finish", job, run_id, token, record)

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        return self._call("release", job, run_id, token, record, counts)

    def save_result(self, job: str, record: RunRecord) -> None:
        self._call("save_result", job, record)

    def time(self, job: str) -> int:
        return self._call("time", job)

    def active(self, job: str) -> list[ActiveRun]:
        return self._call("active", job)

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._call("history", job, limit)

    def forget(self, job: str) -> None:
        self._call("forget", job)

    def _call(self, verb: str, *values: Any) -> Any:
        sent_ms = self._kernel.now_ms
        self.conduct.sent(verb, values)
        try:
            answer = self._carry(verb, values)
        except BackendError:
            self.conduct.failed(verb, values, sent_ms)
            raise
        self.conduct.answered(verb, values, sent_ms, answer)
        return answer

    def _carry(self, verb: str, values: tuple[Any, ...]) -> Any:
        kernel, weather, draw = self._kernel, self.weather, self._kernel.random.randrange
        gives_up_ms = kernel.now_ms + self._time_out_ms
        kernel.sleep(draw(weather.longest_ms + 1))
        if self._unreachable() or draw(1000) < weather.lost_requests:
            self._give_up(gives_up_ms)
        if draw(1000) < weather.late_requests:
            # It lies about somewhere, and is done when its sender has given up and may even be gone.
            later_ms = draw(weather.latest_ms)
            kernel.spawn(kernel.controller.where, lambda: self._do_later(later_ms, verb, values))
            self._give_up(gives_up_ms)
        answer = self._do(verb, values)
        if weather.done_again and draw(1000) < weather.done_again:
            # Something between the two has sent it twice.
            again_ms = draw(weather.latest_ms)
            kernel.spawn(kernel.controller.where, lambda: self._do_later(again_ms, verb, values))
        if draw(1000) < weather.late_answers:
            kernel.sleep(draw(max(1, gives_up_ms - kernel.now_ms)))
        else:
            kernel.sleep(draw(weather.longest_ms + 1))
        # A host that stood still meanwhile finds its time-out over, though the answer is there.
        if self._unreachable() or draw(1000) < weather.lost_answers or kernel.now_ms > gives_up_ms:
            self._give_up(gives_up_ms)
        return answer

    def _do(self, verb: str, values: tuple[Any, ...]) -> Any:
        """The call reaches the store."""
        answer = getattr(self._server.store, verb)(*values)
        if isinstance(answer, ClaimReply):
            what = f"{values[0].mode.value} {answer.outcome.value}"
            self._reached[f"claim: {what}" + (f" ({answer.done.value})" if answer.done else "")] += 1
            if answer.attempt is not None and answer.attempt > 1:
                self._reached["takeover"] += 1
        elif isinstance(answer, Verdict):
            self._reached[f"{verb}: {answer.value}"] += 1
        else:
            self._reached[verb] += 1
        return answer

    def _do_later(self, later_ms: int, verb: str, values: tuple[Any, ...]) -> None:
        self._kernel.sleep(later_ms)
        if self._server.up:
            self._reached["a call done late"] += 1
            self.last_late_ms = self._kernel.now_ms
            self._do(verb, values)

    def _unreachable(self) -> bool:
        return self.weather.cut_off or not self._server.up

    def _give_up(self, when_ms: int) -> None:
        self._kernel.sleep(max(0, when_ms - self._kernel.now_ms))
        self._reached["a call without an answer"] += 1
        raise BackendError("no answer came in time")
