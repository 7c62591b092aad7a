"""The context: what a handler is told about its run, and how it learns that it should stop."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any

import pytest

from anarchon import RunContext, RunInterrupted


def context(**fields: Any) -> RunContext:
    values: dict[str, Any] = dict(
        job="sync", slot_ms=1_767_225_600_000, run_id="1767225600000", attempt=2, trigger="takeover", token="secret",
        fence=9, instance_id="host-1", deadline_ms=None, signal=threading.Event(),
    )  # fmt: skip
    return RunContext(**{**values, **fields})


def test_instants_are_aware_and_in_utc() -> None:
    told = context(deadline_ms=1_767_225_660_000)
    assert told.slot == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert told.deadline == datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)
    assert context().deadline is None


def test_the_repr_does_not_give_the_token_away() -> None:
    assert repr(context()) == "<RunContext sync slot=2026-01-01T00:00:00+00:00 attempt=2 trigger=takeover>"


def test_before_the_signal_is_set_nothing_is_raised() -> None:
    told = context()
    told.raise_if_cancelled()
    assert (told.reason, told.signal.is_set()) == (None, False)


@pytest.mark.parametrize("reason", ["stop", "timeout", "lease-lost"])
def test_a_cancelled_run_is_told_why(reason: str) -> None:
    told = context()
    told._cancel(reason)
    assert told.signal.is_set()
    with pytest.raises(RunInterrupted, match=f"The run was told to stop: {reason}") as raised:
        told.raise_if_cancelled()
    assert raised.value.reason == told.reason == reason


def test_the_first_reason_stays() -> None:
    told = context()
    told._cancel("lease-lost")
    told._cancel("stop")
    assert told.reason == "lease-lost"


def test_whoever_sees_the_signal_sees_the_reason() -> None:
    """
    1. the signal is about to be set
    2. a handler that waits for it wakes up at once
    3. the reason must be there already
    """
    seen: list[str | None] = []

    class Watched(threading.Event):
        def set(self) -> None:
            seen.append(told.reason)
            super().set()

    told = context(signal=Watched())
    told._cancel("stop")
    assert seen == ["stop"]
