"""The store of a simulation and the way to it: calls that take time, get lost, or come back late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from beside import BesideTheModel
from kernel import Kernel, SimClock, Where

from anarchon.backends import LeaseBackend
from anarchon.errors import BackendError
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict

__all__ = ["Line", "Server", "Weather"]

_T = TypeVar("_T")

#: How late a call may be done at the latest.
_LATEST_MS = 12_000


class Server:
    """The one store. What it decides is ``MemoryBackend``'s; that it may be away, or lose all it had, is ours.

    Args:
        complain: told where the model of the protocol's page would have answered otherwise.
    """

    def __init__(self, kernel: Kernel, complain: Callable[[str], object]) -> None:
        self.clock = SimClock(kernel)
        self.up = True
        self._complain = complain
        self.lose_everything()

    def lose_everything(self) -> None:
        self.store = BesideTheModel(self.clock, self._complain)


@dataclass
class Weather:
    """What becomes of one host's calls at the moment; chances are of a thousand."""

    cut_off: bool = False
    lost_requests: int = 0
    late_requests: int = 0
    lost_answers: int = 0
    late_answers: int = 0
    longest_ms: int = 3

    @property
    def fair(self) -> bool:
        return not (self.cut_off or self.lost_requests or self.late_requests or self.lost_answers or self.late_answers)


class Line(LeaseBackend):
    """One host's way to the server. A call that raised may have happened all the same."""

    def __init__(self, kernel: Kernel, server: Server, where: Where, reached: Counter[str]) -> None:
        self._kernel = kernel
        self._server = server
        self._where = where
        self._reached = reached
        self._time_out_ms = 10_000
        self.weather = Weather()

    def __repr__(self) -> str:
        return f"<Line of {self._where.name}>"

    def bound_calls(self, limit_ms: int) -> None:
        self._time_out_ms = min(self._time_out_ms, limit_ms)

    def claim(self, request: ClaimRequest) -> ClaimReply:
        def ask(store: LeaseBackend) -> ClaimReply:
            reply = store.claim(request)
            what = f"{request.mode.value} {reply.outcome.value}"
            self._reached[f"claim: {what}" + (f" ({reply.done.value})" if reply.done else "")] += 1
            if reply.attempt is not None and reply.attempt > 1:
                self._reached["takeover"] += 1
            return reply

        return self._call(ask)

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        return self._verdict("heartbeat", lambda store: store.heartbeat(job, run_id, token, lease_ms))

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        return self._verdict("finish", lambda store: store.finish(job, run_id, token, record))

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        return self._verdict("release", lambda store: store.release(job, run_id, token, record, counts))

    def save_result(self, job: str, record: RunRecord) -> None:
        self._reached["save_result"] += 1
        self._call(lambda store: store.save_result(job, record))

    def time(self, job: str) -> int:
        return self._call(lambda store: store.time(job))

    def active(self, job: str) -> list[ActiveRun]:
        return self._call(lambda store: store.active(job))

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._call(lambda store: store.history(job, limit))

    def forget(self, job: str) -> None:
        self._call(lambda store: store.forget(job))

    def _verdict(self, verb: str, call: Callable[[LeaseBackend], Verdict]) -> Verdict:
        verdict = self._call(call)
        self._reached[f"{verb}: {verdict.value}"] += 1
        return verdict

    def _call(self, call: Callable[[LeaseBackend], _T]) -> _T:
        kernel, weather, draw = self._kernel, self.weather, self._kernel.random.randrange
        gives_up_ms = kernel.now_ms + self._time_out_ms
        kernel.sleep(draw(weather.longest_ms + 1))
        if self._unreachable() or draw(1000) < weather.lost_requests:
            self._give_up(gives_up_ms)
        if draw(1000) < weather.late_requests:
            # It lies about somewhere, and is done when its sender has given up and may even be gone.
            later_ms = draw(_LATEST_MS)
            kernel.spawn(kernel.controller.where, lambda: self._do_later(later_ms, call))
            self._give_up(gives_up_ms)
        answer = call(self._server.store)
        if draw(1000) < weather.late_answers:
            kernel.sleep(draw(max(1, gives_up_ms - kernel.now_ms)))
        else:
            kernel.sleep(draw(weather.longest_ms + 1))
        # A host that stood still meanwhile finds its time-out over, though the answer is there.
        if self._unreachable() or draw(1000) < weather.lost_answers or kernel.now_ms > gives_up_ms:
            self._give_up(gives_up_ms)
        return answer

    def _do_later(self, later_ms: int, call: Callable[[LeaseBackend], object]) -> None:
        self._kernel.sleep(later_ms)
        if self._server.up:
            self._reached["a call done late"] += 1
            call(self._server.store)

    def _unreachable(self) -> bool:
        return self.weather.cut_off or not self._server.up

    def _give_up(self, when_ms: int) -> None:
        self._kernel.sleep(max(0, when_ms - self._kernel.now_ms))
        self._reached["a call without an answer"] += 1
        raise BackendError("no answer came in time")
