"""``anarchon worker --http`` in processes of its own: two workers, a reader that forwards runs, signals, mistakes."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from http_workers import TOKEN, HttpWorker, HttpWorkers
from servers import free_port
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from anarchon import BackendError, RunRecord, RunRefused, Scheduler
from anarchon.web import RemoteWorkers

PATIENCE_S = 60


@pytest.fixture(params=["sqlite", "redis"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpWorkers]:
    """Processes on a store of each kind."""
    if request.param == "sqlite":
        workers = HttpWorkers(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    else:
        workers = HttpWorkers(tmp_path, request.getfixturevalue("redis_url"), request.getfixturevalue("prefix"))
    try:
        yield workers
    finally:
        workers.close()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[HttpWorkers]:
    workers = HttpWorkers(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    try:
        yield workers
    finally:
        workers.close()


class Asked:
    """A run that is asked for on a thread of its own, for it does not end by itself."""

    def __init__(self, ask: Callable[[], RunRecord]) -> None:
        self._ended: list[RunRecord | Exception] = []
        self._thread = threading.Thread(target=self._ask, args=[ask])
        self._thread.start()

    def _ask(self, ask: Callable[[], RunRecord]) -> None:
        try:
            self._ended.append(ask())
        except Exception as error:
            self._ended.append(error)

    def record(self) -> RunRecord:
        ended = self._wait()
        assert isinstance(ended, RunRecord), ended
        return ended

    def error(self) -> Exception:
        ended = self._wait()
        assert isinstance(ended, Exception), ended
        return ended

    def _wait(self) -> RunRecord | Exception:
        self._thread.join(PATIENCE_S)
        return self._ended[0]


def ask_for(worker: HttpWorker, job: str) -> Asked:
    """Asks for a run; returns when it goes on."""
    remote = worker.remote
    asked = Asked(lambda: remote.run_now(job))
    worker.wait_until_it_runs(job)
    return asked


def make_api(reader: Scheduler, remote: RemoteWorkers) -> Callable[..., object]:
    """What an API process may do: it reads the history itself, and hands on a run to a worker."""

    @Request.application
    def api(request: Request) -> Response:
        name = request.path.removeprefix("/")
        if request.method == "GET":
            return Response(" ".join(record.run_id for record in reader.history(name)))
        try:
            return Response(remote.run_now(name).run_id)
        except RunRefused as refused:
            return Response(f"{refused.holder} has it", 409)

    return api


def test_an_api_without_jobs_forwards_runs_to_workers_and_reads_what_became_of_them(workers: HttpWorkers) -> None:
    one, two = workers.start("one"), workers.start("two", token=TOKEN)
    reader = workers.reader()
    try:
        first, second = Client(make_api(reader, one.remote)), Client(make_api(reader, two.remote))
        ids = [first.post("/sync").text, second.post("/sync").text]
        assert first.get("/sync").text.split() == ids[::-1]
        assert [record.instance_id for record in reader.history("sync")] == ["two", "one"]

        going_on = ask_for(one, "long")
        refused = second.post("/long")
        assert (refused.status_code, refused.text) == (409, "one has it")
        assert [run.instance_id for run in two.remote.active("long")] == ["one"]
        assert two.remote.last_run("sync") == reader.last_run("sync")
        assert [job.name for job in two.remote.jobs()] == ["tick", "sync", "long", "deaf"]

        assert one.end(signal.SIGTERM) == 0
        assert going_on.record().status == "interrupted"
        assert second.get("/long").text.split() == [going_on.record().run_id]
        assert two.end(signal.SIGTERM) == 0
    finally:
        reader.stop()
    for worker in (one, two):
        assert worker.said.endswith("Stopped: every run has ended.\n")
        assert "Traceback" not in worker.said and TOKEN not in worker.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_that_was_asked_for_and_its_caller_is_answered(
    number: signal.Signals, on_sqlite: HttpWorkers
) -> None:
    # Not a port that the kernel deals out, which might be anybody's by the time that nobody is to listen there.
    worker = on_sqlite.start("one", http=f"127.0.0.1:{free_port()}")
    asked, place = ask_for(worker, "long"), urlsplit(worker.url)
    assert worker.end(number) == 0
    record = asked.record()
    assert (record.status, record.trigger, record.error) == (
        "interrupted",
        "manual",
        "RunInterrupted: The run was told to stop: stop.",
    )
    reader = on_sqlite.reader()
    assert reader.history("long") == [record]
    reader.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((place.hostname or "", place.port or 0))


def test_from_the_signal_on_runs_are_refused_and_questions_answered_until_the_end(on_sqlite: HttpWorkers) -> None:
    worker = on_sqlite.start("one", "--token-file", str(on_sqlite.token_file), "--stop-timeout", "60s")
    remote, asked = worker.remote, ask_for(worker, "deaf")
    worker.process.send_signal(signal.SIGTERM)
    with pytest.raises(RunRefused) as refused:
        while True:  # The signal is on its way.
            remote.run_now("sync")
    assert refused.value.stopping
    assert "Job 'sync' was not run: this scheduler is stopping." in str(refused.value)
    assert [run.instance_id for run in remote.active("deaf")] == ["one"]
    assert worker.end(signal.SIGTERM) == -signal.SIGTERM
    assert "may have begun" in str(asked.error())


def test_a_caller_whose_run_does_not_end_in_time_is_told_that_it_may_have_begun(on_sqlite: HttpWorkers) -> None:
    worker = on_sqlite.start("one", "--token-file", str(on_sqlite.token_file), "--stop-timeout", "200ms")
    asked = ask_for(worker, "deaf")
    assert worker.end(signal.SIGTERM) == 1
    error = asked.error()
    assert isinstance(error, BackendError)
    assert "did not answer" in str(error) and "The run may have begun" in str(error)
    assert worker.said.endswith("Stopped: not every run ended in time.\n")


def test_a_caller_of_a_worker_that_is_killed_is_told_that_the_run_may_have_begun(on_sqlite: HttpWorkers) -> None:
    worker = on_sqlite.start("one", http=f"127.0.0.1:{free_port()}")
    asked = ask_for(worker, "long")
    assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    assert "The run may have begun" in str(asked.error())
    with pytest.raises(BackendError, match="could not be reached: .* The job was not run."):
        worker.remote.run_now("sync")


# -- mistakes


def refusal(worker: HttpWorker) -> str:
    """What a worker said that did not start: it ends with 2, and no job has run."""
    assert worker.process.wait(PATIENCE_S) == 2
    assert "runs 4 jobs" not in worker.said
    return worker.said


@pytest.mark.parametrize("http", ["0.0.0.0:0", "[::]:0"])
def test_a_worker_does_not_listen_for_others_without_a_token(http: str, on_sqlite: HttpWorkers) -> None:
    worker = on_sqlite.start("one", "--verbose", http=http)
    assert "without a token, for others than this host may reach it: set ANARCHON_TOKEN or" in refusal(worker)


def test_a_worker_without_a_token_answers_this_host_and_runs_nothing(on_sqlite: HttpWorkers) -> None:
    worker = on_sqlite.start("one", "--verbose")
    remote = RemoteWorkers(worker.url)
    assert [job.name for job in remote.jobs()] == ["tick", "sync", "long", "deaf"]
    with pytest.raises(ValueError, match="it runs nothing"):
        remote.run_now("sync")
    assert "there is no token, so it runs nothing" in worker.said
    assert worker.end(signal.SIGTERM) == 0


def test_an_address_that_is_taken_is_told_before_any_job_runs(on_sqlite: HttpWorkers) -> None:
    one = on_sqlite.start("one")
    address = one.url.removeprefix("http://")
    two = on_sqlite.start("two", http=address)
    assert f"anarchon: Cannot listen on {address}: Address already in use.\n" in refusal(two)


def test_a_token_that_will_not_do_is_told_and_not_repeated(on_sqlite: HttpWorkers) -> None:
    told = refusal(on_sqlite.start("one", token="seventeen"))
    assert "ANARCHON_TOKEN must have 16 to 1024 characters, not 9." in told and "seventeen" not in told
    assert "ANARCHON_TOKEN is empty." in refusal(on_sqlite.start("two", token=""))
    told = refusal(on_sqlite.start("three", "--token-file", "/nowhere/token", token=TOKEN))
    assert "The token file '/nowhere/token' cannot be read: No such file or directory." in told
