"""The worker endpoint, asked through WSGI: every answer's status and JSON body, and who gets none."""

from __future__ import annotations

import io
import json
import logging
import threading
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client, TestResponse

from anarchon import BackendError, ConfigurationError, MemoryBackend, RunContext, Scheduler
from anarchon.web import WorkerEndpoint

TOKEN = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
QUESTIONS = ["/jobs", "/jobs/sync/runs", "/jobs/sync/last", "/jobs/sync/active"]
HERE = {"REMOTE_ADDR": "127.0.0.1"}


def fails() -> None:
    raise ValueError("no money")


def make(backend: Any = None, lease: str = "5m") -> Scheduler:
    scheduler = Scheduler(backend or MemoryBackend(), instance_id="here", lease=lease)
    return scheduler.every("sync", "10s", lambda: None).every("fails", "10s", fails)


def ask(app: Any, path: str, method: str = "GET", environ: dict[str, Any] | None = None, **more: Any) -> TestResponse:
    """One request, with the token unless other headers are given; whatever is answered is JSON that nobody keeps."""
    request = {"headers": BEARER, **more}
    response = Client(app).open(path, method=method, environ_overrides={**HERE, **(environ or {})}, **request)
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert method == "HEAD" or json.loads(response.data) == response.json
    return response


def refused(response: TestResponse) -> tuple[int, str]:
    """The status and the word of an answer that is not the wanted one."""
    assert response.json is not None
    assert response.json["message"].endswith((".", "?"))
    return response.status_code, response.json["error"]


# -- what is answered


def test_each_question_gives_what_the_scheduler_gives() -> None:
    scheduler = make()
    app = WorkerEndpoint(scheduler, TOKEN)
    record = ask(app, "/jobs/sync/run", "POST").json
    assert (record["job"], record["trigger"], record["status"]) == ("sync", "manual", "success")
    assert [job["name"] for job in ask(app, "/jobs").json] == ["sync", "fails"]
    assert ask(app, "/jobs/sync/runs").json == [record]
    assert ask(app, "/jobs/sync/last").json == record
    assert ask(app, "/jobs/sync/active").json == []
    assert ask(app, "/jobs/fails/last").json is None


def test_as_many_runs_are_given_as_are_asked_for() -> None:
    app = WorkerEndpoint(make(), TOKEN)
    ids = [ask(app, "/jobs/sync/run", "POST").json["run_id"] for _ in range(3)]
    assert [record["run_id"] for record in ask(app, "/jobs/sync/runs?limit=2").json] == ids[:0:-1]


def test_a_run_that_failed_is_answered_like_any_other() -> None:
    response = ask(WorkerEndpoint(make(), TOKEN), "/jobs/fails/run", "POST")
    assert (response.status_code, response.json["error"]) == (200, "ValueError: no money")


def test_an_active_run_is_shown_while_it_goes_on() -> None:
    seen: list[Any] = []
    scheduler = Scheduler(MemoryBackend(), instance_id="here")
    app = WorkerEndpoint(scheduler, TOKEN)
    scheduler.every("sync", "10s", lambda: seen.extend(ask(app, "/jobs/sync/active").json))
    ask(app, "/jobs/sync/run", "POST")
    assert [run["instance_id"] for run in seen] == ["here"]


SLASHES = ["a/b", "a/runs", "a/run", "/a", "a//b", "a/", "/"]
NAMES = [*SLASHES, "runs", "jobs", "..", "50%", "100%25", "a%2Fb", "a?b#c", "naïve-日本", "é" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_is_reached_by_its_percent_encoded_name_whatever_it_is(name: str) -> None:
    scheduler = Scheduler(MemoryBackend()).every(name, "1d", lambda: None).every("a", "1d", fails)
    app = WorkerEndpoint(scheduler, TOKEN)
    path = f"/jobs/{quote(name, safe='')}"
    record = ask(app, f"{path}/run", "POST").json
    assert (record["job"], record["status"]) == (name, "success")
    assert ask(app, f"{path}/runs").json == [record]
    assert ask(app, f"{path}/last").json == record
    assert ask(app, f"{path}/active").json == []


@pytest.mark.parametrize("path", QUESTIONS)
def test_head_is_answered_like_get_without_the_body(path: str) -> None:
    app = WorkerEndpoint(make(), TOKEN)
    asked, got = ask(app, path, "HEAD"), ask(app, path)
    assert (asked.status_code, asked.data) == (200, b"")
    assert asked.headers["Content-Length"] == str(len(got.data))


def test_an_endpoint_that_is_mounted_below_a_path_answers_there() -> None:
    app = DispatcherMiddleware(lambda environ, start: [], {"/internal/cron": WorkerEndpoint(make(), TOKEN)})
    assert ask(app, "/internal/cron/jobs/sync/run", "POST").status_code == 200


# -- what is refused


UNKNOWN = ["/", "/job", "/JOBS", "/jobs/", "/jobs/sync", "/jobs/sync/", "/jobs/sync/walk", "/jobs//run"]


@pytest.mark.parametrize("path", [*UNKNOWN, "/jobs/sync/runs/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found_and_never_redirected(path: str, method: str) -> None:
    assert refused(ask(WorkerEndpoint(make(), TOKEN), path, method)) == (404, "not-found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", QUESTIONS)
def test_a_question_takes_get_and_head_alone(path: str, method: str) -> None:
    response = ask(WorkerEndpoint(make(), TOKEN), path, method)
    assert refused(response) == (405, "method-not-allowed")
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_a_run_takes_post_alone(method: str) -> None:
    scheduler = make()
    response = ask(WorkerEndpoint(scheduler, TOKEN), "/jobs/sync/run", method)
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert scheduler.history("sync") == []


def test_an_unknown_job_is_not_found_and_the_nearest_is_named() -> None:
    response = ask(WorkerEndpoint(make(), TOKEN), "/jobs/sinc/run", "POST")
    assert refused(response) == (404, "job-not-registered")
    assert (response.json["job"], response.json["nearest"]) == ("sinc", "sync")


def test_a_run_that_meets_another_is_refused_with_the_holder() -> None:
    seen: list[TestResponse] = []
    scheduler = Scheduler(MemoryBackend(), instance_id="here")
    app = WorkerEndpoint(scheduler, TOKEN)
    scheduler.every("sync", "10s", lambda: seen.append(ask(app, "/jobs/sync/run", "POST")))
    ask(app, "/jobs/sync/run", "POST")
    assert refused(seen[0]) == (409, "run-refused")
    assert seen[0].json["holder"] == "here"


@pytest.mark.parametrize("limit", ["0", "1001", "ten", "", "9" * 5000])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    assert refused(ask(WorkerEndpoint(make(), TOKEN), f"/jobs/sync/runs?limit={limit}")) == (400, "bad-limit")


@pytest.mark.parametrize("name", ["two words", "{}", "x" * 201, "\x7f", "%FF%00"])
def test_what_is_no_name_of_a_job_is_refused(name: str) -> None:
    encoded = name if name.startswith("%") else quote(name, safe="")
    assert refused(ask(WorkerEndpoint(make(), TOKEN), f"/jobs/{encoded}/runs")) == (400, "bad-request")


class Away(MemoryBackend):
    """A store that cannot be reached, and says where it would be."""

    def _refuse(self, *given: object) -> Any:
        raise BackendError("10.1.2.3:6379 refused")

    claim = history = active = time = _refuse


@pytest.mark.parametrize(("method", "path"), [("POST", "/jobs/sync/run"), *(("GET", path) for path in QUESTIONS[1:])])
def test_a_store_that_is_away_is_told_without_where_it_stands(method: str, path: str) -> None:
    # For as long as its lease would last, a claim that is in doubt is withdrawn.
    response = ask(WorkerEndpoint(make(Away(), lease="1s"), TOKEN), path, method)
    assert refused(response) == (503, "store-unavailable")
    assert response.headers["Retry-After"] == "5"
    assert b"10.1.2.3" not in response.data


def test_a_fault_of_ours_is_told_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make()
    monkeypatch.setattr(scheduler, "history", lambda *given: {}["secret"])
    response = ask(WorkerEndpoint(scheduler, TOKEN), "/jobs/sync/runs")
    assert refused(response) == (500, "failed")
    assert b"secret" not in response.data
    assert "KeyError: 'secret'" in caplog.text


# -- the body of a run


@pytest.mark.parametrize("body", [b"", b"{}", b' {"wait": null} ', b'{"wait": "1m"}', b'{"wait": 60}'])
def test_a_run_takes_no_body_or_an_object(body: bytes) -> None:
    response = ask(WorkerEndpoint(make(), TOKEN), "/jobs/sync/run", "POST", data=body, content_type="application/json")
    assert (response.status_code, response.json["status"]) == (200, "success")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "bad-json"),
        (b"[" * 4000, "bad-json"),
        (b"\xff\xfe", "bad-json"),
        (b"  ", "bad-json"),
        (b"null", "bad-json"),
        (b"[]", "bad-json"),
        (b'"wait"', "bad-json"),
        (b'{"wiat": 5}', "unknown-key"),
        (b'{"wait": 5, "job": "fails"}', "unknown-key"),
        (b'{"wait": "soon"}', "bad-request"),
        (b'{"wait": -1}', "bad-request"),
        (b'{"wait": true}', "bad-request"),
        (b'{"wait": Infinity}', "bad-request"),
        (b'{"wait": 1e400}', "bad-request"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused_and_nothing_runs(body: bytes, word: str) -> None:
    scheduler = make()
    app = WorkerEndpoint(scheduler, TOKEN)
    response = ask(app, "/jobs/sync/run", "POST", data=body, content_type="application/json; charset=utf-8")
    assert refused(response) == (400, word)
    assert scheduler.history("sync") == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonish", ""])
def test_a_body_of_another_kind_is_refused(kind: str) -> None:
    response = ask(WorkerEndpoint(make(), TOKEN), "/jobs/sync/run", "POST", data=b"{}", content_type=kind)
    assert refused(response) == (415, "no-json")


@pytest.mark.parametrize("told", [True, False])
def test_a_body_that_is_too_large_is_refused_whether_its_length_is_told_or_not(told: bool) -> None:
    scheduler, body = make(), b'{"wait": "' + b" " * 4_096 + b'"}'
    # As a server hands over a body that came in chunks.
    length = {} if told else {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    app = WorkerEndpoint(scheduler, TOKEN)
    response = ask(app, "/jobs/sync/run", "POST", data=body, content_type="application/json", environ=length)
    assert refused(response) == (413, "body-too-large")
    assert scheduler.history("sync") == []


def test_a_body_that_breaks_off_is_refused() -> None:
    scheduler = make()
    environ = {"CONTENT_LENGTH": "50", "CONTENT_TYPE": "application/json", "wsgi.input": io.BytesIO(b"{}")}
    assert refused(ask(WorkerEndpoint(scheduler, TOKEN), "/jobs/sync/run", "POST", environ)) == (400, "bad-body")
    assert scheduler.history("sync") == []


# -- runs that go on


class Long:
    """A scheduler whose job goes on until it is let go, and its endpoint; by itself it is due once in four years."""

    def __init__(self, **options: Any) -> None:
        self.begun, self._over = threading.Semaphore(0), threading.Event()
        self.scheduler = Scheduler(MemoryBackend(), instance_id="here").cron("sync", "0 0 29 2 *", lambda: None)
        self.scheduler.cron("long", "0 0 29 2 *", self._run, overlap="allow")
        self.app = WorkerEndpoint(self.scheduler, TOKEN, **options)

    def _run(self, ctx: RunContext) -> None:
        self.begun.release()
        self._over.wait(60)
        ctx.raise_if_cancelled()

    def ask_in_vain(self, answers: list[TestResponse]) -> threading.Thread:
        """Asks for a run on a thread; returns when the run has begun."""
        thread = threading.Thread(target=lambda: answers.append(ask(self.app, "/jobs/long/run", "POST")))
        thread.start()
        self.wait_until_begun()
        return thread

    def wait_until_begun(self) -> None:
        assert self.begun.acquire(timeout=60)

    def let_go(self) -> None:
        self._over.set()


def test_a_run_that_outlasts_its_caller_s_wait_is_accepted_and_goes_on() -> None:
    long = Long()
    response = ask(long.app, "/jobs/long/run", "POST", data=b'{"wait": 0}', content_type="application/json")
    assert (response.status_code, response.json) == (202, None)
    long.wait_until_begun()  # A stop would withdraw a run that has not begun.
    assert [run["trigger"] for run in ask(long.app, "/jobs/long/active").json] == ["manual"]
    long.let_go()
    assert long.scheduler.stop("60s")
    assert len(ask(long.app, "/jobs/long/runs").json) == 1


def test_more_runs_than_may_wait_are_refused_while_questions_are_answered() -> None:
    long, answers = Long(max_runs=2), list[TestResponse]()
    threads = [long.ask_in_vain(answers) for _ in range(2)]
    try:
        response = ask(long.app, "/jobs/sync/run", "POST")
        assert refused(response) == (503, "busy")
        assert response.headers["Retry-After"] == "5"
        assert long.scheduler.history("sync") == []
        assert len(ask(long.app, "/jobs/long/active").json) == 2
    finally:
        long.let_go()
        for thread in threads:
            thread.join(60)
    assert [answer.json["status"] for answer in answers] == ["success", "success"]
    # A refusal takes no room either.
    for _ in range(5):
        assert ask(long.app, "/jobs/nobody/run", "POST").status_code == 404
    assert ask(long.app, "/jobs/sync/run", "POST").status_code == 200


def test_a_caller_whose_run_is_stopped_is_answered_and_later_ones_are_told_of_the_stop() -> None:
    long, answers = Long(until_stopped=True), list[TestResponse]()
    assert ask(long.app, "/jobs/sync/run", "POST").status_code == 200
    long.scheduler.start()
    thread = long.ask_in_vain(answers)
    assert not long.scheduler.stop("0s")
    response = ask(long.app, "/jobs/sync/run", "POST")
    assert refused(response) == (503, "stopping")
    assert response.headers["Retry-After"] == "5"
    long.let_go()
    thread.join(60)
    assert long.scheduler.stop("60s")
    assert (answers[0].status_code, answers[0].json["status"]) == (200, "interrupted")
    assert refused(ask(long.app, "/jobs/sync/run", "POST")) == (503, "stopping")
    assert len(long.scheduler.history("sync")) == 1
    long.scheduler.stop()


# -- who is answered


EVERYTHING = [*(("GET", path) for path in [*QUESTIONS, "/nothing"]), ("POST", "/jobs/sync/run"), ("DELETE", "/jobs")]


@pytest.mark.parametrize(("method", "path"), EVERYTHING)
def test_without_the_token_nothing_is_told_of_any_path(method: str, path: str) -> None:
    scheduler = make()
    app = WorkerEndpoint(scheduler, TOKEN)
    told = set()
    for headers in ({}, {"Authorization": "Bearer of-bad-news-and-nothing"}):
        response = ask(app, path, method, headers=headers)
        assert refused(response) == (401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="anarchon"'
        told.add(response.json["message"])
    assert len(told) == 2
    assert scheduler.history("sync") == []


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer{TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}e",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        f"Bearer {TOKEN}\x00",
        "Bearer \xe9\xff\x80",
        "Bearer " + "日本".encode().decode("latin-1"),
        "Bearer 日本",
        "Bearer \ud800",
        "Bearer " + "x" * 100_000,
    ],
)
def test_a_header_that_bears_another_token_is_refused_whatever_bytes_it_has(value: str) -> None:
    app = WorkerEndpoint(make(), TOKEN)
    assert refused(ask(app, "/jobs", headers={}, environ={"HTTP_AUTHORIZATION": value})) == (401, "unauthorized")


@pytest.mark.parametrize("value", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN} "])
def test_the_token_is_known_however_its_scheme_is_written(value: str) -> None:
    assert ask(WorkerEndpoint(make(), TOKEN), "/jobs", headers={"Authorization": value}).status_code == 200


@pytest.mark.parametrize("path", QUESTIONS)
def test_without_a_token_this_host_is_answered(path: str) -> None:
    app = WorkerEndpoint(make())
    assert ask(app, path, headers={}).status_code == 200


def test_without_a_token_nobody_can_run_anything() -> None:
    scheduler = make()
    response = ask(WorkerEndpoint(scheduler), "/jobs/sync/run", "POST", headers={"Authorization": "Bearer None"})
    assert refused(response) == (403, "token-needed")
    assert "ANARCHON_TOKEN" in response.json["message"]
    assert scheduler.history("sync") == []


@pytest.mark.parametrize(
    "address", ["10.0.0.5", "192.168.1.7", "::ffff:10.0.0.5", "2001:db8::1", "0.0.0.0", "", "unix"]
)
@pytest.mark.parametrize(("method", "path"), EVERYTHING)
def test_without_a_token_no_other_host_is_answered(address: str, method: str, path: str) -> None:
    response = ask(WorkerEndpoint(make()), path, method, headers={}, environ={"REMOTE_ADDR": address})
    assert refused(response) == (403, "token-needed")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9100",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example",
        "10.0.0.5:9100",
        "[2001:db8::1]",
        "",
    ],
)
def test_a_page_whose_name_was_made_to_point_here_is_not_answered(host: str) -> None:
    response = ask(WorkerEndpoint(make()), "/jobs", headers={}, environ={"HTTP_HOST": host})
    assert refused(response) == (403, "token-needed")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9100", "LOCALHOST:9100", "127.0.0.1:9100", "127.8.9.1", "[::1]:9100"]
)
def test_this_host_s_own_names_are_answered(host: str) -> None:
    assert ask(WorkerEndpoint(make()), "/jobs", headers={}, environ={"HTTP_HOST": host}).status_code == 200


def test_a_client_so_old_that_it_sends_no_name_is_answered() -> None:
    told: list[str] = []

    def start_response(status: str, headers: Any, exc_info: Any = None) -> Any:
        told.append(status)

    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/jobs", "wsgi.input": io.BytesIO(), **HERE}
    body = b"".join(WorkerEndpoint(make())(environ, start_response))
    assert (told, len(json.loads(body))) == (["200 OK"], 2)


def test_with_the_token_any_host_is_answered_under_any_name() -> None:
    environ = {"REMOTE_ADDR": "10.0.0.5", "HTTP_HOST": "cron-worker:9100"}
    assert ask(WorkerEndpoint(make(), TOKEN), "/jobs/sync/run", "POST", environ).status_code == 200


# -- what is kept back


def test_the_token_stands_in_no_log_and_in_nothing_that_shows_the_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    app = WorkerEndpoint(make(), TOKEN)
    with caplog.at_level(logging.DEBUG):
        ask(app, "/jobs/sync/run", "POST")
        ask(app, "/jobs", headers={"Authorization": f"Bearer {TOKEN}x"})
    assert "A run of 'sync' is asked for over HTTP by '127.0.0.1'." in caplog.text
    assert "did not bear the token" in caplog.text
    assert TOKEN not in caplog.text + repr(app) + repr(vars(app)) + repr([vars(part) for part in [app._guard]])


def test_a_name_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(WorkerEndpoint(make(), TOKEN), "/jobs/a%0D%0Ab/run", "POST")
        ask(WorkerEndpoint(make(), TOKEN), "/jobs/a%0Db/run", "POST")
    assert all("\n" not in record.getMessage() and "\r" not in record.getMessage() for record in caplog.records)


WRONG_TOKENS = ["", "short", "fifteen-letters", "with space in the middle", "né" * 10, "x" * 1_025, "new\n" * 9]


@pytest.mark.parametrize("token", [*WRONG_TOKENS, 5, b"bytes-are-no-token"])
def test_a_token_that_will_not_do_is_refused_and_not_repeated(token: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        WorkerEndpoint(make(), token)
    assert not token or str(token) not in str(raised.value)


@pytest.mark.parametrize("options", [{"max_runs": 0}, {"max_runs": True}, {"max_runs": "4"}])
def test_a_number_of_runs_that_is_none_is_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_runs must be a whole number of 1 or more"):
        WorkerEndpoint(make(), TOKEN, **options)


def test_what_is_no_scheduler_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="takes a Scheduler, not str"):
        WorkerEndpoint("jobs:scheduler", TOKEN)  # type: ignore[arg-type]
