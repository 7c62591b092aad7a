"""The app's ``ANARCHON_*`` config: what it gives the scheduler, and what is refused by ``init_app``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from anarchon import ConfigurationError, MemoryBackend, RunContext
from anarchon.contrib.flask import Anarchon
from anarchon.contrib.settings import SCHEDULER_SETTINGS

MakeApp = Callable[..., Flask]

#: What the dotted paths of these tests name.
backend = MemoryBackend()


def make_backend() -> MemoryBackend:
    return backend


def allow(request: object) -> bool:
    return True


@contextmanager
def around(context: RunContext) -> Any:
    yield


HERE = f"{__name__}."

GOOD: dict[str, Any] = {
    "BACKEND": "memory://",
    "PREFIX": None,
    "TIMEZONE": "Europe/Athens",
    "INSTANCE_ID": "web-1",
    "LOG": logging.getLogger("shop.jobs"),
    "AROUND_RUN": around,
    "LEASE": "1m",
    "HEARTBEAT": 10,
    "JITTER": "1s",
    "MAX_LATE": "2m",
    "CATCH_UP": "1h",
    "OVERLAP": "allow",
    "MAX_ATTEMPTS": 1,
    "TIMEOUT": None,
    "HISTORY_LIMIT": 50,
    "AUTOSTART": True,
    "PERMISSION": allow,
    "STOP_TIMEOUT": "5s",
}


def test_every_option_of_the_scheduler_can_be_set(make_app: MakeApp, cron: Anarchon) -> None:
    assert set(SCHEDULER_SETTINGS) <= set(GOOD)
    app = make_app(**GOOD)
    cron.init_app(app)
    cron.every("sync", "1h", lambda: None)
    scheduler = app.extensions["anarchon"]
    (job,) = scheduler.jobs()
    assert (scheduler.instance_id, job.timezone) == ("web-1", "Europe/Athens")
    assert job.options == {
        "lease": 60,
        "heartbeat": 10,
        "jitter": 1,
        "max_late": 120,
        "catch_up": 3600,
        "overlap": "allow",
        "max_attempts": 1,
        "timeout": None,
        "history_limit": 50,
    }


def test_environment_can_give_the_whole_config(cron: Anarchon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLASK_ANARCHON_BACKEND", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv("FLASK_ANARCHON_AUTOSTART", "true")
    monkeypatch.setenv("FLASK_ANARCHON_LEASE", "5s")
    monkeypatch.setenv("FLASK_ANARCHON_MAX_ATTEMPTS", "2")
    app = Flask("shop")
    app.config.from_prefixed_env()
    cron.init_app(app)
    cron.every("sync", "1h", lambda: None)
    with app.app_context():
        (job,) = cron.jobs()
        assert (job.options["lease"], job.options["max_attempts"]) == (5, 2)
        assert cron.scheduler.stop("10s")


@pytest.mark.parametrize("given", [backend, f"{HERE}backend", f"{HERE}make_backend", make_backend()])
def test_backend_may_be_an_object_or_the_dotted_path_of_one(make_app: MakeApp, cron: Anarchon, given: object) -> None:
    app = make_app(BACKEND=given)
    cron.init_app(app)
    assert app.extensions["anarchon"].backend is backend


def test_config_is_read_by_init_app_and_not_again(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(TIMEZONE="Europe/Athens")
    cron.init_app(app)
    app.config["ANARCHON_TIMEZONE"] = "Nowhere/Land"
    cron.every("sync", "1h", lambda: None)
    assert app.extensions["anarchon"].jobs()[0].timezone == "Europe/Athens"


def test_keys_of_others_are_left_to_them(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app()
    app.config["ANARCHONISM"] = app.config["CRON_LEESE"] = "whatever"
    cron.init_app(app)
    assert "anarchon" in app.extensions


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"LEESE": "1m"}, r"ANARCHON_LEESE \(did you mean ANARCHON_LEASE\?\)"),
        ({"lease": "1m"}, r"ANARCHON_lease \(did you mean ANARCHON_LEASE\?\)"),
        ({"XYZZY": 1}, "what nobody reads: ANARCHON_XYZZY. Expected: ANARCHON_AROUND_RUN, ANARCHON_AUTOSTART, "),
        ({"LEESE": "1m", "AUTO_START": True}, "ANARCHON_LEESE .*ANARCHON_AUTO_START .*ANARCHON_AUTOSTART"),
        ({"BACKEND": None}, "^ANARCHON_BACKEND is missing"),
        ({"BACKEND": 42}, "^ANARCHON_BACKEND must be a URL"),
        ({"BACKEND": "mongodb://localhost/0"}, "mongodb"),
        ({"BACKEND": "nowhere.to_be.found"}, "^ANARCHON_BACKEND: there is no module 'nowhere'"),
        ({"BACKEND": f"{HERE}backnd"}, "Did you mean 'backend'"),
        ({"PREFIX": "a:", "BACKEND": backend}, "^ANARCHON_PREFIX goes with the URL of a Redis"),
        ({"LEASE": "soon"}, "^ANARCHON_LEASE must be a duration"),
        ({"LEASE": "500ms"}, "^ANARCHON_LEASE must be at least 1s"),
        ({"LEASE": "3s", "HEARTBEAT": "2s"}, "^ANARCHON_HEARTBEAT must be at most a third of the lease"),
        ({"OVERLAP": "maybe"}, "^ANARCHON_OVERLAP must be 'skip' or 'allow'"),
        ({"MAX_ATTEMPTS": 0}, "^ANARCHON_MAX_ATTEMPTS must be"),
        ({"TIMEZONE": "Europe/Athen"}, r"ANARCHON_\* config: Unknown timezone.*Did you mean 'Europe/Athens'"),
        ({"TIMEZONE": 2}, "^ANARCHON_TIMEZONE must be a zone's name"),
        ({"LOG": "yes"}, "^ANARCHON_LOG must be True"),
        ({"INSTANCE_ID": ""}, "^ANARCHON_INSTANCE_ID must be"),
        ({"AROUND_RUN": 42}, "^ANARCHON_AROUND_RUN must be callable"),
        ({"AROUND_RUN": lambda: None}, "^ANARCHON_AROUND_RUN must take the context"),
        ({"AROUND_RUN": "nowhere.to_be.found"}, "^ANARCHON_AROUND_RUN: there is no module 'nowhere'"),
        ({"AUTOSTART": "True"}, "^ANARCHON_AUTOSTART must be True or False, not 'True'. In the environment .* small"),
        ({"AUTOSTART": None}, "^ANARCHON_AUTOSTART must be True or False"),
        ({"PERMISSION": True}, "^ANARCHON_PERMISSION must be callable, not True"),
        ({"PERMISSION": lambda: True}, "^ANARCHON_PERMISSION must take the request"),
        ({"PERMISSION": f"{HERE}alow"}, "^ANARCHON_PERMISSION: .*Did you mean 'allow'"),
        ({"STOP_TIMEOUT": "soon"}, "^ANARCHON_STOP_TIMEOUT must be a duration"),
    ],
)
def test_wrong_config_is_refused_by_init_app(
    make_app: MakeApp, cron: Anarchon, config: dict[str, Any], complaint: str
) -> None:
    app = make_app(**config)
    with pytest.raises(ConfigurationError, match=complaint):
        cron.init_app(app)
    assert "anarchon" not in app.extensions
    assert "anarchon" not in app.cli.commands


def test_permission_of_a_coroutine_function_is_refused(make_app: MakeApp, cron: Anarchon) -> None:
    async def allow(request: object) -> bool:
        return False

    with pytest.raises(ConfigurationError, match="^ANARCHON_PERMISSION is a coroutine function"):
        cron.init_app(make_app(PERMISSION=allow))
    with pytest.raises(ConfigurationError, match="^permission is a coroutine function"):
        cron.blueprint(permission=allow)  # type: ignore[arg-type]


def test_password_in_the_url_is_in_no_error(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(BACKEND="redis://:s3cret@localhost:port/0")
    with pytest.raises(ConfigurationError) as caught:
        cron.init_app(app)
    assert "s3cret" not in str(caught.value)


def test_config_that_was_mended_is_taken(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(LEASE="soon")
    with pytest.raises(ConfigurationError):
        cron.init_app(app)
    app.config["ANARCHON_LEASE"] = "5s"
    cron.init_app(app)
    assert "anarchon" in app.extensions


# -- the log


def test_failures_are_logged_unless_the_config_says_otherwise(
    make_app: MakeApp, cron: Anarchon, caplog: pytest.LogCaptureFixture
) -> None:
    @cron.every("sync", "1h")
    def sync() -> None:
        raise ValueError("no customers")

    loud, quiet = make_app(), make_app(LOG=False)
    for app in (loud, quiet):
        cron.init_app(app)
        with app.app_context():
            assert cron.run_now("sync").status == "failed"
    failures = [record for record in caplog.records if "sync failure" in record.getMessage()]
    assert [(record.name, record.levelname) for record in failures] == [("anarchon", "WARNING")]


# -- start


def test_nothing_starts_by_itself_in_a_test(
    make_app: MakeApp, cron: Anarchon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "anarchon")
    app = make_app(AUTOSTART=True)
    cron.init_app(app)
    cron.every("sync", "100ms", lambda: None)
    assert "pytest" in caplog.text
    assert app.extensions["anarchon"]._engine is None


def test_without_autostart_nobody_is_asked_whether_this_process_serves(
    make_app: MakeApp, cron: Anarchon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("anarchon.contrib.flask.extension.when_serving", lambda start, ready: asked.append(start))
    cron.init_app(make_app("unset"))
    cron.init_app(make_app("no", AUTOSTART=False))
    assert asked == []
    yes = make_app("yes", AUTOSTART=True)
    cron.init_app(yes)
    assert asked == [yes.extensions["anarchon"].start]
