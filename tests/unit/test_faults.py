"""Each rule left out is noticed by the test that is named for it."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import world
from faults import FAULTS, Fault

import anarchon.heartbeat

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*tests: str) -> pytest.ExitCode | int:
    """Runs tests of this folder, inside of this process."""
    here = [f"--rootdir={ROOT}", f"--config-file={ROOT}/setup.cfg"]
    return pytest.main(
        [*(f"{HERE}/{test}" for test in tests), *here, "-q", "-s", "-p", "no:cacheprovider", "-o", "timeout=0"]
    )


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fault may leave a thread for ever: that is known soon enough. What such a thread may raise afterwards is noise.
    monkeypatch.setattr(world, "REAL_SECONDS", 1)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with fault.made():
        assert run(fault.noticed_by) == pytest.ExitCode.TESTS_FAILED


def test_without_a_fault_none_of_those_tests_fails() -> None:
    """The code put in its own place behaves as it does, so it is the fault that is noticed, not the way it is made."""
    names = sorted({re.sub(r"\[.*", "", fault.noticed_by) for fault in FAULTS if "heartbeat" in fault.file})
    with Fault("none", "heartbeat.py", "self._trust(sent_ms)", "self._trust(sent_ms)", "").made():
        assert run(*names) == pytest.ExitCode.OK


def test_a_fault_is_gone_when_it_has_been_noticed() -> None:
    with FAULTS[0].made():
        assert anarchon.heartbeat.margin_ms(5_000) == 0
    assert anarchon.heartbeat.margin_ms(5_000) == 500
