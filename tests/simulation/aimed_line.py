"""A way to the store on which each call may be struck, step by step; and the steps of the library's own threads."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

from fleet_of_hosts import Host
from network import Line

from anarchon.errors import BackendError
from anarchon.records import ClaimReply, ClaimRequest, Verdict

if TYPE_CHECKING:
    from aimed import AimedFleet

__all__ = ["AimedLine", "OnItsWay", "steps_of_the_library"]


@dataclass
class OnItsWay:
    """One call, as far as it can be meddled with."""

    line: AimedLine
    verb: str
    values: tuple[Any, ...]
    gives_up_ms: int
    lost: bool = False
    held: bool = False
    late_ms: int = 0
    again_ms: int | None = None
    refused: type[Exception] | None = None

    def facts(self, host: str, answer: object = None) -> dict[str, object]:
        facts: dict[str, object] = {"host": host, "job": self.values[0]}
        if isinstance(self.values[0], ClaimRequest):
            request = self.values[0]
            facts |= {"job": request.job, "mode": "manual" if request.manual else request.mode.value}
        if isinstance(answer, ClaimReply):
            facts |= {"answer": answer.outcome.value, "attempt": answer.attempt}
        elif isinstance(answer, Verdict):
            facts["answer"] = answer.value
        return facts


class AimedLine(Line):
    """A way to the store on which every call takes its steps one by one, and may be struck at each."""

    def __init__(self, fleet: AimedFleet, host: Host) -> None:
        super().__init__(fleet.kernel, fleet.server, host.where, fleet.reached)
        self._fleet = fleet
        self._host = host
        self.weather = fleet.fair_weather()
        #: What the last call that failed here failed of.
        self.failed_of = ""

    def _carry(self, verb: str, values: tuple[Any, ...]) -> Any:
        kernel = self._kernel
        call = OnItsWay(self, verb, values, kernel.now_ms + self._time_out_ms)
        self._take("sent", call)
        self._go(0, call)
        if call.refused is not None:
            self._fail(call.refused)
        if self._unreachable() or call.held or (call.lost and not call.late_ms):
            self._no_answer(call)
        if kernel.now_ms + call.late_ms > call.gives_up_ms:
            late_ms = call.late_ms
            kernel.spawn(kernel.controller.where, lambda: self._do_later(late_ms, verb, values))
            self._no_answer(call)
        if call.late_ms:
            kernel.sleep(call.late_ms)
            if not self._server.up:
                self._no_answer(call)
        answer = self._do(verb, values)
        call.late_ms = 0
        self._take("done", call, answer)
        if call.again_ms is not None:
            again_ms = call.again_ms
            kernel.spawn(kernel.controller.where, lambda: self._do_later(again_ms, verb, values))
        self._go(call.late_ms, call)
        if self._unreachable() or call.lost or kernel.now_ms > call.gives_up_ms:
            self._no_answer(call)
        self._take("heard", call, answer)
        return answer

    def done_now(self, call: OnItsWay) -> None:
        """A request that was held up reaches the store."""
        self._do(call.verb, call.values)

    def _take(self, step: str, call: OnItsWay, answer: object = None) -> None:
        self._fleet.take(f"{call.verb} {step}", self._host, call.facts(self._host.name, answer), call)

    def _go(self, late_ms: int, call: OnItsWay) -> None:
        kernel = self._kernel
        ms = late_ms + kernel.random.randrange(self.weather.longest_ms + 1)
        if ms:
            # Nobody waits for longer than until the call is given up.
            kernel.sleep(min(ms, max(0, call.gives_up_ms - kernel.now_ms) + 1))

    def _no_answer(self, call: OnItsWay) -> None:
        self._kernel.sleep(max(0, call.gives_up_ms - self._kernel.now_ms))
        self._reached["a call without an answer"] += 1
        self._fail(TimeoutError)

    def _fail(self, error: type[Exception]) -> None:
        self.failed_of = error.__name__
        raise BackendError("no answer came") from error()


@contextmanager
def steps_of_the_library(fleet: AimedFleet) -> Iterator[None]:
    """While inside, threads that are about to call a method that is aimed at take that step first."""
    with ExitStack() as stack:
        for step in sorted(fleet.aim.library_steps()):
            name, method = step.split(".")
            owner = getattr(importlib.import_module(_MODULES[name]), name)
            stack.enter_context(mock.patch.object(owner, method, _stepping(fleet, step, getattr(owner, method))))
        yield


def _stepping(fleet: AimedFleet, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        name = fleet.kernel.current.where.name
        host = next((host for host in fleet.all_hosts if host.name == name), None)
        fleet.take(step, host, {"host": name}, None)
        return method(*values)

    return call


#: Where the library's classes are that an aim may name.
_MODULES = {
    "FirstClaims": "anarchon.runners.first_claims",
    "Heartbeat": "anarchon.heartbeat",
    "LeasedRun": "anarchon.runners.leased_run",
}
