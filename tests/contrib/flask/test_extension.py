"""The extension: what it registers on which app, what it refuses and when, and what it keeps."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from anarchon import ConfigurationError, Event, JobNotRegistered, Scheduler
from anarchon.contrib.flask import Anarchon

MakeApp = Callable[..., Flask]


def nothing() -> None: ...


def jobs_of(app: Flask) -> list[str]:
    return [job.name for job in app.extensions["anarchon"].jobs()]


# -- registering


def test_jobs_registered_before_and_after_the_app_is_known_are_all_its_jobs(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app()
    cron.every("early", "10s", nothing)
    cron.init_app(app)
    cron.cron("late", "0 8 * * *", nothing)
    assert jobs_of(app) == ["early", "late"]


def test_app_given_at_once_has_the_jobs_that_follow(make_app: MakeApp) -> None:
    app = make_app()
    cron = Anarchon(app)

    @cron.every("sync", "10s")
    def sync() -> None: ...

    assert jobs_of(app) == ["sync"]


def test_calls_can_be_chained_as_on_a_scheduler(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app()
    cron.every("sync", "10s", nothing).cron("digest", "@daily", nothing).on("failure", lambda event: None)
    cron.init_app(app)
    assert jobs_of(app) == ["sync", "digest"]


def test_decorated_function_is_given_back_as_it_was(cron: Anarchon) -> None:
    def sync() -> str:
        return "in sync"

    def told(event: Event) -> None: ...

    assert cron.every("sync", "10s")(sync) is sync
    assert cron.cron("digest", "@daily")(sync) is sync
    assert cron.on("failure")(told) is told


def test_options_reach_the_job_and_the_config_gives_their_defaults(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(LEASE="1m", TIMEZONE="Europe/Athens")
    cron.every("own", "10s", nothing, lease="5s", timeout="2s")
    cron.cron("defaults", "0 0 8 * * *", nothing, seconds=True)
    cron.init_app(app)
    own, defaults = app.extensions["anarchon"].jobs()
    assert (own.options["lease"], own.options["timeout"]) == (5, 2)
    assert (defaults.options["lease"], defaults.timezone) == (60, "Europe/Athens")


def test_cron_text_is_read_in_each_apps_own_time_zone(make_app: MakeApp, cron: Anarchon) -> None:
    cron.cron("digest", "0 8 * * *", nothing)
    athens, utc = make_app(TIMEZONE="Europe/Athens"), make_app()
    cron.init_app(athens)
    cron.init_app(utc)
    offsets = [app.extensions["anarchon"].next_run("digest").utcoffset() for app in (athens, utc)]
    assert offsets[0] != offsets[1]


# -- several apps


def test_apps_do_not_mix(make_app: MakeApp, cron: Anarchon) -> None:
    ran = []
    cron.every("sync", "1h", lambda: ran.append("sync"))
    one, other = make_app("one"), make_app("other")
    cron.init_app(one)
    cron.init_app(other)
    with one.app_context():
        assert cron.run_now("sync").status == "success"
        assert len(cron.history("sync")) == 1
    with other.app_context():
        assert cron.history("sync") == []
    assert one.extensions["anarchon"] is not other.extensions["anarchon"]
    assert ran == ["sync"]


def test_jobs_registered_late_go_to_every_app(make_app: MakeApp, cron: Anarchon) -> None:
    apps = [make_app("one"), make_app("other")]
    for app in apps:
        cron.init_app(app)
    cron.every("sync", "10s", nothing)
    assert [jobs_of(app) for app in apps] == [["sync"], ["sync"]]


def test_extensions_do_not_mix(make_app: MakeApp) -> None:
    one, other = make_app("one"), make_app("other")
    Anarchon(one).every("sync", "10s", nothing)
    Anarchon(other).every("digest", "10s", nothing)
    assert (jobs_of(one), jobs_of(other)) == (["sync"], ["digest"])


def test_app_goes_away_when_nobody_holds_it_any_more(make_app: MakeApp, cron: Anarchon) -> None:
    cron.every("sync", "10s", nothing)
    cron.on("failure", lambda event: None)
    app = Flask("brief")
    app.config.update(ANARCHON_BACKEND="memory://", ANARCHON_AUTOSTART=True)
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    with app.app_context():
        assert cron.run_now("sync").status == "success"
    scheduler = app.extensions["anarchon"]
    scheduler.stop("60s")
    gone = weakref.ref(app)
    del app, scheduler
    # The thread of that run may have a moment to go.
    end = time.monotonic() + 60
    while gc.collect() >= 0 and gone() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert gone() is None
    # Those that remain are served as before.
    cron.init_app(make_app())
    cron.every("digest", "10s", nothing)


# -- the current app


def test_scheduler_is_the_current_apps(make_app: MakeApp, cron: Anarchon) -> None:
    one, other = make_app("one"), make_app("other")
    cron.init_app(one)
    cron.init_app(other)
    with one.app_context():
        assert cron.scheduler is one.extensions["anarchon"]
        with other.app_context():
            assert cron.scheduler is other.extensions["anarchon"]


def test_everything_that_a_scheduler_is_asked_can_be_asked_of_the_extension(app: Flask, cron: Anarchon) -> None:
    cron.every("sync", "1h", nothing)
    with app.app_context():
        assert [job.name for job in cron.jobs()] == ["sync"]
        assert cron.next_run("sync") == cron.jobs()[0].next_run
        record = cron.run_now("sync")
        assert cron.history("sync", limit=1) == [record]
        assert cron.last_run("sync") == record
        assert cron.active("sync") == []
        assert cron.run_now("sync", wait="10s") is not None


@pytest.mark.parametrize(
    "ask",
    [
        lambda cron: cron.scheduler,
        lambda cron: cron.jobs(),
        lambda cron: cron.run_now("sync"),
        lambda cron: cron.last_run("sync"),
    ],
)
def test_outside_of_an_app_context_the_error_says_what_to_do(
    app: Flask, cron: Anarchon, ask: Callable[[Anarchon], Any]
) -> None:
    with pytest.raises(RuntimeError, match=r"no current app.*with app\.app_context\(\):"):
        ask(cron)


def test_app_that_the_extension_was_not_given_has_no_scheduler_of_it(
    make_app: MakeApp, app: Flask, cron: Anarchon
) -> None:
    stranger = make_app("stranger")
    Anarchon(stranger)
    with stranger.app_context(), pytest.raises(RuntimeError, match="'stranger'.*init_app was not called"):
        cron.jobs()


def test_run_now_from_a_view_returns_the_record(app: Flask, cron: Anarchon) -> None:
    cron.every("sync", "1h", nothing)

    @app.post("/sync")
    def sync_now() -> dict[str, Any]:
        return cron.run_now("sync").to_dict()

    answer = app.test_client().post("/sync")
    assert (answer.status_code, answer.json["status"], answer.json["trigger"]) == (200, "success", "manual")


# -- refusals, at the earliest place


@pytest.mark.parametrize(
    ("register", "complaint"),
    [
        (lambda cron: cron.every("", "10s", nothing), "must not be empty"),
        (lambda cron: cron.every("sync", "soon"), "interval must be"),
        (lambda cron: cron.every("sync", "10s", nothing, time_out="1s"), "Did you mean 'timeout'"),
        (lambda cron: cron.every("sync", "10s", lease="1ms"), "at least 1s"),
        (lambda cron: cron.every("sync", "10s", lease="3s", heartbeat="2s"), "a third of the lease"),
        (lambda cron: cron.every("sync", "10s", jitter="10s"), "less than the interval"),
        (lambda cron: cron.every("sync", "10s", jitter="2s", max_late="1s"), "less than max_late"),
        (lambda cron: cron.every("sync", "10s", 42), "must be callable, not int"),
        (lambda cron: cron.every("sync", "10s", lambda one, two: None), "must take the context or nothing"),
        (lambda cron: cron.every("sync", "10s")("sync"), "must be callable, not str"),
        (lambda cron: cron.cron("digest", "0 8 * *"), "Cron text"),
        (lambda cron: cron.cron("digest", "0 25 * * *"), "hour"),
        (lambda cron: cron.cron("digest", "0 0 30 2 *"), "Cron text"),
        (lambda cron: cron.cron("digest", "@daily", second=True), "Did you mean 'seconds'"),
        (lambda cron: cron.on("failed"), "Did you mean 'failure'"),
        (lambda cron: cron.on("failure", lambda: None), "must take the event"),
    ],
)
def test_what_is_wrong_whatever_the_config_is_refused_before_an_app_is_known(
    cron: Anarchon, register: Callable[[Anarchon], object], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        register(cron)


def test_what_was_refused_is_on_no_app(make_app: MakeApp, cron: Anarchon) -> None:
    with pytest.raises(ConfigurationError):
        cron.every("sync", "10s", nothing, lease="1ms")
    app = make_app()
    cron.init_app(app)
    with pytest.raises(ConfigurationError):
        cron.every("sync", "10s", nothing, lease="1ms")
    assert jobs_of(app) == []


def test_name_registered_twice_is_refused_before_an_app_is_known(cron: Anarchon) -> None:
    cron.every("sync", "10s", nothing)
    with pytest.raises(ConfigurationError, match="'sync' is registered already"):
        cron.cron("sync", "@daily")
    late = cron.every("digest", "10s")
    cron.every("digest", "10s", nothing)
    with pytest.raises(ConfigurationError, match="'digest' is registered already"):
        late(nothing)


def test_factory_that_registers_at_each_call_is_told_what_to_do(make_app: MakeApp, cron: Anarchon) -> None:
    def create_app() -> None:
        cron.init_app(make_app())
        cron.every("sync", "10s", nothing)

    create_app()
    with pytest.raises(ConfigurationError, match=r"Anarchon\(app\) inside of it"):
        create_app()


def test_what_the_config_may_put_right_waits_for_it(make_app: MakeApp, cron: Anarchon) -> None:
    cron.every("sync", "1h", nothing, heartbeat="20s", jitter="2m")
    patient = make_app(LEASE="1m", MAX_LATE="5m")
    cron.init_app(patient)
    assert jobs_of(patient) == ["sync"]
    hasty = make_app("hasty", MAX_LATE="5m")
    with pytest.raises(ConfigurationError, match="Job 'sync' of app 'hasty': heartbeat must be at most a third"):
        cron.init_app(hasty)
    assert "anarchon" not in hasty.extensions


def test_job_that_contradicts_a_known_apps_config_is_refused_where_it_is_registered(
    make_app: MakeApp, cron: Anarchon
) -> None:
    cron.init_app(make_app(LEASE="3s"))
    with pytest.raises(ConfigurationError, match="Job 'sync' of app 'shop': heartbeat"):
        cron.every("sync", "1h", nothing, heartbeat="5s")


def test_job_that_an_apps_scheduler_has_of_its_own_is_in_the_way(app: Flask, cron: Anarchon) -> None:
    app.extensions["anarchon"].every("sync", "10s", nothing)
    with pytest.raises(ConfigurationError, match="Job 'sync' of app 'shop': .*registered already"):
        cron.every("sync", "10s", nothing)


def test_second_scheduler_for_an_app_is_refused(app: Flask, cron: Anarchon) -> None:
    for extension in (cron, Anarchon()):
        with pytest.raises(ConfigurationError, match="App 'shop' has its scheduler already"):
            extension.init_app(app)


def test_job_of_a_started_app_runs_though_it_is_registered_late(app: Flask, cron: Anarchon) -> None:
    ran = threading.Event()
    scheduler: Scheduler = app.extensions["anarchon"].start()
    cron.every("sync", "100ms", ran.set)
    assert ran.wait(30)
    assert scheduler.stop("10s")


def test_name_that_is_not_registered_has_its_nearest(app: Flask, cron: Anarchon) -> None:
    cron.every("sync", "10s", nothing)
    with app.app_context(), pytest.raises(JobNotRegistered, match="Did you mean 'sync'"):
        cron.run_now("snyc")
