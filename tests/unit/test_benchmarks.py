"""The benchmarks can be run: each as its user starts it, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"

#: What is shared, and run by nobody.
SHARED = {"harness.py", "server_costs.py"}
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in SHARED)

#: Runs a program as if no peer were installed.
WITHOUT_PEERS = """
import pathlib, runpy, sys
import peers
peers._FOLDER = pathlib.Path("nowhere")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def told_by(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told_without_peers(program: str, *arguments: str) -> str:
    return told_by("-c", f"import sys; sys.argv = {[program, *arguments]}{WITHOUT_PEERS}")


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """One of the files as a module, under a name that no other has; it leaves the path as it was."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("harness", monkeypatch)


class TestThePrograms:
    @pytest.mark.parametrize("program", PROGRAMS)
    def test_each_says_what_it_measures(self, program: str) -> None:
        assert told_by(program, "--help").startswith(f"usage: {program}")

    def test_the_store_path_tells_every_figure_of_a_short_run(self) -> None:
        told = json.loads(told_by("store_path.py", "--json", "--rounds", "1", "--calls", "3"))
        assert told["rows"][0]["call"] == "claim that wins"
        assert all(row["ratio"] > 0 and len(row["rounds"]) == 2 for row in told["rows"])

    def test_the_sqlite_path_tells_a_table_of_a_short_run(self, tmp_path: Path) -> None:
        told = told_by("sqlite_path.py", "--rounds", "1", "--calls", "3", "--folder", os.fspath(tmp_path))
        calls, syncs = told.strip().split("\n\n")
        assert len(calls.splitlines()) == 7
        assert syncs.startswith("sync, us")

    def test_lateness_says_which_peer_is_missing(self) -> None:
        told = told_without_peers("lateness.py", "--jobs", "1", "--rounds", "1", "--sides", "huey,redbeat")
        assert "huey is missing" in told and "redbeat is missing" in told

    def test_takeover_says_which_peer_is_missing(self) -> None:
        told = told_without_peers("takeover.py", "--sides", "rq,dramatiq")
        assert "rq is missing" in told and "dramatiq is missing" in told

    def test_imports_says_which_peer_is_missing_and_measures_the_rest(self) -> None:
        told = json.loads(told_without_peers("imports.py", "--json", "--rounds", "1"))
        assert told["rows"][0]["over bare Python, ms"] > 0
        assert {"import": "celery is missing"} in told["rows"]


class TestThePeers:
    def test_each_has_one_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wanted = load("peers", monkeypatch).PEERS
        assert wanted and all("==" in requirement for each in wanted.values() for requirement in each)


class TestTheHarness:
    def test_a_ratio_is_the_median_of_the_rounds_ratios(self, harness: ModuleType) -> None:
        assert harness.ratio([1, 20, 9], [1, 10, 3]) == 2

    def test_a_ratio_of_unequal_rounds_is_refused(self, harness: ModuleType) -> None:
        with pytest.raises(ValueError):
            harness.ratio([1, 2], [1])

    @pytest.mark.parametrize(("share", "found"), [(0, 1), (0.5, 51), (0.99, 100), (1, 100)])
    def test_a_percentile_is_one_of_the_values(self, harness: ModuleType, share: float, found: int) -> None:
        assert harness.percentile(range(100, 0, -1), share) == found

    def test_a_table_shows_the_names_of_its_fullest_row(self, harness: ModuleType) -> None:
        rows: list[dict[str, Any]] = [
            {"call": "rq is missing"},
            {"call": "claim", "us": 12.3456, "of it": None, "rounds": [1, 2]},
            {"call": "finish", "us": 1234.6, "of it": True},
        ]
        assert harness.table(rows).splitlines() == [
            "call             us  of it",
            "rq is missing     -      -",
            "claim          12.3      -",
            "finish         1235   True",
        ]

    def test_a_row_that_begins_otherwise_begins_another_table(self, harness: ModuleType) -> None:
        assert harness.table([{"a": 1}, {"a": 2}, {"b": 3}]) == "a\n1\n2\n\nb\n3"
