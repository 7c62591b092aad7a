"""The JSON views: who is let in, what is answered, and that they only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.http import HttpResponseForbidden
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse

from anarchon import BackendError, MemoryBackend
from anarchon.contrib.django import scheduler, views

QUESTIONS = ["jobs", "jobs/sell/runs", "jobs/sell/last", "jobs/sell/active"]


def let_in(**given: Any) -> Any:
    return override_settings(ANARCHON={"BACKEND": "memory://", "PERMISSION": lambda request: True, **given})


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def anybody() -> Iterator[None]:
    with let_in():
        yield


def assert_refused(response: Any, status: int, error: str) -> None:
    assert (response.status_code, response["Content-Type"]) == (status, "application/json")
    assert response.json()["error"] == error
    assert response["Cache-Control"] == "no-store"


# -- who is let in


@pytest.mark.parametrize("question", QUESTIONS)
def test_nobody_is_let_in_unless_the_site_says_who(client: Client, question: str) -> None:
    assert settings.DEBUG is False
    assert_refused(client.get(f"/cron/{question}"), 403, "forbidden")
    assert_refused(client.post(f"/cron/{question}"), 403, "forbidden")


@pytest.mark.parametrize("question", QUESTIONS)
def test_everybody_is_let_in_where_the_site_is_being_debugged(client: Client, question: str) -> None:
    with override_settings(DEBUG=True):
        assert client.get(f"/cron/{question}").status_code == 200
    with override_settings(DEBUG=True, ANARCHON={"BACKEND": "memory://", "PERMISSION": lambda request: False}):
        assert_refused(client.get(f"/cron/{question}"), 403, "forbidden")


def staff(request: Any) -> bool:
    return request.user.is_staff


def test_the_hook_is_asked_with_the_request() -> None:
    for user, status in ((AnonymousUser(), 403), (User(is_staff=False), 403), (User(is_staff=True), 200)):
        request = RequestFactory().get("/cron/jobs")
        request.user = user
        with let_in(PERMISSION=staff):
            assert views.jobs(request).status_code == status


def test_the_hook_alone_decides_where_a_site_wants_a_login_for_all_its_views(client: Client) -> None:
    wants_login = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, wants_login]):
        assert_refused(client.get("/cron/jobs"), 403, "forbidden")
        with let_in():
            assert client.get("/cron/jobs").status_code == 200


def test_the_hook_may_be_a_dotted_path(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shop.views.let_in", lambda request: "key" in request.GET, raising=False)
    with let_in(PERMISSION="shop.views.let_in"):
        assert client.get("/cron/jobs", {"key": 1}).status_code == 200
        assert_refused(client.get("/cron/jobs"), 403, "forbidden")


def test_a_hook_that_raises_lets_nobody_in(client: Client) -> None:
    def broken(request: Any) -> bool:
        raise LookupError("no such user")

    with let_in(PERMISSION=broken), pytest.raises(LookupError):
        client.get("/cron/jobs")
    client = Client(raise_request_exception=False)
    with let_in(PERMISSION=broken):
        assert client.get("/cron/jobs").status_code == 500


def test_a_hook_may_refuse_in_djangos_way(client: Client) -> None:
    def refuses(request: Any) -> bool:
        raise PermissionDenied

    with let_in(PERMISSION=refuses):
        assert_refused(client.get("/cron/jobs"), 403, "forbidden")


@pytest.mark.parametrize("answer", [None, "", "no", 1, HttpResponseForbidden()])
def test_a_hook_that_says_neither_true_nor_false_lets_nobody_in(client: Client, answer: Any) -> None:
    with let_in(PERMISSION=lambda request: answer), pytest.raises(TypeError, match="must return True or False"):
        client.get("/cron/jobs")


# -- what is answered


@pytest.mark.usefixtures("anybody")
class TestAnswers:
    def test_jobs_are_those_of_this_process(self, client: Client) -> None:
        response = client.get("/cron/jobs")
        assert response.status_code == 200
        assert [job["name"] for job in response.json()] == [job.name for job in scheduler.jobs()]
        assert response.json()[0]["timezone"] == "Europe/Athens"
        assert response["Cache-Control"] == "no-store"

    def test_runs_last_and_active_are_of_any_job(self, client: Client) -> None:
        assert client.get("/cron/jobs/unheard-of/runs").json() == []
        assert client.get("/cron/jobs/unheard-of/last").json() is None
        assert client.get("/cron/jobs/unheard-of/active").json() == []

    def test_runs_are_the_newest_first_as_many_as_are_asked_for(self, client: Client) -> None:
        records = [scheduler.run_now("look").to_dict() for _ in range(3)]
        assert client.get("/cron/jobs/look/runs", {"limit": 2}).json() == records[:0:-1]
        assert client.get("/cron/jobs/look/last").json() == records[-1]

    @pytest.mark.parametrize("limit", ["0", "-1", "x", "1001", "", "٣", "1" * 5000])
    def test_a_limit_that_is_none_is_told(self, client: Client, limit: str) -> None:
        assert_refused(client.get("/cron/jobs/look/runs", {"limit": limit}), 400, "bad-limit")

    @pytest.mark.parametrize("name", ["a/b", "a/runs", "runs/last", "ταμείο", "a?b", "a%2Fb", "<b>", "a;b"])
    def test_a_name_may_have_slashes_and_signs(self, client: Client, name: str) -> None:
        asked: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduler._wrapped, "history", lambda name, limit: asked.append(name) or [])
            assert client.get(reverse("anarchon:runs", args=[name])).json() == []
            assert client.get(reverse("anarchon:last", args=[name])).status_code == 200
        assert asked[0] == name

    @pytest.mark.parametrize("name", ["a b", "{a}", "x" * 201, "a\t"])
    def test_a_name_that_no_job_can_have_is_told(self, client: Client, name: str) -> None:
        for question in ("runs", "last", "active"):
            assert_refused(client.get(reverse(f"anarchon:{question}", args=[name])), 400, "bad-request")

    @pytest.mark.parametrize("question", QUESTIONS)
    @pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options"])
    def test_only_reading_is_answered(self, question: str, method: str) -> None:
        # As a browser has it: Django's own refusal of a POST without a token would be a page.
        client = Client(enforce_csrf_checks=True)
        response = getattr(client, method)(f"/cron/{question}")
        assert_refused(response, 405, "method-not-allowed")
        assert response["Allow"] == "GET, HEAD"

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_head_is_answered_like_get_without_the_body(self, client: Client, question: str) -> None:
        response = client.head(f"/cron/{question}")
        assert (response.status_code, response["Content-Type"]) == (200, "application/json")
        assert response.content == b""

    def test_a_store_that_is_away_is_told_and_not_where_it_stands(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(self: MemoryBackend, job: str, limit: int) -> Any:
            raise BackendError("store.example:6379 does not answer")

        monkeypatch.setattr(MemoryBackend, "history", away)
        response = client.get("/cron/jobs/look/runs")
        assert_refused(response, 503, "store-unavailable")
        assert response["Retry-After"] == "5"
        assert "store.example" not in response.content.decode()

    def test_other_pages_below_are_not_found(self, client: Client) -> None:
        for page in ("", "jobs/", "jobs/look", "jobs/look/run", "jobs//runs"):
            assert client.get(f"/cron/{page}").status_code == 404


# -- beside the site's own database


@pytest.fixture
def atomic_requests(database: None) -> Iterator[None]:
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    yield
    connection.settings_dict["ATOMIC_REQUESTS"] = False


@pytest.mark.usefixtures("anybody", "atomic_requests")
class TestUnderAtomicRequests:
    def test_the_views_answer(self, client: Client) -> None:
        for question in QUESTIONS:
            assert client.get(f"/cron/{question}").status_code == 200

    def test_a_run_by_hand_is_no_part_of_the_requests_transaction(self) -> None:
        from shop.models import Sale

        response = Client(raise_request_exception=False).get("/run/sell", {"then": "fail"})
        assert response.status_code == 500
        # What the request itself wrote is rolled back; the run has had a connection of its own.
        assert [sale.job for sale in Sale.objects.all()] == ["sell"]
        assert scheduler.last_run("sell").status == "success"  # type: ignore[union-attr]

    def test_a_run_by_hand_after_the_commit_sees_what_the_request_wrote(self, client: Client) -> None:
        from shop.models import Sale

        assert client.get("/run-after/sell").status_code == 200
        assert [sale.job for sale in Sale.objects.order_by("pk")] == ["before", "sell"]
        assert not transaction.get_connection().in_atomic_block


def test_history_is_read_in_a_process_that_registers_nothing(make_site: Callable[..., Any]) -> None:
    site = make_site()
    site.settings["ANARCHON"]["PERMISSION"] = "shop.views.everybody"
    site.manage("anarchon_run", "look")
    site.settings["ANARCHON"]["JOBS_MODULE"] = None
    told = site.manage("shell", "-v", "0", "-c", ASK).stdout.splitlines()
    assert told == ["/cron/jobs 200 0", "/cron/jobs/look/runs 200 1", "/cron/jobs/look/active 200 0"]


ASK = """
from django.test import Client
for path in ("/cron/jobs", "/cron/jobs/look/runs", "/cron/jobs/look/active"):
    response = Client().get(path)
    print(path, response.status_code, len(response.json()))
"""
