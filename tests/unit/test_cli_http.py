"""``anarchon worker --http``, called in this process: what it refuses before it answers anybody, and its end."""

from __future__ import annotations

import importlib
import itertools
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from anarchon.cli import main

TOKEN = "correct-horse-battery-staple"

JOBS = """
    from anarchon import Scheduler

    ran = []
    scheduler = Scheduler("memory://", instance_id="here")

    @scheduler.every("sync", "100ms", jitter=0)
    def sync():
        ran.append(1)
        scheduler.stop("0s")
"""

_numbers = itertools.count()


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scheduler that stops itself in its first run."""
    name = f"jobs_of_http_test_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(dedent(JOBS), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delenv("ANARCHON_TOKEN", raising=False)
    importlib.invalidate_caches()
    level = logging.getLogger("anarchon").level
    yield f"{name}:scheduler"
    logging.getLogger("anarchon").setLevel(level)
    sys.modules.pop(name, None)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is told of a worker that does not start; its exit code is 2."""
    try:
        code = main(["worker", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    return capsys.readouterr().err


def runs_of(target: str) -> list[int]:
    runs: list[int] = sys.modules[target.partition(":")[0]].ran
    return runs


def test_a_worker_answers_until_its_scheduler_stops(
    target: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ANARCHON_TOKEN", TOKEN)
    with caplog.at_level(logging.INFO):
        assert main(["worker", target, "--http", "0.0.0.0:0"]) == 0
    assert runs_of(target) == [1]
    assert "Answers whoever has the token at http://0.0.0.0:" in caplog.text
    assert TOKEN not in caplog.text


def test_a_worker_without_a_token_says_that_it_runs_nothing(target: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert main(["worker", target, "--http", "0"]) == 0
    assert "Answers this host's questions (there is no token, so it runs nothing) at http://127.0.0.1:" in caplog.text


@pytest.mark.parametrize("http", ["", "localhost", "localhost:http", "::1:9100", "http://localhost:9100", ":99999"])
def test_what_is_no_address_is_refused(http: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "argument --http: Expected HOST:PORT, such as 127.0.0.1:9100" in refused(capsys, target, "--http", http)


def test_an_address_for_others_is_refused_without_a_token(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, target, "--http", "0.0.0.0:0")
    assert told == (
        "anarchon: Cannot listen on 0.0.0.0:0 without a token, for others than this host may reach it:"
        " set ANARCHON_TOKEN or --token-file.\n"
    )
    assert runs_of(target) == []


def test_an_address_that_is_taken_is_refused_before_any_job_runs(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        told = refused(capsys, target, "--http", address)
    assert told == f"anarchon: Cannot listen on {address}: Address already in use.\n"
    assert runs_of(target) == []


def test_a_token_file_without_an_address_is_refused(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--token-file is for those who ask over HTTP" in refused(capsys, target, "--token-file", "token")


@pytest.mark.parametrize("option", [["--token", TOKEN], [f"--token={TOKEN}"]])
def test_a_token_on_the_command_line_is_refused_and_not_repeated(
    option: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(capsys, target, "--http", ":0", *option)
    assert "every user of this host can read a command line" in told
    assert TOKEN not in told


@pytest.mark.parametrize("token", ["", "seventeen"])
def test_a_token_that_will_not_do_is_refused_and_not_repeated(
    token: str, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANARCHON_TOKEN", token)
    told = refused(capsys, target, "--http", ":0")
    assert told.startswith("anarchon: ANARCHON_TOKEN ") and "seventeen" not in told
    # Who does not ask for it needs none.
    assert main(["worker", target]) == 0


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package as missing as if it had never been installed."""

    def without(package: str) -> None:
        class Missing:
            @staticmethod
            def find_spec(name: str, path: object = None, target: object = None) -> None:
                if name == package:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        for name in list(sys.modules):
            if name.split(".")[0] == package or name in ("anarchon.web.server", "anarchon.web.endpoint"):
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Missing, *sys.meta_path])

    return without


@pytest.mark.parametrize("missing", ["waitress", "werkzeug"])
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    missing: str, target: str, without: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    without(missing)
    told = refused(capsys, target, "--http", ":0")
    assert told == "anarchon: --http needs waitress and Werkzeug: pip install 'anarchon[web]'.\n"
    # Who does not ask for it needs neither.
    assert main(["worker", target]) == 0


def test_the_endpoint_without_werkzeug_names_the_extra_that_brings_it(without: Callable[[str], None]) -> None:
    without("werkzeug")
    with pytest.raises(ImportError, match=r"WorkerEndpoint needs Werkzeug: pip install 'anarchon\[web\]'"):
        from anarchon.web import WorkerEndpoint  # noqa: F401
    from anarchon.web import RemoteWorkers

    assert RemoteWorkers("http://cron-worker:9100")
