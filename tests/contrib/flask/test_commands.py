"""``flask anarchon``, called in this process by Flask's own test runner."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from flask import Flask, current_app, g

from anarchon import MemoryBackend, Scheduler
from anarchon.commands import Exit
from anarchon.contrib.flask import Anarchon

MakeApp = Callable[..., Flask]


def flask(app: Flask, *arguments: str) -> Result:
    return app.test_cli_runner().invoke(args=["anarchon", *arguments])


@pytest.fixture
def app(make_app: MakeApp, cron: Anarchon) -> Flask:
    app = make_app(INSTANCE_ID="here")
    cron.init_app(app)

    @cron.every("sync", "10s")
    def sync() -> None:
        print("in sync")

    @cron.cron("digest", "0 8 * * 1-5")
    def digest() -> None:
        raise ValueError("no one to write to")

    return app


def test_run_prints_the_record_and_ends_with_0(app: Flask) -> None:
    result = flask(app, "run", "sync")
    assert result.exit_code == Exit.SUCCESS
    assert "status    success" in result.stdout
    assert app.extensions["anarchon"].last_run("sync").trigger == "manual"


def test_run_that_failed_ends_with_1_and_names_the_error(app: Flask) -> None:
    result = flask(app, "run", "digest")
    assert result.exit_code == Exit.FAILED
    assert "ValueError: no one to write to" in result.stdout


def test_name_that_is_not_registered_has_its_nearest(app: Flask) -> None:
    result = flask(app, "run", "snc")
    assert (result.exit_code, result.stdout) == (Exit.NOT_REGISTERED, "")
    assert "Did you mean 'sync'" in result.stderr


def test_run_beside_one_that_goes_on_is_refused_with_the_holder(make_app: MakeApp) -> None:
    backend = MemoryBackend()
    app = make_app(BACKEND=backend)
    results: list[Result] = []
    Anarchon(app).every("sync", "1h", lambda: None)
    other = Scheduler(backend, instance_id="web-2")
    other.every("sync", "1h", lambda: results.append(flask(app, "run", "sync")))
    other.run_now("sync")
    assert other.stop("10s")
    assert results[0].exit_code == Exit.REFUSED
    assert "'web-2'" in results[0].stderr


def test_jobs_lists_what_the_app_has(app: Flask) -> None:
    result = flask(app, "jobs")
    assert result.exit_code == Exit.SUCCESS
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["JOB", "sync", "digest"]


def test_app_without_jobs_is_named(make_app: MakeApp) -> None:
    app = make_app("empty")
    Anarchon(app)
    assert "app 'empty' has no jobs." in flask(app, "jobs").stderr
    worker = flask(app, "worker")
    assert worker.exit_code == Exit.USAGE
    assert "app 'empty' has no jobs" in worker.stderr


def test_answers_are_one_json_document_where_asked(app: Flask) -> None:
    flask(app, "run", "sync")
    record = app.extensions["anarchon"].last_run("sync").to_dict()
    assert json.loads(flask(app, "history", "sync", "--json").stdout) == [record]
    assert json.loads(flask(app, "active", "sync", "--json").stdout) == []
    assert [job["name"] for job in json.loads(flask(app, "jobs", "--json").stdout)] == ["sync", "digest"]
    run = flask(app, "run", "sync", "--json")
    assert json.loads(run.stdout) == app.extensions["anarchon"].last_run("sync").to_dict()
    assert "in sync" in run.stderr


def test_history_is_limited(app: Flask) -> None:
    for _ in range(3):
        flask(app, "run", "sync")
    assert len(json.loads(flask(app, "history", "sync", "--limit", "2", "--json").stdout)) == 2


def test_forget_removes_a_job_that_is_gone_from_the_code(make_app: MakeApp) -> None:
    backend = MemoryBackend()
    Scheduler(backend).every("gone", "1h", lambda: None).run_now("gone")
    app = make_app(BACKEND=backend)
    Anarchon(app).every("sync", "1h", lambda: None)
    assert flask(app, "forget", "sync", "--yes").exit_code == Exit.USAGE
    assert flask(app, "forget", "gone", "--yes").exit_code == Exit.SUCCESS
    assert app.extensions["anarchon"].history("gone") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("history", "sync", "--limit", "0"),
        ("history", "sync", "--limit", "many"),
        ("worker", "--stop-timeout", "soon"),
        ("wroker",),
        ("history", "a b"),
    ],
)
def test_wrong_arguments_end_with_2(app: Flask, arguments: tuple[str, ...]) -> None:
    result = flask(app, *arguments)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert result.stderr


def test_each_app_has_the_commands_of_its_own_scheduler(make_app: MakeApp, cron: Anarchon) -> None:
    cron.every("sync", "1h", lambda: print(f"in sync: {current_app.name}"))
    one, other = make_app("one"), make_app("other")
    cron.init_app(one)
    cron.init_app(other)
    assert "in sync: one" in flask(one, "run", "sync").stdout
    assert one.extensions["anarchon"].last_run("sync") is not None
    assert other.extensions["anarchon"].last_run("sync") is None


def test_apps_help_names_the_commands(app: Flask) -> None:
    help = flask(app, "--help").stdout
    for command in ("worker", "run", "jobs", "history", "active", "forget"):
        assert f"\n  {command} " in help


def test_worker_waits_for_its_runs_as_long_as_the_config_says(
    make_app: MakeApp, cron: Anarchon, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def worker(scheduler: Scheduler, named: str, stop_timeout: Any, *more: Any, **options: Any) -> int:
        given.append(stop_timeout)
        return 0

    monkeypatch.setattr("anarchon.commands.worker", worker)
    usual, patient = make_app(), make_app(STOP_TIMEOUT="2m")
    for app in (usual, patient):
        cron.init_app(app)
        assert flask(app, "worker").exit_code == 0
    assert flask(patient, "worker", "--stop-timeout", "3s").exit_code == 0
    assert given == ["25s", "2m", "3s"]


def test_runs_of_a_command_do_not_share_its_app_context(app: Flask, cron: Anarchon) -> None:
    found: list[bool] = []
    cron.every("look", "1h", lambda: found.append("command" in g))
    with app.app_context():
        g.command = "run"
        assert flask(app, "run", "look").exit_code == 0
        assert g.command == "run"
    assert found == [False]


def test_command_that_a_test_calls_leaves_its_process_as_it_was(app: Flask) -> None:
    scheduler = app.extensions["anarchon"].start()
    before = (signal.getsignal(signal.SIGTERM), logging.getLogger("anarchon").level, logging.root.handlers[:])
    for arguments in (["run", "sync", "--verbose"], ["jobs"], ["history", "sync"], ["active", "sync"]):
        assert flask(app, *arguments).exit_code == 0
    assert before == (signal.getsignal(signal.SIGTERM), logging.getLogger("anarchon").level, logging.root.handlers)
    assert scheduler._engine is not None
    assert scheduler._engine.started
    assert not scheduler._engine.stopping
