"""The Django site, as its README has it: gunicorn's workers serve it and run its jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from servers import RedisServer

from anarchon import RedisBackend, Scheduler

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = pytest.mark.timeout(240)

PASSWORD = "a password of the tests"


@pytest.fixture(scope="module")
def copied(make_example: Callable[..., Any]) -> Any:
    """The site, with an account for the staff, who read its JSON."""
    site = make_example("django_site", JOBS_LEASE="2s")
    site.start("start.sh")
    created = site.run(
        "createsuperuser",
        more="--no-input --username boss --email boss@example.com",
        DJANGO_SUPERUSER_PASSWORD=PASSWORD,
    )
    assert created.returncode == 0, created.stderr
    site.session = log_in(site)
    site.read = lambda path: json_of(*site.ask(f"/cron/{path}?limit=1000", headers=site.session))
    return site


@pytest.fixture
def site(copied: Any) -> Any:
    """The site while it serves; started once for all the tests that leave it so."""
    if not copied.running:
        copied.start("start.sh")
    return copied


def test_everybody_sees_the_page_with_the_jobs(site: Any) -> None:
    status, _, page = site.ask("/")
    assert status == 200
    assert "of them mailed" in page
    assert [re.search(rf"<th scope=\"row\">{job}</th>", page) is not None for job in ("totals", "mail", "digest")]


def test_only_the_staff_may_have_the_json(site: Any) -> None:
    status, body = json_of(*site.ask("/cron/jobs"))
    assert (status, body["error"]) == (403, "forbidden")
    status, jobs = site.read("jobs")
    assert status == 200
    assert [job["name"] for job in jobs] == ["totals", "mail", "digest"]


def test_a_killed_workers_run_is_taken_over_and_a_run_by_hand_is_refused_meanwhile(site: Any) -> None:
    def run_by_hand() -> str:
        command = site.run("anarchon_run mail")
        # A machine that stood still has missed the run: then this one went through.
        assert command.returncode in (0, 4), command.stderr
        assert command.returncode == 0 or "is already running on" in command.stderr
        return command.stderr

    site.kill_who_mails("add_invoices", run_by_hand, process_of)


def test_each_slot_is_run_once_among_the_web_workers(site: Any) -> None:
    rows = "SELECT strftime('%Y-%m-%dT%H:%M:%S', slot) FROM billing_total"
    site.check_slots_of_totals(lambda: [slot for (slot,) in site.query("var/site.db", rows)])


def test_a_run_by_hand_is_recorded_as_manual(site: Any) -> None:
    command = site.run("anarchon_run digest")
    assert command.returncode == 0, command.stderr
    assert "(manual)" in command.stdout
    assert site.records("digest")[0]["trigger"] == "manual"


def test_the_admins_button_runs_a_job(site: Any) -> None:
    page = "/admin/anarchon/job/digest"
    before = len(site.records("digest"))

    def press(form: str) -> tuple[int, Any, str]:
        return site.ask(f"{page}/run/", "POST", {**site.session, **FORM}, urlencode(hidden_fields(form, "/run/")))

    _, _, form = site.ask(f"{page}/change/", headers=site.session)
    status, _, question = press(form)
    assert (status, "Yes, run it now" in question) == (200, True)
    status, headers, _ = press(question)
    assert (status, headers["Location"]) == (302, f"{page}/change/")
    # The request waits for a short run, but not for ever, should the machine stand still.
    site.wait(lambda: len(site.records("digest")) > before)
    assert site.records("digest")[0]["trigger"] == "manual"


def test_the_admin_has_its_style_sheets(site: Any) -> None:
    _, _, page = site.ask("/admin/login/")
    [sheet, *_] = re.findall(r'rel="stylesheet" href="([^"]+)"', page)
    status, headers, _ = site.ask(sheet)
    assert (status, headers.get_content_type()) == (200, "text/css")


def test_the_other_commands_of_the_readme_answer(site: Any) -> None:
    listed = site.run("anarchon_jobs")
    assert listed.returncode == 0, listed.stderr
    assert "0 8 * * 1-5" in listed.stdout
    site.wait(lambda: site.records("totals"))
    listed = site.run("anarchon_history totals")
    assert listed.returncode == 0, listed.stderr
    assert "success" in listed.stdout


def test_one_variable_keeps_the_jobs_in_redis(site: Any, redis_server: Callable[..., RedisServer]) -> None:
    server = redis_server().start()
    command = site.run("anarchon_run digest", REDIS_URL=server.url)
    assert command.returncode == 0, command.stderr
    reader = Scheduler(RedisBackend(server.url, prefix="billing:cron:"))
    assert [record.trigger for record in reader.history("digest")] == ["manual"]
    reader.stop()


def test_the_page_is_there_while_the_store_of_the_jobs_is_away(site: Any) -> None:
    ask = "from django.test import Client; print(Client().get('/', headers={'host': 'localhost'}).content.decode())"
    asked = site.execute(f'.venv/bin/python manage.py shell -c "{ask}"', REDIS_URL="redis://127.0.0.1:1/0")
    assert "their store is away" in asked.stdout, asked.stderr


def test_the_site_stops_in_order_when_it_is_told_to(site: Any) -> None:
    site.check_that_it_stops_in_order("start.sh", "var/jobs.db")


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def log_in(site: Any) -> dict[str, str]:
    """Logs in to the admin; returns the headers of the session."""
    _, headers, form = site.ask("/admin/login/")
    cookies = cookies_of(headers)
    given = {**hidden_fields(form, "/login/"), "username": "boss", "password": PASSWORD}
    status, headers, _ = site.ask("/admin/login/", "POST", {"Cookie": cookies, **FORM}, urlencode(given))
    assert status == 302
    return {"Cookie": cookies_of(headers)}


def cookies_of(headers: Any) -> str:
    return "; ".join(cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie"))


def hidden_fields(page: str, action: str) -> dict[str, str]:
    """What the form with that action sends along by itself."""
    [form] = re.findall(rf'<form [^>]*action="[^"]*{action}"[^>]*>(.*?)</form>', page, re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))


def json_of(status: int, headers: Any, body: str) -> tuple[int, Any]:
    return status, json.loads(body)


def process_of(instance_id: str) -> int:
    """The process id in an instance id: host, process id, something random."""
    return int(instance_id.rsplit("-", 2)[1])
