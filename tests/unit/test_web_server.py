"""The worker endpoint as it is really served: sockets, threads, limits, and clients that mean no good."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from servers import free_port
from serving import BEARER, TOKEN, Jobs, answer_of, connect, exchange, serving
from waitress import wasyncore

from anarchon import ConfigurationError
from anarchon.web import server as server_module
from anarchon.web.server import WorkerServer

GET = f"GET /jobs HTTP/1.1\r\nHost: localhost\r\n{BEARER}\r\n".encode()
PATIENCE_S = 60


def post(job: str) -> bytes:
    return f"POST /jobs/{job}/run HTTP/1.1\r\nHost: x\r\n{BEARER}Content-Length: 0\r\n\r\n".encode()


def threads_of_servers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("waitress", "anarchon-http"))]


def is_closed(connected: socket.socket) -> bool:
    try:
        return connected.recv(65_536) == b""
    except ConnectionError:
        return True


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until = time.monotonic() + PATIENCE_S
    while threads_of_servers() and time.monotonic() < until:
        time.sleep(0.01)
    assert threads_of_servers() == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are idle after a second."""
    monkeypatch.setitem(server_module._LIMITS, "channel_timeout", 1)
    monkeypatch.setitem(server_module._LIMITS, "cleanup_interval", 1)


# -- answering


def test_requests_are_answered_over_a_connection_that_stays() -> None:
    with serving(Jobs()) as server, connect(server) as connected:
        for _ in range(2):
            connected.sendall(GET)
            status, headers, body = answer_of(connected)
            assert (status, headers["content-type"]) == (200, "application/json")
            assert [job["name"] for job in body] == ["sync", "fails", "long", "deaf"]
        connected.sendall(post("sync"))
        status, _, body = answer_of(connected)
        assert (status, body["trigger"], body["instance_id"]) == (200, "manual", "there")


@pytest.mark.parametrize("name", ["a/b", "a/runs", "//a", "a//b", "..", "50%", "naïve-日本"])
def test_a_name_s_signs_survive_the_server(name: str) -> None:
    jobs = Jobs()
    jobs.scheduler.cron(name, "0 0 29 2 *", lambda: None)
    from urllib.parse import quote

    with serving(jobs) as server:
        status, _, body = exchange(server, post(quote(name, safe="")))
        assert (status, body["job"]) == (200, name)


def test_without_a_token_this_host_may_ask_and_nobody_may_run() -> None:
    jobs = Jobs()
    with serving(jobs, token=None) as server:
        assert exchange(server, b"GET /jobs HTTP/1.0\r\n\r\n")[0] == 200
        status, _, body = exchange(server, post("sync"))
        assert (status, body["error"]) == (403, "token-needed")
        for name in (b"evil.example", b"[", b"[::1", b"\xff\xfe", b"127.0.0.1, evil.example"):
            status, _, body = exchange(server, b"GET /jobs HTTP/1.1\r\nHost: %b\r\n\r\n" % name)
            assert (status, body["error"]) == (403, "token-needed")
        assert jobs.scheduler.history("sync") == []


def test_questions_are_answered_while_as_many_runs_as_may_be_are_waited_for() -> None:
    jobs = Jobs()
    with serving(jobs) as server, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connect(server)) for _ in range(server_module._RUNS)]
        for connected in waiting:
            connected.sendall(post("long"))
            jobs.wait_until_begun()
        status, _, body = exchange(server, post("long"))
        assert (status, body["error"]) == (503, "busy")
        for _ in range(10):
            assert exchange(server, GET)[0] == 200
        jobs.let_go()
        assert [answer_of(connected)[2]["status"] for connected in waiting] == ["success"] * server_module._RUNS


def test_a_run_goes_on_and_is_recorded_though_its_caller_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        with connect(server) as connected:
            connected.sendall(post("deaf"))
            jobs.wait_until_begun()
        assert exchange(server, GET)[0] == 200
        jobs.let_go()
        until = time.monotonic() + PATIENCE_S
        while jobs.scheduler.last_run("deaf") is None and time.monotonic() < until:
            time.sleep(0.01)
        record = jobs.scheduler.last_run("deaf")
        assert record is not None and record.status == "success"
        assert exchange(server, GET)[0] == 200
    assert "Traceback" not in caplog.text


# -- what is no request


@pytest.mark.parametrize(
    ("sent", "status", "word"),
    [
        (b"GARBAGE\r\n\r\n", 400, "bad-request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad-request"),
        (b"get /jobs HTTP/1.1\r\n\r\n", 400, "bad-request"),
        (b"GET /jobs HTTP/1.1\r\nno colon\r\n\r\n", 400, "bad-request"),
        (b"GET /jobs HTTP/1.1\r\n" + BEARER.encode().replace(b"\r\n", b"\n") + b"\r\n\r\n", 400, "bad-request"),
        (b"POST /jobs/sync/run HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400, "bad-request"),
        (b"POST /jobs/sync/run HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "bad-request"),
        (b"POST /jobs/sync/run HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n", 413, "body-too-large"),
        (b"POST /jobs/sync/run HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "not-implemented"),
        (b"GET /jobs HTTP/1.1\r\nX: " + b"x" * 20_000, 431, "headers-too-large"),
        (b"GET /" + b"x" * 20_000, 431, "headers-too-large"),
    ],
)
def test_what_the_server_itself_refuses_has_a_json_body_and_ends_the_connection(
    sent: bytes, status: int, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), serving(Jobs()) as server:
        with connect(server) as connected:
            connected.sendall(sent)
            answered, headers, body = answer_of(connected)
            assert (answered, body["error"], headers["content-type"]) == (status, word, "application/json")
            assert TOKEN not in str(body)
            assert is_closed(connected)
        assert exchange(server, GET)[0] == 200
    assert TOKEN not in caplog.text and "Traceback" not in caplog.text


def test_a_body_in_chunks_is_read_and_bounded() -> None:
    jobs = Jobs()
    start = f"POST /jobs/sync/run HTTP/1.1\r\nHost: x\r\n{BEARER}Content-Type: application/json\r\n".encode()
    start += b"Transfer-Encoding: chunked\r\n\r\n"
    with serving(jobs) as server:
        assert exchange(server, start + b"2\r\n{}\r\n0\r\n\r\n")[0] == 200
        status, _, body = exchange(server, start + b"1400\r\n" + b" " * 0x1400 + b"\r\n0\r\n\r\n")
        assert (status, body["error"]) == (413, "body-too-large")
        assert len(jobs.scheduler.history("sync")) == 1
        with connect(server) as connected, contextlib.suppress(ConnectionError):
            connected.sendall(start)
            # Sent without an end: it is cut off, answered or not.
            while True:
                connected.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        assert exchange(server, GET)[0] == 200


def test_requests_that_do_not_come_to_an_end_hold_no_thread() -> None:
    with serving(Jobs()) as server, contextlib.ExitStack() as stack:
        for part in (b"", b"G", b"GET /jobs HTTP/1.1\r\nHost: x\r\n", post("sync").replace(b" 0\r", b" 9\r")) * 5:
            stack.enter_context(connect(server)).sendall(part)
        assert exchange(server, GET)[0] == 200


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("part", [b"GET /jobs HTTP/1.1\r\nX: ", post("sync").replace(b" 0\r", b" 900\r")])
def test_a_request_that_comes_byte_by_byte_is_closed_all_the_same(part: bytes) -> None:
    jobs = Jobs()
    with serving(jobs) as server, connect(server) as connected:
        connected.sendall(part)
        connected.settimeout(0.1)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                connected.sendall(b"x")
                if is_closed(connected):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() < until
        assert jobs.scheduler.history("sync") == []


def test_a_connection_that_asks_nothing_is_closed_but_not_one_that_waits_for_a_run() -> None:
    jobs = Jobs()
    with serving(jobs) as server, connect(server) as idle, connect(server) as waiting:
        waiting.sendall(post("long"))
        jobs.wait_until_begun()
        # Not before: on a busy machine a request may take a second to be sent.
        served = server._server
        served.adj.channel_timeout = served.adj.cleanup_interval = 1
        served.next_channel_cleanup = 0
        assert is_closed(idle)
        jobs.let_go()
        assert answer_of(waiting)[2]["status"] == "success"


# -- where it listens


@pytest.mark.parametrize("http", ["0.0.0.0:0", "[::]:0"])
def test_it_does_not_listen_for_others_without_a_token(http: str) -> None:
    with pytest.raises(ConfigurationError, match="without a token, for others than this host may reach it") as raised:
        WorkerServer(Jobs().scheduler, http)
    assert "ANARCHON_TOKEN or --token-file" in str(raised.value)


def test_it_listens_for_others_with_a_token() -> None:
    with serving(Jobs(), http="0.0.0.0:0") as server:
        assert server.url.startswith("http://0.0.0.0:")
        assert exchange(server, GET)[0] == 200


def test_a_name_that_is_of_this_host_is_the_loopback() -> None:
    with serving(Jobs(), token=None, http="localhost:0") as server:
        assert server.url.startswith(("http://127.", "http://[::1]:"))


def test_it_listens_on_the_loopback_of_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this host has no IPv6")
    with serving(Jobs(), token=None, http="[::1]:0") as server:
        assert server.url.startswith("http://[::1]:")
        assert exchange(server, GET)[0] == 200


@pytest.mark.parametrize("token", [None, TOKEN])
def test_an_address_that_another_listens_on_is_refused_and_named(token: str | None) -> None:
    jobs = Jobs()
    with serving(jobs) as server:
        address = server.url.removeprefix("http://")
        with pytest.raises(ConfigurationError, match=f"Cannot listen on {address}: Address already in use"):
            WorkerServer(jobs.scheduler, address, token)
        assert exchange(server, GET)[0] == 200


@pytest.mark.parametrize("http", ["no-such-host.invalid:0", "192.0.2.1:0", "x" * 70 + ".example:0"])
def test_an_address_that_is_not_this_host_s_is_refused_and_named(http: str) -> None:
    with pytest.raises(ConfigurationError, match="Cannot listen on"):
        WorkerServer(Jobs().scheduler, http, TOKEN)


def test_a_process_with_many_open_files_is_served() -> None:
    """select() knows of none that has a number over 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip("this host allows fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        with serving(Jobs()) as server:
            assert exchange(server, GET)[0] == 200
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- the end


def test_a_close_ends_every_connection_and_frees_the_port() -> None:
    jobs = Jobs()
    # Not one that the kernel deals out: it could be anybody's before it is listened on again.
    with serving(jobs, http=f":{free_port()}") as server:
        idle, partial, kept = connect(server), connect(server), connect(server)
        partial.sendall(b"GET /jobs HTTP/1.1\r\nHost: x\r\n")
        kept.sendall(GET)
        assert answer_of(kept)[0] == 200
        server.close(drain="60s")
        for connected in (idle, partial, kept):
            assert is_closed(connected)
            connected.close()
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        server.close()
        with serving(Jobs(), http=server.url.removeprefix("http://")) as again:
            assert again.url == server.url


def test_a_server_that_was_never_started_frees_the_port_too() -> None:
    server = WorkerServer(Jobs().scheduler, f":{free_port()}")
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_a_caller_whose_run_is_stopped_is_answered_before_the_close() -> None:
    jobs = Jobs()
    with serving(jobs) as server, connect(server) as waiting, connect(server) as late:
        waiting.sendall(post("long"))
        jobs.wait_until_begun()
        assert jobs.scheduler.stop("60s")
        late.sendall(post("sync"))
        status, _, body = answer_of(late)
        assert (status, body["error"]) == (503, "stopping")
        server.close(drain="60s")
        status, _, body = answer_of(waiting)
        assert (status, body["status"]) == (200, "interrupted")


def test_a_close_does_not_wait_for_a_run_that_goes_on_after_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()
    with serving(jobs) as server, connect(server) as waiting:
        waiting.sendall(post("deaf"))
        jobs.wait_until_begun()
        assert not jobs.scheduler.stop("0s")
        server.close(drain="100ms")
        assert is_closed(waiting)
        jobs.let_go()
        assert jobs.scheduler.stop("60s")
    assert [record.status for record in jobs.scheduler.history("deaf")] == ["success"]
    assert "Traceback" not in caplog.text


def test_a_server_that_fails_says_so_and_leaves_the_jobs_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs()
    with serving(jobs) as server, connect(server) as connected:
        connected.sendall(GET)
        assert answer_of(connected)[0] == 200

        def fail(**given: object) -> None:
            raise OSError("no memory")

        monkeypatch.setattr(wasyncore, "loop", fail)
        assert is_closed(connected)
        assert jobs.scheduler.run_now("sync").status == "success"
    assert "The worker's HTTP server has failed, and answers no longer. The jobs go on." in caplog.text
