"""Workers and an API, as their README has them."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from servers import RedisServer

from anarchon import RedisBackend, Scheduler

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

#: What a worker says when it answers, and knows what to do when it is told to stop.
ANSWERS = r"Answers .* at http://127\.0\.0\.1:\d+\."


@pytest.fixture(scope="module")
def start(make_example: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Starts the example where it is not running; returns when the workers answer, too, on ports of their own."""
    with ExitStack() as taken:
        ports = [reserve_port(taken) for _ in range(2)]
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        split = make_example("split", JOBS_LEASE="2s", WORKERS=urls)

        def start() -> Any:
            if not split.running:
                split.start("start.py")
                split.wait(lambda: len(re.findall(ANSWERS, split.told())) == len(ports))
            return split

        yield start


@pytest.fixture
def split(start: Callable[[], Any]) -> Any:
    """Two workers and the API while they serve; started once for all the tests that leave them so."""
    return start()


def test_who_does_not_send_the_token_is_told_nothing(split: Any) -> None:
    for headers in ({}, {"Authorization": "Bearer another"}):
        assert [split.ask(path, headers=headers)[0] for path in ("/", "/jobs", "/jobs/totals/runs")] == [401] * 3
    assert (split.folder / "var" / "api_token").stat().st_mode & 0o077 == 0


def test_the_api_tells_the_schedule_that_the_workers_know(split: Any) -> None:
    status, jobs = split.curl("/jobs ")
    assert status == 200
    assert [(job["name"], job["schedule"]) for job in jobs] == [
        ("totals", "1s"),
        ("mail", "5s"),
        ("digest", "0 8 * * 1-5"),
    ]


def test_the_api_has_not_even_imported_the_jobs(split: Any) -> None:
    probe = "import sys, billing.api; sys.exit('billing.jobs' in sys.modules or len(billing.api.reader.jobs()))"
    tokens = {"API_TOKEN": "of-this-test-alone", "ANARCHON_TOKEN": "of-this-test-alone"}
    command = split.execute(f"{shlex.quote(sys.executable)} -c {shlex.quote(probe)}", **tokens)
    assert command.returncode == 0, command.stderr


def test_a_run_is_forwarded_to_a_worker(split: Any) -> None:
    status, record = split.curl("-X POST", "jobs/digest/run")
    assert (status, record["status"], record["trigger"]) == (200, "success", "manual")
    assert record["instance_id"] in ("worker-1", "worker-2")
    assert split.wait(lambda: re.findall("Digest of .*'invoices'", split.told()))


def test_a_killed_workers_run_is_taken_over_and_a_forwarded_run_is_refused_meanwhile(split: Any) -> None:
    def run_by_hand() -> str:
        status, body = split.curl("-X POST", "jobs/mail/run")
        # A machine that stood still has missed the run: then this one went through.
        assert status in (200, 409), body
        return str(body.get("holder"))

    def process_of(worker: str) -> int:
        return int(re.findall(f"{worker} is process ([0-9]+)", split.told())[-1])

    split.kill_who_mails("billing.books", run_by_hand, process_of)
    # Each one that was killed is started again, so that both are there for the next.
    assert split.wait(lambda: len(re.findall("worker-. is process", split.told())) > 2)
    split.wait(lambda: len(re.findall("worker-. is process", split.told())) == len(re.findall(ANSWERS, split.told())))


def test_each_slot_is_run_once_among_the_workers(split: Any) -> None:
    rows = "SELECT strftime('%Y-%m-%dT%H:%M:%S', slot) FROM totals"
    split.check_slots_of_totals(lambda: [slot for (slot,) in split.query("var/billing.db", rows)])


def test_the_other_lines_of_the_readme_answer(split: Any) -> None:
    status, summary = split.curl(":8000/ ")
    assert (status, sorted(summary)) == (200, ["invoices", "mailed"])
    split.wait(lambda: split.records("totals"))
    status, last = split.curl("jobs/totals/last")
    assert (status, last["job"]) == (200, "totals")
    command = split.run("anarchon run")
    assert command.returncode == 0, command.stderr
    assert "(manual)" in command.stdout
    assert split.run("anarchon history").returncode == 0


@pytest.mark.parametrize(
    ("path", "status"), [("jobs/digest/runs?limit=0", 400), ("jobs/digest/runs?limit=x", 400), ("no", 404)]
)
def test_a_wrong_question_has_a_json_answer(split: Any, path: str, status: int) -> None:
    headers = {"Authorization": f"Bearer {(split.folder / 'var' / 'api_token').read_text()}"}
    answered, got, body = split.ask(f"/{path}", headers=headers)
    assert (answered, got.get_content_type()) == (status, "application/json"), body


def test_one_variable_keeps_the_jobs_in_redis(split: Any, redis_server: Callable[..., RedisServer]) -> None:
    server = redis_server().start()
    command = split.run("anarchon run", REDIS_URL=server.url)
    assert command.returncode == 0, command.stderr
    reader = Scheduler(RedisBackend(server.url, prefix="billing:cron:"))
    assert [record.trigger for record in reader.history("digest")] == ["manual"]
    reader.stop()


def test_all_stop_in_order_when_they_are_told_to(split: Any) -> None:
    assert split.stop() == 0
    assert split.told().count("Stopped: every run has ended") == 2


def reserve_port(taken: ExitStack) -> int:
    """A port that the system gives to nobody else: it is taken. A worker may listen on it, since nobody does."""
    probe = taken.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    if sys.platform != "linux":
        probe.close()  # elsewhere the worker could not have it
    return port
