"""Every question over HTTP has one answer, whatever framework carries it: a status, and a body that is JSON."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from anarchon import BackendError, MemoryBackend, Scheduler
from anarchon.web import answers
from anarchon.web.answers import Answer


def make(backend: Any = None, lease: str = "5m") -> Scheduler:
    scheduler = Scheduler(backend or MemoryBackend(), instance_id="here", lease=lease)
    return scheduler.every("sync", "10s", lambda: None).every("fails", "10s", fails)


def fails() -> None:
    raise ValueError("no money")


class Away(MemoryBackend):
    """A store that cannot be reached, and says where it would be."""

    def _refuse(self, *given: object) -> Any:
        raise BackendError("10.1.2.3:6379 refused")

    claim = history = active = time = _refuse


def test_jobs_are_what_this_process_has_registered() -> None:
    answer = answers.jobs(make())
    assert (answer.status, [job["name"] for job in answer.body]) == (200, ["sync", "fails"])
    assert json.loads(json.dumps(answer.body)) == answer.body


def test_a_process_without_jobs_lists_none_and_still_reads() -> None:
    backend = MemoryBackend()
    make(backend).run_now("sync")
    reader = Scheduler(backend)
    assert answers.jobs(reader) == Answer(200, [])
    assert [record["status"] for record in answers.runs(reader, "sync", None).body] == ["success"]


def test_a_run_gives_its_record_whether_it_went_well_or_not() -> None:
    scheduler = make()
    went_well, failed = answers.run(scheduler, "sync"), answers.run(scheduler, "fails")
    assert (went_well.status, went_well.body["status"], went_well.body["trigger"]) == (200, "success", "manual")
    assert (failed.status, failed.body["status"], failed.body["error"]) == (200, "failed", "ValueError: no money")


def test_runs_are_the_newest_first_and_as_many_as_asked_for() -> None:
    scheduler = make()
    ids = [answers.run(scheduler, "sync").body["run_id"] for _ in range(3)]
    assert [record["run_id"] for record in answers.runs(scheduler, "sync", "2").body] == ids[:0:-1]


def test_last_is_the_newest_record_or_null() -> None:
    scheduler = make()
    assert answers.last(scheduler, "sync") == Answer(200, None)
    record = answers.run(scheduler, "sync").body
    assert answers.last(scheduler, "sync") == Answer(200, record)


def test_active_is_what_has_not_finished() -> None:
    scheduler = Scheduler(MemoryBackend(), instance_id="here")
    seen: list[Answer] = []
    scheduler.every("sync", "10s", lambda: seen.append(answers.active(scheduler, "sync")))
    answers.run(scheduler, "sync")
    assert [(run["instance_id"], run["attempt"]) for run in seen[0].body] == [("here", 1)]
    assert answers.active(scheduler, "sync") == Answer(200, [])


@pytest.mark.parametrize("limit", ["", "0", "-1", "1001", "ten", "1.5", "٣", " 5", "9" * 5000])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    answer = answers.runs(make(), "sync", limit)
    assert (answer.status, answer.body["error"]) == (400, "bad-limit")
    assert "from 1 to 1000" in answer.body["message"] and len(answer.body["message"]) < 200


@pytest.mark.parametrize("ask", [lambda s, n: answers.runs(s, n, None), answers.last, answers.active])
def test_what_is_no_name_of_a_job_is_refused(ask: Any) -> None:
    answer = ask(make(), "two words")
    assert (answer.status, answer.body["error"]) == (400, "bad-request")


def test_a_run_of_an_unknown_job_is_refused_with_the_nearest_name() -> None:
    answer = answers.run(make(), "sinc")
    assert (answer.status, answer.body["error"]) == (404, "job-not-registered")
    assert (answer.body["job"], answer.body["nearest"]) == ("sinc", "sync")


def test_a_run_that_meets_another_is_refused_with_the_holder() -> None:
    scheduler = Scheduler(MemoryBackend(), instance_id="here")
    seen: list[Answer] = []
    scheduler.every("sync", "10s", lambda: seen.append(answers.run(scheduler, "sync")))
    answers.run(scheduler, "sync")
    assert (seen[0].status, seen[0].body["error"], seen[0].body["holder"]) == (409, "run-refused", "here")


def test_a_scheduler_that_was_stopped_runs_nothing_where_that_is_asked() -> None:
    scheduler = make()
    assert answers.run(scheduler, "sync", until_stopped=True).status == 200
    assert scheduler.stop()
    answer = answers.run(scheduler, "sync", until_stopped=True)
    assert (answer.status, answer.body["error"], answer.body["job"]) == (503, "stopping", "sync")
    assert answer.headers == {"Retry-After": "5"}
    assert answers.run(scheduler, "sync").status == 200


def test_a_run_that_goes_on_is_accepted_and_has_no_record_yet() -> None:
    begun, over = threading.Event(), threading.Event()

    def handler() -> None:
        begun.set()
        over.wait(60)

    scheduler = Scheduler(MemoryBackend()).every("long", "1d", handler)
    assert answers.run(scheduler, "long", wait="0s") == Answer(202, None)
    assert begun.wait(60), "A stop would withdraw a run that has not begun."
    over.set()
    assert scheduler.stop("60s")
    assert answers.last(scheduler, "long").body["status"] == "success"


@pytest.mark.parametrize("wait", ["soon", -1, True, [], {"s": 1}])
def test_a_wait_that_is_no_duration_is_refused(wait: object) -> None:
    answer = answers.run(make(), "sync", wait=wait)
    assert (answer.status, answer.body["error"]) == (400, "bad-request")
    assert "wait must" in answer.body["message"]


@pytest.mark.parametrize("ask", [lambda s: answers.runs(s, "sync", None), lambda s: answers.last(s, "sync"),
                                 lambda s: answers.active(s, "sync"), lambda s: answers.run(s, "sync")])  # fmt: skip
def test_a_store_that_is_away_is_told_without_where_it_stands(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    with caplog.at_level(logging.WARNING, "anarchon"):
        answer = ask(make(store, lease="1s"))  # for so long a claim in doubt is withdrawn
    assert (answer.status, answer.body["error"], answer.headers) == (503, "store-unavailable", {"Retry-After": "5"})
    assert "10.1.2.3" not in json.dumps(answer.body)
    assert "10.1.2.3" in caplog.text
