"""Claims and ends of runs, asked for while servers come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from topologies import until

from anarchon import BackendError, RedisBackend
from anarchon.durations import from_ms
from anarchon.records import ClaimRequest, Mode, Outcome, RunRecord, Verdict

__all__ = ["finished", "granted", "is_not_relied_on", "patiently", "record", "request"]

Answer = TypeVar("Answer")


def request(backend: RedisBackend, token: str, job: str = "sync", slot_ms: int | None = None) -> ClaimRequest:
    slot_ms = backend.time(job) if slot_ms is None else slot_ms
    return ClaimRequest(
        job, slot_ms, str(slot_ms), token, "host", 30_000, "allow", 3, 60_000, Mode.START, "scheduled", 10_000
    )


def record(asked: ClaimRequest) -> RunRecord:
    times = from_ms(asked.slot_ms), from_ms(asked.slot_ms)
    return RunRecord(asked.job, times[0], asked.run_id, 1, "scheduled", "success", "host", 1, *times, 0.0)


def is_not_relied_on(call: Callable[[], object], why: str = "may lose the call: 0 of the 1 replicas") -> None:
    """It fails, and says why; on a busy machine it may fail for another reason first."""

    def told() -> bool:
        with pytest.raises(BackendError) as caught:
            call()
        return why in str(caught.value)

    until(told, why)


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Asks until there is an answer: these clients give up after a second, and a busy machine may take longer."""
    answers: list[Answer] = []
    until(lambda: answers.append(ask()) is None, "an answer")
    return answers[0]


def granted(backend: RedisBackend, asked: ClaimRequest) -> bool:
    try:
        return backend.claim(asked).outcome is Outcome.WON
    except BackendError:
        return False


def finished(backend: RedisBackend, asked: ClaimRequest) -> bool:
    try:
        return backend.finish(asked.job, asked.run_id, asked.token, record(asked)) is Verdict.OK
    except BackendError:
        return False
