"""The JSON blueprint: its answers, who gets them, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from flask import Blueprint, Flask, Request, abort
from werkzeug.test import TestResponse

from anarchon import BackendError, MemoryBackend
from anarchon.contrib.flask import Anarchon

MakeApp = Callable[..., Flask]


def allow(request: Request) -> bool:
    return True


def deny(request: Request) -> bool:
    return False


@pytest.fixture
def app(make_app: MakeApp, cron: Anarchon) -> Flask:
    app = make_app(PERMISSION=allow)
    cron.init_app(app)
    cron.every("sync", "10s", lambda: None)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    return app


def get(app: Flask, path: str, method: str = "GET", **more: Any) -> TestResponse:
    return app.test_client().open(path, method=method, **more)


# -- answers


def test_jobs_are_what_the_scheduler_says(app: Flask) -> None:
    answer = get(app, "/cron/jobs")
    (job,) = app.extensions["anarchon"].jobs()
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert [{**found, "next_run": None} for found in answer.json] == [{**job.to_dict(), "next_run": None}]


def test_runs_last_and_active_are_what_the_store_says(app: Flask) -> None:
    scheduler = app.extensions["anarchon"]
    records = [scheduler.run_now("sync").to_dict() for _ in range(3)][::-1]
    assert get(app, "/cron/jobs/sync/runs").json == records
    assert get(app, "/cron/jobs/sync/runs?limit=2").json == records[:2]
    assert get(app, "/cron/jobs/sync/last").json == records[0]
    assert get(app, "/cron/jobs/sync/active").json == []


def test_run_that_goes_on_is_active(app: Flask, cron: Anarchon) -> None:
    asked: list[Any] = []
    cron.every("slow", "1h", lambda: asked.extend(get(app, "/cron/jobs/slow/active").json))
    app.extensions["anarchon"].run_now("slow")
    (run,) = asked
    assert (run["job"], run["trigger"], run["attempt"]) == ("slow", "manual", 1)


def test_process_that_registers_nothing_reads_the_history_of_others(make_app: MakeApp) -> None:
    backend = MemoryBackend()
    writer, reader = make_app("writer", BACKEND=backend), make_app("reader", BACKEND=backend, PERMISSION=allow)
    Anarchon(writer).every("sync", "1h", lambda: None)
    record = writer.extensions["anarchon"].run_now("sync")
    reader.register_blueprint(Anarchon(reader).blueprint(), url_prefix="/cron")
    assert get(reader, "/cron/jobs").json == []
    assert get(reader, "/cron/jobs/sync/runs").json == [record.to_dict()]


@pytest.mark.parametrize("name", ["a/b", "a//b", "/a", "a/", "a/runs", "runs", "ü€", "100%", "a?b#c", "jobs/a/last"])
def test_name_may_be_anything_that_a_job_may_be_called(app: Flask, cron: Anarchon, name: str) -> None:
    cron.every(name, "1h", lambda: None)
    record = app.extensions["anarchon"].run_now(name).to_dict()
    for path in (quote(name), quote(name, safe="")):
        assert get(app, f"/cron/jobs/{path}/runs").json == [record]
        assert get(app, f"/cron/jobs/{path}/last").json == record
        assert get(app, f"/cron/jobs/{path}/active").json == []


def test_url_for_finds_each_answer(app: Flask) -> None:
    with app.test_request_context():
        assert app.url_for("anarchon.jobs") == "/cron/jobs"
        for answer in ("runs", "last", "active"):
            assert app.url_for(f"anarchon.{answer}", name="a/b") == f"/cron/jobs/a/b/{answer}"


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1001", ""])
def test_limit_that_is_none_is_refused(app: Flask, limit: str) -> None:
    answer = get(app, f"/cron/jobs/sync/runs?limit={limit}")
    assert (answer.status_code, answer.json["error"]) == (400, "bad-limit")


def test_name_that_no_job_can_have_is_refused(app: Flask) -> None:
    answer = get(app, "/cron/jobs/a b/last")
    assert (answer.status_code, answer.json["error"]) == (400, "bad-request")


def test_store_that_is_away_is_told_with_its_headers(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise BackendError("redis.internal refused")

    monkeypatch.setattr(app.extensions["anarchon"], "history", away)
    answer = get(app, "/cron/jobs/sync/runs")
    assert (answer.status_code, answer.json["error"]) == (503, "store-unavailable")
    assert answer.headers["Retry-After"]
    assert "redis.internal" not in answer.text


def test_no_answer_is_to_be_stored(app: Flask, cron: Anarchon) -> None:
    app.register_blueprint(cron.blueprint(permission=deny), name="closed", url_prefix="/closed")
    for path in ("/cron/jobs", "/cron/jobs/sync/runs?limit=no", "/cron/nowhere", "/closed/jobs"):
        assert get(app, path).headers["Cache-Control"] == "no-store"


def test_app_whose_json_is_its_own_answers_in_the_same_shape(app: Flask) -> None:
    app.json.sort_keys = True  # type: ignore[attr-defined]
    app.extensions["anarchon"].run_now("sync")
    assert list(json.loads(get(app, "/cron/jobs/sync/last").data)) == list(
        app.extensions["anarchon"].last_run("sync").to_dict()
    )


# -- refusals


@pytest.mark.parametrize("path", ["/cron/jobs", "/cron/jobs/sync/runs", "/cron/nowhere"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_other_methods_are_refused_in_json(app: Flask, method: str, path: str) -> None:
    answer = get(app, path, method)
    assert (answer.status_code, answer.json["error"]) == (405, "method-not-allowed")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_head_has_the_headers_of_get_and_no_body(app: Flask) -> None:
    head, whole = get(app, "/cron/jobs/sync/last", "HEAD"), get(app, "/cron/jobs/sync/last")
    assert (head.status_code, head.data) == (200, b"")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]


def test_options_says_what_is_allowed_to_anybody(app: Flask, cron: Anarchon) -> None:
    app.register_blueprint(cron.blueprint(permission=deny), name="closed", url_prefix="/closed")
    answer = get(app, "/closed/jobs", "OPTIONS")
    assert (answer.status_code, answer.headers["Allow"]) == (200, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize("path", ["/cron/", "/cron/nowhere", "/cron/jobs/", "/cron/jobs/sync", "/cron/jobs/sync/run"])
def test_what_is_not_found_below_the_prefix_is_told_in_json(app: Flask, path: str) -> None:
    answer = get(app, path)
    assert (answer.status_code, answer.json["error"]) == (404, "not-found")


def test_rest_of_the_app_is_its_own(app: Flask, make_app: MakeApp, cron: Anarchon) -> None:
    bare = make_app("bare", PERMISSION=allow)
    cron.init_app(bare)
    bare.register_blueprint(cron.blueprint())
    for app_ in (app, bare):
        app_.add_url_rule("/page/", "page", lambda: "page")
        assert get(app_, "/nowhere").mimetype == "text/html"
        assert get(app_, "/page").status_code == 308
        assert get(app_, "/page/", "POST").mimetype == "text/html"
    assert get(bare, "/jobs").json[0]["name"] == "sync"
    assert get(bare, "/jobs/sync/last").json is None
    assert get(bare, "/jobs", "POST").json["error"] == "method-not-allowed"
    assert get(bare, "/jobs/sync").json["error"] == "not-found"


# -- who may


def test_without_a_permission_only_debug_mode_lets_anybody_in(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app()
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    for path in ("/cron/jobs", "/cron/jobs/sync/runs", "/cron/jobs/sync/last", "/cron/jobs/sync/active", "/cron/x"):
        answer = get(app, path)
        assert (answer.status_code, answer.json["error"]) == (403, "forbidden")
    app.debug = True
    assert get(app, "/cron/jobs").status_code == 200


def test_testing_is_no_reason_to_let_anybody_in(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app()
    app.testing = True
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    assert get(app, "/cron/jobs").status_code == 403


def test_permission_decides_by_the_request_in_debug_mode_too(make_app: MakeApp, cron: Anarchon) -> None:
    def by_header(request: Request) -> bool:
        assert isinstance(request, Request)
        return request.headers.get("X-Role") == "operator"

    app = make_app(PERMISSION=by_header)
    app.debug = True
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    assert get(app, "/cron/jobs").status_code == 403
    assert get(app, "/cron/jobs", headers={"X-Role": "operator"}).status_code == 200


def test_permission_of_the_blueprint_goes_before_the_configs(app: Flask, cron: Anarchon) -> None:
    app.register_blueprint(cron.blueprint(permission=deny), name="closed", url_prefix="/closed")
    assert get(app, "/closed/jobs").status_code == 403
    assert get(app, "/cron/jobs").status_code == 200


def refuse(request: Request) -> bool:
    abort(403)


def test_permission_may_refuse_as_views_do(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(PERMISSION=refuse)
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    answer = get(app, "/cron/jobs")
    assert (answer.status_code, answer.json["error"]) == (403, "forbidden")


@pytest.mark.parametrize("answer", [None, 1, "no", ("Go away", 403)])
def test_permission_whose_answer_is_neither_yes_nor_no_lets_nobody_in(
    make_app: MakeApp, cron: Anarchon, answer: object
) -> None:
    app = make_app(PERMISSION=lambda request: answer)
    app.testing = True
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    with pytest.raises(TypeError, match="must return True or False"):
        get(app, "/cron/jobs")
    app.testing = False
    assert get(app, "/cron/jobs").status_code == 500


def test_permission_that_raises_lets_nobody_in(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(PERMISSION=lambda request: 1 / 0)
    cron.init_app(app)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    assert get(app, "/cron/jobs").status_code == 500


# -- where it is registered


def test_one_blueprint_answers_for_each_app_that_it_is_registered_on(make_app: MakeApp, cron: Anarchon) -> None:
    cron.every("sync", "1h", lambda: None)
    blueprint = cron.blueprint(permission=allow)
    one, other = make_app("one"), make_app("other")
    for app in (one, other):
        cron.init_app(app)
        app.register_blueprint(blueprint, url_prefix="/cron")
    one.extensions["anarchon"].run_now("sync")
    assert len(get(one, "/cron/jobs/sync/runs").json) == 1
    assert get(other, "/cron/jobs/sync/runs").json == []


def test_blueprint_may_be_registered_before_the_app_has_its_scheduler(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(PERMISSION=allow)
    app.register_blueprint(cron.blueprint(), url_prefix="/cron")
    cron.init_app(app)
    assert get(app, "/cron/jobs").json == []


def test_blueprint_may_be_nested_in_one_of_the_apps(make_app: MakeApp, cron: Anarchon) -> None:
    app = make_app(PERMISSION=allow)
    cron.init_app(app)
    api = Blueprint("api", __name__)
    api.register_blueprint(cron.blueprint(), url_prefix="/cron")
    app.register_blueprint(api, url_prefix="/api")
    assert get(app, "/api/cron/jobs").json == []
    assert get(app, "/api/cron/nowhere").json["error"] == "not-found"
    assert get(app, "/api/nowhere").mimetype == "text/html"
