"""RemoteWorkers: a worker that is really served, and what else may answer, or not, in its place."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pytest
from servers import free_port
from serving import TOKEN, Jobs, serving

from anarchon import BackendError, ConfigurationError, JobNotRegistered, MemoryBackend, RunRefused
from anarchon.web import RemoteWorkers
from anarchon.web import remote as remote_module

OTHER = "another-horse-another-staple"
RECORD = {
    "job": "sync", "slot": "2026-03-01T08:00:00.000Z", "run_id": "manual-1", "attempt": 1, "trigger": "manual",
    "status": "success", "instance_id": "there", "fence": 7, "started_at": "2026-03-01T08:00:00.000Z",
    "finished_at": "2026-03-01T08:00:01.000Z", "duration": 1.0, "error": None, "lease_lost": False,
}  # fmt: skip

Answer = bytes | Callable[[socket.socket], object]


def answered(status: str, body: Any = b"", *headers: str) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(raw)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + raw


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[str, list[bytes]]]:
    """Something that answers one request in its own way; its URL, and what it was sent."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connected, _ = listener.accept()
            # Whoever asked may have had enough before the end.
            with connected, contextlib.suppress(ConnectionError):
                connected.settimeout(60)
                heard.append(request_on(connected))
                if callable(answer):
                    answer(connected)
                else:
                    connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        finally:
            thread.join(60)


def request_on(connected: socket.socket) -> bytes:
    """All of a request, which may come in pieces: to close on one of them would reset the connection. Of what is no
    HTTP, what comes first."""
    told = connected.recv(65_536)
    while told[:1].isalpha() and not is_whole(told) and (more := connected.recv(65_536)):
        told += more
    return told


def is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)


def free_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


def everything_about(error: BaseException) -> str:
    """All that a traceback, a log, or a page that shows the locals of each frame has of an error and its causes."""
    told = list(traceback.format_exception(error))
    link: BaseException | None = error
    while link is not None:
        told.append(f"{link} {link!r} {link.__dict__}")
        told.extend(repr(frame.f_locals) for frame in frames_of(link.__traceback__))
        link = link.__cause__ or link.__context__
    return "\n".join(told)


def frames_of(at: TracebackType | None) -> Iterator[Any]:
    # The test's own frames have the token: it is theirs.
    while at is not None:
        if at.tb_frame.f_code.co_filename != __file__:
            yield at.tb_frame
        at = at.tb_next


# -- a worker that is there


def test_a_worker_is_asked_like_a_scheduler_and_gives_the_same() -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        remote = RemoteWorkers(server.url, TOKEN)
        record = remote.run_now("sync")
        assert record == jobs.scheduler.last_run("sync")
        assert (record.trigger, record.status, record.instance_id) == ("manual", "success", "there")
        assert remote.run_now("fails").error == "ValueError: no money"
        assert remote.last_run("sync") == record
        assert remote.last_run("long") is None
        assert remote.history("sync") == [record]
        assert remote.history("nobody", limit=1_000) == []
        assert remote.jobs() == jobs.scheduler.jobs()


def test_a_run_that_goes_on_is_seen_and_given_when_it_has_ended() -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        remote = RemoteWorkers(f"{server.url}/", TOKEN, timeout="60s")
        assert remote.run_now("long", wait="0s") is None
        jobs.wait_until_begun()
        [run] = remote.active("long")
        assert (run.trigger, run.instance_id, run.lease_left > 0) == ("manual", "there", True)
        jobs.let_go()
        assert remote.run_now("long", wait=60).status == "success"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["a/b", "a/runs", "//a", "..", "50%", "%2F", "a?b#c", "naïve-日本"])
def test_any_name_reaches_its_job(name: str) -> None:
    jobs = Jobs()
    jobs.scheduler.cron(name, "0 0 29 2 *", lambda: None)
    with serving(jobs) as server:
        remote = RemoteWorkers(server.url, TOKEN)
        assert remote.run_now(name).job == name
        assert [record.job for record in remote.history(name)] == [name]


def test_one_client_serves_many_threads() -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        remote, seen = RemoteWorkers(server.url, TOKEN), list[int]()
        remote.run_now("sync")
        threads = [threading.Thread(target=lambda: seen.append(len(remote.history("sync")))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert seen == [1] * 12


# -- what a worker refuses


def test_an_unknown_job_is_told_as_a_scheduler_tells_it() -> None:
    with serving(Jobs()) as server, pytest.raises(JobNotRegistered) as raised:
        RemoteWorkers(server.url, TOKEN).run_now("sinc")
    assert (raised.value.job, raised.value.nearest) == ("sinc", "sync")


def test_a_refused_run_names_the_holder() -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        remote = RemoteWorkers(server.url, TOKEN)
        remote.run_now("deaf", wait=0)
        jobs.wait_until_begun()
        with pytest.raises(RunRefused) as raised:
            remote.run_now("deaf")
        assert (raised.value.job, raised.value.holder, raised.value.stopping) == ("deaf", "there", False)
        assert "already running on 'there'" in str(raised.value)


def test_a_worker_that_stops_says_so() -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        jobs.scheduler.stop("60s")
        with pytest.raises(RunRefused, match="Job 'sync' was not run: this scheduler is stopping") as raised:
            RemoteWorkers(server.url, TOKEN).run_now("sync")
        assert raised.value.stopping


@pytest.mark.parametrize("token", [None, OTHER])
def test_another_token_is_a_mistake_that_is_told(token: str | None) -> None:
    with serving(Jobs()) as server:
        remote = RemoteWorkers(server.url, token)
        for ask in (remote.jobs, lambda: remote.run_now("sync")):
            with pytest.raises(
                ConfigurationError, match=f"The worker at {server.url} answered 401: .* wants its token"
            ):
                ask()


def test_a_worker_without_a_token_runs_nothing_and_answers_its_own_host() -> None:
    with serving(Jobs(), token=None) as server:
        remote = RemoteWorkers(server.url)
        assert len(remote.jobs()) == 4
        with pytest.raises(ConfigurationError, match="answered 403: .* it runs nothing"):
            remote.run_now("sync")


class Away(MemoryBackend):
    """A store that is away from the moment it is told."""

    away = False

    def claim(self, *given: Any) -> Any:
        return self._refuse() if self.away else super().claim(*given)

    def history(self, *given: Any) -> Any:
        return self._refuse() if self.away else super().history(*given)

    def _refuse(self) -> Any:
        raise BackendError("10.1.2.3 refused")


def test_a_store_that_is_away_is_told_and_that_nothing_was_run() -> None:
    backend = Away()
    with serving(Jobs(backend)) as server:
        backend.away = True
        remote = RemoteWorkers(server.url, TOKEN)
        with pytest.raises(BackendError, match="answered 503: The store could not be asked. The job was not run.$"):
            remote.run_now("sync")
        with pytest.raises(BackendError, match="answered 503: The store could not be asked.$"):
            remote.history("sync")
        backend.away = False


@pytest.mark.parametrize("name", ["", "two words", "x" * 201, "\ud800", None, 5])
def test_what_is_no_name_is_not_even_sent(name: Any) -> None:
    remote = RemoteWorkers(free_url(), TOKEN)
    for ask in (remote.run_now, remote.history, remote.last_run, remote.active):
        with pytest.raises(ConfigurationError, match="A job's name must"):
            ask(name)


@pytest.mark.parametrize("limit", [0, 1_001, True, "5", 1.5, None, pytest.param(10**5_000, id="huge")])
def test_what_is_no_limit_is_not_even_sent(limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit must be a whole number from 1 to 1000"):
        RemoteWorkers(free_url(), TOKEN).history("sync", limit)


def test_what_is_no_wait_is_not_even_sent() -> None:
    with pytest.raises(ConfigurationError, match="wait must be a duration"):
        RemoteWorkers(free_url(), TOKEN).run_now("sync", wait="soon")


# -- when nobody answers, or somebody else


def test_a_worker_that_is_not_there_has_run_nothing() -> None:
    url = free_url()
    remote = RemoteWorkers(url, TOKEN)
    with pytest.raises(BackendError, match=f"{url} could not be reached: .*refused. The job was not run.$") as raised:
        remote.run_now("sync")
    assert isinstance(raised.value.__cause__, ConnectionRefusedError)
    with pytest.raises(BackendError, match="could not be reached: .*refused.$"):
        remote.jobs()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70 + ".example"])
def test_a_name_that_nobody_has_is_told(host: str) -> None:
    with pytest.raises(BackendError, match="could not be reached: .* The job was not run.$"):
        RemoteWorkers(f"http://{host}:9100", TOKEN).run_now("sync")


def nothing(connected: socket.socket) -> None:
    """Hears, and closes without a word."""


def never(connected: socket.socket) -> None:
    """Hears, and says nothing until the other side has had enough."""
    connected.recv(1)


LOST = {
    "closed": nothing,
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "half a body": answered("200 OK", RECORD)[:-20],
    "less than a body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
}


@pytest.mark.parametrize("answer", LOST.values(), ids=list(LOST))
def test_a_lost_answer_leaves_open_whether_the_run_has_begun(answer: Answer) -> None:
    with answering(answer) as (url, _), pytest.raises(BackendError) as raised:
        RemoteWorkers(url, TOKEN).run_now("sync")
    assert str(raised.value).startswith(f"The worker at {url} did not answer: ")
    assert str(raised.value).endswith("The run may have begun; then its end will be in the job's history.")


def test_an_answer_that_does_not_come_in_time_is_not_waited_for() -> None:
    with answering(never) as (url, _), pytest.raises(BackendError, match="did not answer: TimeoutError") as raised:
        RemoteWorkers(url, TOKEN, timeout="200ms").run_now("sync")
    assert "may have begun" in str(raised.value)


def test_a_worker_that_does_not_answer_after_the_wait_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_QUESTION_S", 0.1)
    with answering(never) as (url, _), pytest.raises(BackendError, match="did not answer: TimeoutError") as raised:
        RemoteWorkers(url, TOKEN).run_now("sync", wait="100ms")
    assert "may have begun" in str(raised.value)


def test_a_question_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_QUESTION_S", 0.2)
    with answering(never) as (url, _), pytest.raises(BackendError, match="did not answer: TimeoutError") as raised:
        RemoteWorkers(url, TOKEN).history("sync")
    assert "begun" not in str(raised.value)


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "_LONGEST_ANSWER", 1_000)
    for answer in (answered("200 OK", [RECORD] * 5), b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 2_000):
        with answering(answer) as (url, _), pytest.raises(BackendError):
            RemoteWorkers(url, TOKEN).history("sync")


STRANGE = {
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a proxy": answered("502 Bad Gateway", b"<h1>no</h1>"),
    "its own JSON": answered("500 Internal Server Error", {"detail": "no"}),
    "no JSON": answered("200 OK", b"hello"),
    "much too deep": answered("200 OK", b"[" * 100_000),
    "nothing": answered("202 Accepted", None),
    "no record": answered("200 OK", {"job": "sync"}),
    "a list": answered("200 OK", [RECORD]),
    "a broken record": answered("200 OK", {**RECORD, "slot": "noon"}),
    "a fault": answered("500 Internal Server Error", {"error": "failed", "message": "The log says why."}),
}


@pytest.mark.parametrize("answer", STRANGE.values(), ids=list(STRANGE))
def test_a_strange_answer_leaves_open_whether_the_run_has_begun(answer: bytes) -> None:
    with answering(answer) as (url, _), pytest.raises(BackendError, match="The run may have begun") as raised:
        RemoteWorkers(url, TOKEN).run_now("sync")
    assert url in str(raised.value)


@pytest.mark.parametrize("body", [b"no JSON", {"job": "sync"}, 5, None, ["sync"], [None]])
def test_a_strange_answer_to_a_question_is_an_error(body: Any) -> None:
    for ask in (lambda remote: remote.jobs(), lambda remote: remote.history("x"), lambda remote: remote.active("x")):
        with answering(answered("200 OK", body)) as (url, _), pytest.raises(BackendError):
            ask(RemoteWorkers(url, TOKEN))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed_with_the_token_in_hand(status: str) -> None:
    with answering(answered("200 OK", RECORD)) as (elsewhere, heard):
        with answering(answered(status, b"", f"Location: {elsewhere}/jobs/sync/run")) as (url, _):
            with pytest.raises(BackendError, match=f"{url} answered {status[:3]}, and not as a worker does") as raised:
                RemoteWorkers(url, TOKEN).run_now("sync")
        assert "begun" not in str(raised.value)
        assert heard == []
        # Whoever waits there is let go.
        with pytest.raises(BackendError):
            RemoteWorkers(elsewhere, TOKEN, timeout="60s").jobs()


def test_a_proxy_of_the_environment_is_not_told_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, free_url())
    with serving(Jobs()) as server:
        assert RemoteWorkers(server.url, TOKEN).run_now("sync").status == "success"


def test_a_path_where_the_endpoint_is_mounted_comes_before_the_question() -> None:
    with answering(answered("200 OK", [])) as (url, heard):
        assert RemoteWorkers(f"{url}/internal/cron/", TOKEN).history("a/b", 5) == []
    head = heard[0].decode()
    assert head.startswith("GET /internal/cron/jobs/a%2Fb/runs?limit=5 HTTP/1.1\r\n")
    assert f"\r\nAuthorization: Bearer {TOKEN}\r\n" in head


def test_https_is_spoken_and_asks_for_a_certificate_that_is_trusted() -> None:
    def hang_up(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with answering(hang_up) as (url, heard):
        with pytest.raises(BackendError, match="could not be reached: SSLError: .* The job was not run.$"):
            RemoteWorkers(url.replace("http:", "https:"), TOKEN).run_now("sync")
    assert heard[0].startswith(b"\x16\x03") and TOKEN.encode() not in heard[0]
    context = ssl.create_default_context()
    assert RemoteWorkers("https://cron", TOKEN, ssl_context=context)._ssl_context is context
    default = RemoteWorkers("https://cron", TOKEN)._ssl_context
    assert default is not None and (default.verify_mode, default.check_hostname) == (ssl.CERT_REQUIRED, True)


# -- how it is made


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cron-worker:9100",
        "localhost",
        "//cron-worker:9100",
        "ftp://cron-worker",
        "unix:///run/cron.sock",
        "http://",
        "http://:9100",
        "http:///jobs",
        "http://cron-worker:port",
        "http://cron-worker:99999",
        "http://[::1",
        "http://cron worker",
        "http://cron-worker\n.example",
        "http://wörker:9100",
        "http://cron-worker/?a=b",
        "http://cron-worker/#jobs",
        f"http://me:{OTHER}@cron-worker:9100",
        f"http://{OTHER}@cron-worker:9100",
        f"http://me:{OTHER}@cron-worker:port",
        None,
        b"http://cron-worker",
    ],
)
def test_what_is_no_url_of_a_worker_is_refused_without_being_repeated(url: Any) -> None:
    with pytest.raises(
        ConfigurationError, match="The URL of a worker is http://HOST:PORT or https://HOST:PORT"
    ) as raised:
        RemoteWorkers(url, TOKEN)
    assert OTHER not in str(raised.value)


@pytest.mark.parametrize("token", ["", "short", "with space in the middle", "line\r\nInjected: header", 5])
def test_a_token_that_will_not_do_is_refused(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="The token"):
        RemoteWorkers("http://cron-worker:9100", token)


@pytest.mark.parametrize("timeout", ["soon", -1, 0, "0s"])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must"):
        RemoteWorkers("http://cron-worker:9100", TOKEN, timeout=timeout)


def test_it_shows_where_it_asks_and_no_more() -> None:
    assert repr(RemoteWorkers("https://Cron-Worker/a/", TOKEN)) == "<RemoteWorkers https://cron-worker/a>"
    assert repr(RemoteWorkers("http://[::1]:9100", TOKEN)) == "<RemoteWorkers http://[::1]:9100>"


def test_the_token_is_in_no_error_nor_in_what_shows_the_frames_of_one(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException] = []
    with caplog.at_level(logging.DEBUG):
        for answer in (
            *LOST.values(),
            *STRANGE.values(),
            answered("401 Unauthorized", {"error": "x", "message": "no."}),
        ):
            with answering(answer) as (url, _), pytest.raises(Exception) as raised:
                RemoteWorkers(url, TOKEN).run_now("sync")
            errors.append(raised.value)
        with pytest.raises(BackendError) as unreached:
            RemoteWorkers(free_url(), TOKEN).run_now("sync")
        errors.append(unreached.value)
    for error in errors:
        assert TOKEN not in everything_about(error)
    assert TOKEN not in caplog.text
