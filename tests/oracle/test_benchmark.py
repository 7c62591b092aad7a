"""The benchmark is about the page's texts, and it runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from test_dialect_page import UNDERSTOOD

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "schedules.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Cut down to what a test has time for."""
    spec = importlib.util.spec_from_file_location("benchmark_of_schedules", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in (("ROUNDS", 1), ("SLOTS", 2), ("CHANGES", module.CHANGES[:1]), ("WORSE", module.WORSE[:1])):
        monkeypatch.setattr(module, name, value)
    return module


def test_the_benchmark_is_about_every_text_of_the_page(benchmark: ModuleType) -> None:
    assert benchmark.texts() == [text for text, seconds, _ in UNDERSTOOD if not seconds]


def test_the_benchmark_tells_ratios_and_the_longest_call(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "texts", lambda: ["0 8 * * 1-5", "0 0 6W * *"])
    monkeypatch.setattr(sys, "argv", ["schedules.py"])
    benchmark.main()
    told = capsys.readouterr().out
    assert told.count(" of  2") >= 10
    assert "ratio to croniter" in told and "The longest single call" in told
    monkeypatch.setattr(sys, "argv", ["schedules.py", "--json"])
    benchmark.main()
    figures = json.loads(capsys.readouterr().out)
    assert {"anarchon", "croniter"} <= set(figures["average"][0]["us"])
    assert all(call["ms"]["anarchon"] > 0 for call in figures["change"])
