"""The Flask app, as its README has it: gunicorn's workers serve it and run its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from servers import RedisServer

from anarchon import RedisBackend, Scheduler

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def copied(make_example: Callable[..., Any]) -> Any:
    return make_example("flask_app", FLASK_ANARCHON_LEASE="2s", FLASK_API_TOKEN=TOKEN)


@pytest.fixture
def app(copied: Any) -> Any:
    """The app while it serves; started once for all the tests that leave it so."""
    if not copied.running:
        copied.start("bin/gunicorn")
    return copied


def test_everybody_sees_the_page_with_the_jobs(app: Any) -> None:
    status, _, page = app.ask("/")
    assert status == 200
    assert "of them mailed" in page
    assert [f'<th scope="row">{job}</th>' in page for job in ("totals", "mail", "digest")] == [True] * 3


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer another"}, {"Authorization": "Bearer None"}])
def test_who_does_not_send_the_token_has_no_json(app: Any, headers: dict[str, str]) -> None:
    status, _, body = app.ask("/cron/jobs", headers=headers)
    assert (status, json.loads(body)["error"]) == (403, "forbidden")


def test_who_sends_the_token_has_the_jobs_as_json(app: Any) -> None:
    status, jobs = app.curl("/cron/jobs ")
    assert status == 200
    assert [job["name"] for job in jobs] == ["totals", "mail", "digest"]


def test_a_killed_workers_run_is_taken_over_and_a_run_by_hand_is_refused_meanwhile(app: Any) -> None:
    def run_by_hand() -> str:
        command = app.run("anarchon run mail")
        # A machine that stood still has missed the run: then this one went through.
        assert command.returncode in (0, 4), command.stderr
        assert command.returncode == 0 or "is already running on" in command.stderr
        return command.stderr

    app.kill_who_mails("add-invoices", run_by_hand, process_of)


def test_each_slot_is_run_once_among_the_web_workers(app: Any) -> None:
    rows = "SELECT strftime('%Y-%m-%dT%H:%M:%S', slot) FROM totals"
    app.check_slots_of_totals(lambda: [slot for (slot,) in app.query("instance/billing.db", rows)])


def test_the_other_commands_of_the_readme_answer(app: Any) -> None:
    listed = app.run("anarchon jobs")
    assert listed.returncode == 0, listed.stderr
    assert "0 8 * * 1-5" in listed.stdout
    app.wait(lambda: app.records("totals"))
    listed = app.run("anarchon history totals")
    assert listed.returncode == 0, listed.stderr
    assert "success" in listed.stdout


def test_one_variable_keeps_the_jobs_in_redis(app: Any, redis_server: Callable[..., RedisServer]) -> None:
    server = redis_server().start()
    command = app.run("anarchon run digest", REDIS_URL=server.url)
    assert command.returncode == 0, command.stderr
    assert "(manual)" in command.stdout
    reader = Scheduler(RedisBackend(server.url, prefix="billing:cron:"))
    assert [record.trigger for record in reader.history("digest")] == ["manual"]
    reader.stop()


def test_the_app_stops_in_order_when_it_is_told_to(app: Any) -> None:
    app.check_that_it_stops_in_order("bin/gunicorn", "instance/jobs.db")


def process_of(instance_id: str) -> int:
    """The process id in an instance id: host, process id, something random."""
    return int(instance_id.rsplit("-", 2)[1])
