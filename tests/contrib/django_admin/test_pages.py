"""The admin's pages over a scheduler, as the test client sees them: what they show, to whom, what the button does."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client, RequestFactory
from django.test.utils import override_settings
from django.urls import reverse

from anarchon import BackendError, ClaimOnlyBackend, Scheduler
from anarchon.context import RunContext
from anarchon.records import RunRecord

Make = Callable[..., Scheduler]

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)

DOCS = Path(__file__).parents[3] / "docs"

LIST = "/admin/anarchon/job/"

#: Nothing waits so long unless something is wrong: no test is right or wrong by how fast it is.
REAL_SECONDS = 90


def nothing() -> None:
    pass


def fail() -> None:
    raise ValueError("no such customer")


def user(name: str, *permissions: str, staff: bool = True) -> Any:
    from django.contrib.auth.models import Permission, User

    found, _ = User.objects.get_or_create(username=name, defaults={"is_staff": staff})
    found.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="anarchon"))
    return found


def client_of(someone: Any, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(someone)
    return client


@pytest.fixture
def operator() -> Client:
    """Somebody who may see the jobs and run them."""
    return client_of(user("operator", "view_job", "run_job"))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a handler waits for, and need not wait for once the test is over."""
    gate = threading.Event()
    yield gate
    gate.set()


def record(**changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "job": "sync",
        "slot": NOON,
        "run_id": "1772366400000",
        "attempt": 1,
        "trigger": "scheduled",
        "status": "success",
        "instance_id": "worker-7",
        "fence": 1,
        "started_at": NOON + timedelta(seconds=1),
        "finished_at": NOON + timedelta(seconds=3),
        "duration": 2.0,
    }
    return RunRecord(**{**values, **changes})


def job_url(name: str, page: str = "change", site: str = "admin") -> str:
    from django.contrib.admin.utils import quote

    return reverse(f"admin:anarchon_job_{page}", args=[quote(name)], current_app=site)


def text_of(response: Any) -> str:
    """What a reader sees of a page, without the marks."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", response.content.decode())).split())


def press(client: Client, name: str) -> Any:
    """Presses the button, and answers "yes"; the page that comes of it."""
    asked = client.post(job_url(name, "run"))
    return asked if asked.status_code == 403 else confirm(client, name, seen_on(asked))


def confirm(client: Client, name: str, seen: str, site: str = "admin") -> Any:
    return client.post(job_url(name, "run", site), {"confirmed": seen}, follow=True)


def seen_on(asked: Any) -> str:
    """What the question says of the newest manual run."""
    found = re.search('name="confirmed" value="([^"]*)"', asked.content.decode())
    assert found is not None
    return found[1]


def test_the_admins_first_page_leads_to_the_jobs(make: Make, operator: Client) -> None:
    make()
    assert f'href="{LIST}"' in operator.get("/admin/").content.decode()


def test_every_job_of_this_process_is_listed_with_its_schedule(make: Make, operator: Client) -> None:
    make(timezone="America/New_York").every("sync", "10s", nothing).cron("digest", "0 8 * * 1-5", nothing)
    page = operator.get(LIST)
    assert page.status_code == 200
    text = text_of(page)
    assert "sync every 10s" in text and "digest cron 0 8 * * 1-5 America/New_York" in text
    assert text.count("none yet") == 2 and "2 jobs" in text


def test_the_next_run_is_shown_in_the_sites_time_zone(make: Make, operator: Client) -> None:
    scheduler = make(timezone="America/New_York").cron("digest", "30 8 * * *", nothing)
    # 08:30 in New York is 15:30 in Athens, but for some weeks in which only one of the two has changed its clocks.
    expected = scheduler.next_run("digest").astimezone(zone("Europe/Athens")).strftime("%Y-%m-%d %H:%M:%S %Z")
    assert expected in text_of(operator.get(LIST))
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert re.search(r" 2[12]:30:00 JST ", text_of(operator.get(LIST)))
        assert re.search(r"Next run \d+-\d+-\d+ 2[12]:30:00 JST", text_of(operator.get(job_url("digest"))))
    with override_settings(USE_TZ=False):
        assert expected in text_of(operator.get(LIST))


def zone(name: str) -> Any:
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def test_the_newest_run_is_shown_with_when_how_long_and_where(make: Make, store: Any, operator: Client) -> None:
    make().every("sync", "10s", nothing)
    store.save_result("sync", record())
    assert "success 2026-03-01 14:00:01 EET scheduled, took 2.000s, on worker-7" in text_of(operator.get(LIST))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"status": "success"}, "success"),
        ({"status": "failed", "error": "ValueError: bad"}, "failed"),
        ({"status": "interrupted", "error": "RunInterrupted: stop"}, "interrupted"),
        ({"status": "lost", "error": "the lease ended"}, "lost"),
        ({"status": "success", "lease_lost": True}, "success (lease lost)"),
    ],
)
def test_each_way_that_a_run_ends_is_told_in_words(
    make: Make, store: Any, operator: Client, changes: dict[str, Any], shown: str
) -> None:
    make().every("sync", "10s", nothing)
    store.save_result("sync", record(**changes))
    for address in (LIST, job_url("sync")):
        body = operator.get(address).content.decode()
        assert f'<span class="anarchon-status anarchon-{changes["status"]}">{shown}</span>' in body
    assert changes.get("error", "") in text_of(operator.get(job_url("sync")))


def test_a_status_that_a_newer_version_has_written_is_shown_as_it_is(make: Make, store: Any, operator: Client) -> None:
    make().every("sync", "10s", nothing)
    store.save_result("sync", record(status="postponed"))
    assert "postponed" in text_of(operator.get(LIST))


def test_what_runs_now_is_shown_with_where_and_how_much_lease_is_left(
    make: Make, operator: Client, gate: threading.Event
) -> None:
    other = make(instance_id="worker-7").every("sync", "1h", lambda: gate.wait(REAL_SECONDS))
    make().every("sync", "1h", nothing).every("idle", "1h", nothing)
    assert other.run_now("sync", wait=0) is None
    listed, detailed = text_of(operator.get(LIST)), text_of(operator.get(job_url("sync")))
    assert re.search(r"on worker-7 since \S+ \S+ \S+ attempt 1, lease left \d+\.\d+s", listed)
    assert re.search(r"idle every 1h .* none yet no ", listed)
    assert re.search(r"Running now Slot .* 1 manual (\S+ )?[\d:]+ worker-7 \d+\.\d+s History", detailed)


def test_a_run_whose_lease_is_over_is_said_to_wait(make: Make, store: Any, operator: Client, monkeypatch: Any) -> None:
    make().every("sync", "1h", nothing)
    now = datetime.now(timezone.utc)
    run = active_run(now)
    monkeypatch.setattr(store, "active", lambda job: [run])
    assert "was on worker-7, whose lease is over: waits to be taken over" in text_of(operator.get(LIST))
    assert "worker-7 over: waits to be taken over" in text_of(operator.get(job_url("sync")))


def active_run(now: datetime) -> Any:
    from anarchon.records import ActiveRun

    return ActiveRun("sync", now, "1", 1, "scheduled", "worker-7", 1, now, lease_left=0.0)


def test_a_jobs_page_has_its_options_and_its_history_newest_first(make: Make, operator: Client) -> None:
    numbers = iter(["first", "second", "third"])

    def fail_each_time_anew() -> None:
        raise ValueError(f"the {next(numbers)} time")

    scheduler = make().every("sync", "10s", fail_each_time_anew, timeout="10m", max_attempts=5)
    for _ in range(3):
        scheduler.run_now("sync")
    text = text_of(operator.get(job_url("sync")))
    assert "Schedule every 10s Time zone UTC Next run " in text
    assert "Options lease 30s, heartbeat 6s, jitter 500ms, max_late 1m, catch_up none, overlap skip, max_at" in text
    assert text.count(" 1 manual failed ") == 3
    assert re.search("ValueError: the third time .* ValueError: the second time .* ValueError: the first time", text)


@pytest.mark.parametrize(("asked", "shown"), [("", 20), ("?limit=100", 60), ("?limit=1000000", 20), ("?limit=x", 20)])
def test_a_jobs_page_shows_as_many_attempts_as_one_of_its_choices(
    make: Make, store: Any, operator: Client, asked: str, shown: int
) -> None:
    # The first run tells the store how many records to keep.
    make().every("sync", "10s", nothing).run_now("sync")
    for number in range(59):
        store.save_result("sync", record(run_id=str(number), fence=number + 2))
    assert operator.get(job_url("sync") + asked).content.decode().count("anarchon-status") == shown


def test_a_store_that_is_away_is_said_so_and_the_jobs_are_shown(
    make: Make, store: Any, operator: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make().every("sync", "10s", nothing).every("export", "15m", nothing)
    store.away, store.asked = True, 0
    page = operator.get(LIST)
    assert page.status_code == 200
    assert "The store could not be asked" in text_of(page)
    assert "sync every 10s" in text_of(page) and "export every 15m" in text_of(page)
    assert text_of(page).count("not known") == 1 + 2 * 2
    # Each question could hang until its time is out.
    assert store.asked == 1
    assert "A page of the admin could not ask the store: store.example:6379 does not answer" in caplog.text
    detailed = operator.get(job_url("sync"))
    assert detailed.status_code == 200 and "Schedule every 10s" in text_of(detailed)
    assert "store.example" not in text_of(page) + text_of(detailed)


def test_a_run_is_not_offered_while_the_store_is_away(make: Make, store: Any, operator: Client) -> None:
    make().every("sync", "10s", nothing)
    store.away = True
    asked = operator.post(job_url("sync", "run"))
    assert "The store could not be asked" in text_of(asked) and "Yes, run it now" not in asked.content.decode()


def test_a_run_that_the_store_goes_away_from_is_said_not_to_have_been_run(
    make: Make, store: Any, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes away when it has been asked what runs, and before it is asked for the run."""
    ran: list[object] = []
    make().every("sync", "10s", lambda: ran.append(1))
    monkeypatch.setattr(store, "claim", unable)
    page = press(operator, "sync")
    assert "Job 'sync' was not run: the store could not be asked." in text_of(page)
    assert '<li class="error">' in page.content.decode()
    assert ran == []


def unable(request: Any) -> Any:
    raise BackendError("store.example:6379 does not answer")


def test_a_process_without_jobs_says_why_there_is_no_button_and_leads_to_any_history(
    make: Make, operator: Client
) -> None:
    make(instance_id="worker-7").every("sync", "10s", fail).run_now("sync")
    make()
    page = operator.get(LIST)
    assert "No jobs are registered in this process" in text_of(page) and "Run now" not in page.content.decode()
    found = operator.get(LIST, {"name": " sync "}, follow=True)
    assert found.redirect_chain == [(job_url("sync"), 302)]
    assert "ValueError: no such customer" in text_of(found)
    assert "not registered in this process" in text_of(found) and "Run now" not in found.content.decode()


def test_a_job_that_nobody_knows_has_a_page_that_says_so(make: Make, operator: Client) -> None:
    make()
    page = operator.get(job_url("unheard-of"))
    assert page.status_code == 200 and "Nothing is recorded of this job." in text_of(page)


@pytest.mark.parametrize("name", ["two words", "x" * 201, "a{b}"])
def test_what_can_be_no_jobs_name_is_refused_and_not_asked_for(
    make: Make, store: Any, operator: Client, name: str
) -> None:
    make()
    assert "A job's name must" in text_of(operator.get(LIST, {"name": name}))
    assert operator.get(job_url(name)).status_code == 404
    assert operator.post(job_url(name, "run")).status_code == 404
    assert operator.get(job_url(name, "history"), follow=True).redirect_chain == [("/admin/", 302)]
    assert store.asked == 0


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "name",
    [HOSTILE, "a/b", "a/run/", "a_b", "50%25", "?x=1&y#z", "\"'>", "Ωμέγα", "x" * 200, "\u202eevil"],
)
def test_any_name_can_be_seen_and_run(make: Make, operator: Client, name: str) -> None:
    make().every(name, "1h", fail)
    assert html.escape(name) in operator.get(LIST).content.decode()
    assert name in text_of(operator.get(LIST))
    page = press(operator, name)
    assert page.status_code == 200
    assert "failed. ValueError: no such customer" in text_of(page) and "1 manual failed" in text_of(page)
    assert HOSTILE not in page.content.decode()
    assert name in text_of(operator.get(job_url(name, "history")))


def test_what_a_handler_raises_and_who_ran_it_is_escaped_and_long_errors_are_folded(
    make: Make, store: Any, operator: Client
) -> None:
    make().every("sync", "10s", nothing)
    error = f"ValueError: {HOSTILE} {'long ' * 800}end"
    store.save_result("sync", record(status="failed", error=error, instance_id=HOSTILE, trigger=HOSTILE))
    for address in (LIST, job_url("sync")):
        body = operator.get(address).content.decode()
        assert HOSTILE not in body and html.escape(HOSTILE) in body
    assert f"<pre>{html.escape(error)}</pre></details>" in body


def test_numbers_are_not_written_as_the_site_writes_money(make: Make, store: Any, operator: Client) -> None:
    make().every("sync", "10s", nothing, history_limit=2000)
    store.save_result("sync", record(attempt=1234, duration=4000.0))
    with override_settings(USE_THOUSAND_SEPARATOR=True):
        text = text_of(operator.get(job_url("sync")))
    assert " 1234 scheduled" in text and "history_limit 2000" in text and "1h6m40s" in text


def test_a_store_without_leases_is_said_not_to_know_what_runs(make: Make, operator: Client) -> None:
    make(backend=OnlyClaims()).every("sync", "10s", nothing)
    assert "This store has no leases" in text_of(operator.get(LIST))
    assert "not known: this store has no leases" in text_of(operator.get(job_url("sync")))
    assert "1 manual success" in text_of(press(operator, "sync"))


class OnlyClaims(ClaimOnlyBackend):
    def __init__(self) -> None:
        self._records: list[RunRecord] = []

    def claim(self, job: str, slot_ms: int, token: str) -> bool:
        return True

    def save_result(self, job: str, record: RunRecord, history_limit: int) -> None:
        self._records.append(record)

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self._records[-limit:]


# -- who may


def pages(client: Client) -> list[int]:
    addresses = (LIST, job_url("sync"), job_url("sync", "history"))
    return [client.get(address).status_code for address in addresses]


def test_somebody_who_is_not_logged_in_is_asked_to(make: Make) -> None:
    make().every("sync", "10s", fail)
    for address in (LIST, job_url("sync"), job_url("sync", "history"), job_url("sync", "run")):
        for ask in (Client().get, Client().post):
            response = ask(address)
            assert (response.status_code, response["Location"].partition("?")[0]) == (302, "/admin/login/")
    assert pages(client_of(user("visitor", "view_job", "run_job", staff=False))) == [302, 302, 302]


def test_staff_without_the_permission_see_nothing(make: Make) -> None:
    make().every("sync", "10s", nothing)
    client = client_of(user("clerk"))
    assert pages(client) == [403, 403, 403]
    assert "Scheduled jobs" not in client.get("/admin/").content.decode()


def test_those_who_may_only_look_have_no_button_and_cannot_run(make: Make) -> None:
    scheduler = make().every("sync", "10s", nothing)
    client = client_of(user("reader", "view_job"))
    assert pages(client) == [200, 200, 200]
    assert "Run now" not in client.get(LIST).content.decode() + client.get(job_url("sync")).content.decode()
    assert [confirm(client, "sync", "none").status_code, press(client, "sync").status_code] == [403, 403]
    assert scheduler.history("sync") == []


def test_those_who_may_run_but_not_look_can_do_neither(make: Make) -> None:
    scheduler = make().every("sync", "10s", nothing)
    client = client_of(user("blind", "run_job"))
    assert pages(client) == [403, 403, 403]
    assert [confirm(client, "sync", "none").status_code, press(client, "sync").status_code] == [403, 403]
    assert scheduler.history("sync") == []


def test_a_superuser_may_look_and_run_but_not_add_change_or_delete(make: Make) -> None:
    from django.contrib.auth.models import User

    make().every("sync", "10s", nothing)
    root, _ = User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)
    client = client_of(root)
    assert pages(client) == [200, 200, 200]
    assert "1 manual success" in text_of(press(client, "sync"))
    for address in (f"{LIST}add/", job_url("sync", "delete")):
        assert [client.get(address).status_code, client.post(address).status_code] == [403, 403]
    assert client.post(job_url("sync"), {"name": "other"}).status_code == 405
    assert client.post(LIST, {"action": "delete_selected"}).status_code == 405


def test_a_press_that_comes_from_elsewhere_is_refused(make: Make) -> None:
    scheduler = make().every("sync", "10s", nothing)
    client = client_of(user("operator", "view_job", "run_job"), enforce_csrf_checks=True)
    assert confirm(client, "sync", "none").status_code == 403
    assert scheduler.history("sync") == []


# -- the button


def test_the_button_asks_before_it_runs(make: Make, operator: Client) -> None:
    scheduler = make().every("sync", "10s", nothing)
    assert 'aria-label="Run sync now"' in operator.get(LIST).content.decode()
    asked = operator.post(job_url("sync", "run"))
    assert asked.status_code == 200
    assert "Run this job now?" in text_of(asked) and "The job sync will be run once" in text_of(asked)
    assert 'value="Yes, run it now"' in asked.content.decode()
    assert scheduler.history("sync") == []


def test_the_question_names_a_run_that_is_in_the_way(make: Make, operator: Client, gate: threading.Event) -> None:
    scheduler = make().every("sync", "1h", lambda: gate.wait(REAL_SECONDS))
    scheduler.run_now("sync", wait=0)
    text = text_of(operator.post(job_url("sync", "run")))
    assert "Right now it is running: on web-1" in text and "another run is refused" in text


def test_a_second_click_on_yes_runs_nothing_and_is_asked_about(make: Make, operator: Client) -> None:
    scheduler = make().every("sync", "10s", nothing)
    seen = seen_on(operator.post(job_url("sync", "run")))
    confirm(operator, "sync", seen)
    second = confirm(operator, "sync", seen)
    assert second.status_code == 200 and "this job has been run by hand" in text_of(second)
    assert len(scheduler.history("sync")) == 1
    # A third, after that question, is meant.
    assert "Job 'sync' was run" in text_of(confirm(operator, "sync", seen_on(second)))
    assert len(scheduler.history("sync")) == 2


def test_a_second_click_finds_a_run_that_goes_on_even_where_runs_may_overlap(
    make: Make, operator: Client, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anarchon.contrib.django.admin import JobAdmin

    monkeypatch.setattr(JobAdmin, "wait", 0)
    scheduler = make().every("sync", "1h", lambda: gate.wait(REAL_SECONDS), overlap="allow")
    seen = seen_on(operator.post(job_url("sync", "run")))
    confirm(operator, "sync", seen)
    assert "this job has been run by hand" in text_of(confirm(operator, "sync", seen))
    assert len(scheduler.active("sync")) == 1


def test_two_clicks_on_yes_at_one_moment_run_the_job_once(
    make: Make, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes take them, and neither sees the other's run on its page."""
    from anarchon.contrib.django.admin import JobAdmin, job_page

    scheduler = make().every("sync", "10s", nothing)
    seen = seen_on(operator.post(job_url("sync", "run")))
    page = job_page(scheduler, "sync", 20)
    monkeypatch.setattr(JobAdmin, "_page_of", lambda *_: page)
    assert "Job 'sync' was run" in text_of(confirm(operator, "sync", seen))
    assert "Job 'sync' was not run again" in text_of(confirm(operator, "sync", seen))
    assert len(scheduler.history("sync")) == 1


def test_scheduled_runs_meanwhile_do_not_put_the_question_again(make: Make, store: Any, operator: Client) -> None:
    make().every("sync", "10s", nothing)
    seen = seen_on(operator.post(job_url("sync", "run")))
    store.save_result("sync", record())
    assert "Job 'sync' was run" in text_of(confirm(operator, "sync", seen))


def test_nothing_is_run_by_opening_an_address(make: Make, operator: Client) -> None:
    scheduler = make().every("sync", "10s", nothing)
    for ask in (operator.get, operator.head, operator.put, operator.delete):
        response = ask(job_url("sync", "run"), {"confirmed": "none"})
        assert (response.status_code, response["Allow"]) == (405, "POST")
    assert scheduler.history("sync") == []


@pytest.mark.parametrize(
    ("handler", "said", "level"),
    [
        (nothing, r"Job 'sync' was run, and took \d\.\d+s: success\.", "success"),
        (fail, r"Job 'sync' was run, and took \d\.\d+s: failed\. ValueError: no such customer", "error"),
    ],
)
def test_a_short_run_is_told_about_at_once(make: Make, operator: Client, handler: Any, said: str, level: str) -> None:
    make().every("sync", "10s", handler)
    page = press(operator, "sync")
    assert page.redirect_chain == [(job_url("sync"), 302)]
    assert re.search(said, text_of(page))
    assert f'<li class="{level}">' in page.content.decode()


def test_a_long_run_goes_on_after_the_request_and_a_second_press_is_refused(
    make: Make, operator: Client, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anarchon.contrib.django.admin import JobAdmin

    monkeypatch.setattr(JobAdmin, "wait", "100ms")
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait(REAL_SECONDS)

    scheduler = make().every("sync", "1h", slow)
    first = text_of(press(operator, "sync"))
    assert "Job 'sync' was started on 'web-1', and is still running." in first and "1 manual" in first
    assert "Job 'sync' is already running on 'web-1', and its overlap rule is 'skip'." in text_of(
        press(operator, "sync")
    )
    # A run that has not begun when the stop comes never begins.
    assert begun.wait(REAL_SECONDS)
    gate.set()
    assert scheduler.stop(f"{REAL_SECONDS}s")
    assert [(run.status, run.trigger) for run in scheduler.history("sync")] == [("success", "manual")]


def test_a_run_is_refused_beside_one_elsewhere_and_its_holder_is_named(
    make: Make, operator: Client, gate: threading.Event
) -> None:
    make(instance_id="worker-7").every("sync", "1h", lambda: gate.wait(REAL_SECONDS)).run_now("sync", wait=0)
    make().every("sync", "1h", nothing)
    page = press(operator, "sync")
    assert "Job 'sync' is already running on 'worker-7'" in text_of(page)
    assert '<li class="warning">' in page.content.decode()


def test_a_run_while_the_process_stops_is_refused(make: Make, operator: Client, gate: threading.Event) -> None:
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait(REAL_SECONDS)

    scheduler = make().every("sync", "1h", nothing).every("slow", "1h", slow)
    scheduler.run_now("slow", wait=0)
    # A run that has not begun when the stop comes never begins, and then there is nothing to wait for.
    assert begun.wait(REAL_SECONDS)
    assert not scheduler.stop("0s")
    assert "Job 'sync' was not run: this scheduler is stopping." in text_of(press(operator, "sync"))


def test_a_run_that_was_told_to_stop_is_said_to_be_interrupted(make: Make, operator: Client) -> None:
    def stopped(ctx: RunContext) -> None:
        scheduler.stop("0s")
        ctx.raise_if_cancelled()

    scheduler = make().every("sync", "1h", stopped)
    page = press(operator, "sync")
    assert "interrupted. RunInterrupted: The run was told to stop: stop." in text_of(page)
    assert '<li class="warning">' in page.content.decode()


def test_a_job_that_is_not_registered_here_cannot_be_run(make: Make, operator: Client) -> None:
    from django.contrib.admin.models import LogEntry

    make().every("sync", "10s", nothing)
    asked = operator.post(job_url("gone", "run"))
    assert "not registered in this process" in text_of(asked) and "Yes, run it now" not in asked.content.decode()
    assert "not registered in this process" in text_of(confirm(operator, "gone", "none"))
    assert not LogEntry.objects.filter(object_id="gone").exists()


def test_who_pressed_the_button_is_kept_in_the_admins_log(make: Make, operator: Client) -> None:
    from django.contrib.admin.models import LogEntry

    make().every("logged", "10s", nothing)
    press(operator, "logged")
    (entry,) = LogEntry.objects.filter(object_id="logged")
    assert (entry.user.username, entry.get_change_message()) == ("operator", "Asked for a run now.")
    assert entry.get_admin_url() == job_url("logged")
    assert re.search(r"logged .* operator Asked for a run now\.", text_of(operator.get(job_url("logged", "history"))))


def test_a_run_is_outside_of_the_requests_transaction(
    make: Make, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ATOMIC_REQUESTS, too: on SQLite a handler that writes would wait for the request, and the request for it."""
    from django.contrib.auth.models import Group

    seen: list[tuple[bool, bool]] = []

    def write() -> None:
        Group.objects.create(name="made by a run")
        seen.append((connection.in_atomic_block, threading.current_thread() is threading.main_thread()))

    make().every("sync", "10s", write)
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    assert "Job 'sync' was run" in text_of(press(operator, "sync"))
    assert seen == [(False, False)]
    assert Group.objects.filter(name="made by a run").exists()


# -- in Django


def test_the_sites_own_scheduler_is_shown(operator: Client) -> None:
    from anarchon.contrib.django import scheduler

    page = operator.get(LIST)
    assert page.status_code == 200 and scheduler.jobs()
    assert all(f"{job.name} {job.kind} {job.schedule}" in text_of(page) for job in scheduler.jobs())


def test_another_admin_site_keeps_to_its_own_addresses(make: Make) -> None:
    make().every("sync", "10s", nothing)
    client = client_of(user("operator", "view_job", "run_job"))
    assert client.get("/back-office/anarchon/job/").status_code == 200
    asked = client.post(job_url("sync", "run", site="back-office"))
    page = confirm(client, "sync", seen_on(asked), site="back-office")
    assert page.redirect_chain == [("/back-office/anarchon/job/sync/change/", 302)]
    bodies = [
        asked,
        page,
        client.get("/back-office/anarchon/job/"),
        client.get("/back-office/anarchon/job/", {"name": "x"}),
    ]
    assert not any("/admin/" in re.sub("/static/admin/", "", body.content.decode()) for body in bodies)


def test_no_table_is_made_and_nothing_asks_for_one() -> None:
    from django.core.management import call_command

    from anarchon.contrib.django.models import Job

    call_command("makemigrations", "anarchon", check=True, dry_run=True, verbosity=0)
    assert "anarchon_job" not in connection.introspection.table_names()
    assert (list(Job.objects.all()), list(Job._base_manager.all())) == ([], [])
    for everything in (False, True):
        dumped = StringIO()
        call_command("dumpdata", stdout=dumped, use_base_manager=everything)
        assert '"auth.permission"' in dumped.getvalue() and '"anarchon.job"' not in dumped.getvalue()
    call_command("check", fail_level="WARNING", stdout=StringIO(), stderr=StringIO())


def test_a_site_without_the_admin_needs_nothing_of_it() -> None:
    program = """
from django.conf import settings
settings.configure(INSTALLED_APPS=["anarchon.contrib.django"], ANARCHON={"BACKEND": "memory://"}, USE_TZ=True)
import django
django.setup()
from django.core.management import call_command
call_command("check", fail_level="WARNING")
import sys
assert not [name for name in sys.modules if name.startswith(("django.contrib.admin", "django.contrib.auth.models"))]
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_there_are_two_permissions_and_no_others() -> None:
    from django.contrib.auth.models import Permission

    found = Permission.objects.filter(content_type__app_label="anarchon").values_list("codename", flat=True)
    assert sorted(found) == ["run_job", "view_job"]


class Marks(HTMLParser):
    """What of a page a browser that heeds a content policy would not do, and what a reader of a screen would miss."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._labelled: set[str | None] = set()
        self._inputs: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (tag == "script" and "src" not in given) or tag == "style":
            self.found.append(f"inline {tag}")
        self.found += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        if tag == "th" and "scope" not in given:
            self.found.append("th without scope")
        if tag == "label":
            self._labelled.add(given.get("for"))
        if tag == "input" and given.get("type") not in ("hidden", "submit") and "aria-label" not in given:
            self._inputs.append(given)

    def complaints(self) -> list[str]:
        return self.found + [f"no label: {given}" for given in self._inputs if given.get("id") not in self._labelled]


def test_pages_keep_to_a_strict_content_policy_and_can_be_read_aloud(
    make: Make, operator: Client, gate: threading.Event
) -> None:
    scheduler = make().every("sync", "1h", fail).every("slow", "1h", lambda: gate.wait(REAL_SECONDS))
    scheduler.run_now("sync")
    scheduler.run_now("slow", wait=0)
    shown = [operator.get(LIST), operator.get(job_url("sync")), operator.get(job_url("slow"))]
    shown.append(operator.post(job_url("slow", "run")))
    for page in shown:
        marks = Marks()
        marks.feed(page.content.decode())
        assert marks.complaints() == []
        assert "INVALID" not in page.content.decode()


def test_the_pages_examples_work_as_they_stand(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from anarchon.contrib.django.models import Job

    billing = make(instance_id="billing-1").every("invoices", "1h", nothing)
    make().every("sync", "10s", nothing)
    monkeypatch.setitem(sys.modules, "billing", types.ModuleType("billing"))
    monkeypatch.setitem(sys.modules, "billing.cron", types.ModuleType("billing.cron"))
    sys.modules["billing.cron"].scheduler = billing  # type: ignore[attr-defined]
    names: dict[str, Any] = {"__name__": "example"}
    for example in examples(DOCS / "django_admin.rst"):
        exec(example, names)
    shown = names["back_office"].get_model_admin(Job)
    request = RequestFactory().get(LIST)
    request.user = user("operator", "view_job", "run_job")
    page = shown.changelist_view(request).render()
    assert "invoices" in text_of(page) and "sync" not in text_of(page)


def examples(page: Path) -> list[str]:
    """Its blocks of Python, the margin taken off."""
    found = re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", page.read_text(encoding="utf-8"))
    return [textwrap.dedent(block) for block in found]
