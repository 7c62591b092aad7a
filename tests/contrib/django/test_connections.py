"""Database connections: a run's are its own, and are closed after it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.db import DatabaseError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import override_settings

from anarchon import BackendError, MemoryBackend, RunContext, Scheduler
from anarchon.contrib.django.settings import read

pytestmark = pytest.mark.usefixtures("database")

Make = Callable[..., Scheduler]


class MightBeAway(MemoryBackend):
    away = False

    def history(self, job: str, limit: int) -> Any:
        if self.away:
            raise BackendError("the store is away")
        return super().history(job, limit)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes schedulers as a site has them."""
    made: list[Scheduler] = []

    def make(**given: Any) -> Scheduler:
        scheduler, errors = read({"BACKEND": MemoryBackend(), **given})
        assert errors == [] and scheduler is not None
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        assert scheduler.stop("10s")


@pytest.fixture
def opened() -> Iterator[list[BaseDatabaseWrapper]]:
    """The connections that are opened during a test, in order."""
    opened: list[BaseDatabaseWrapper] = []

    def note(connection: BaseDatabaseWrapper, **more: Any) -> None:
        opened.append(connection)

    connection_created.connect(note)
    yield opened
    connection_created.disconnect(note)


def sell(job: str = "sync") -> None:
    from shop.models import Sale

    Sale.objects.create(job=job)


def sold() -> int:
    from shop.models import Sale

    return Sale.objects.count()


def succeeds(scheduler: Scheduler, name: str = "sync") -> None:
    record = scheduler.run_now(name)
    assert (record.status, record.error) == ("success", None)


def test_the_connection_of_a_run_is_closed_after_it(make: Make, opened: list[BaseDatabaseWrapper]) -> None:
    scheduler = make().every("sync", "10s", sell)
    for _ in range(3):
        succeeds(scheduler)
    assert [one.connection for one in opened] == [None] * 3
    assert len({id(one) for one in opened}) == 3
    assert sold() == 3


def test_the_connection_of_a_run_that_fails_is_closed_too(make: Make, opened: list[BaseDatabaseWrapper]) -> None:
    def sync() -> None:
        sell()
        with transaction.atomic():
            sell()
            raise ValueError("no such customer")

    assert make().every("sync", "10s", sync).run_now("sync").status == "failed"
    assert [one.connection for one in opened] == [None]
    assert sold() == 1


def test_the_connection_of_a_run_with_a_timeout_is_closed_too(make: Make, opened: list[BaseDatabaseWrapper]) -> None:
    succeeds(make().every("sync", "10s", sell, timeout="1m"))
    assert [one.connection for one in opened] == [None]


@pytest.mark.parametrize("type", ["start", "success"])
def test_the_connection_of_a_listener_on_a_library_thread_is_closed_after_it(
    make: Make, opened: list[BaseDatabaseWrapper], type: str
) -> None:
    scheduler = make().every("sync", "10s", lambda: None)
    scheduler.on(type, lambda event: sell("heard"))
    succeeds(scheduler)
    assert [one.connection for one in opened] == [None]
    assert sold() == 1


def test_a_listener_on_a_thread_that_is_not_ours_leaves_its_transaction_alone(make: Make) -> None:
    store = MightBeAway()
    scheduler = make(BACKEND=store).on("error", lambda event: sell("heard"))
    store.away = True
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        sell("before")
        with pytest.raises(BackendError):
            scheduler.history("sync")
        assert sold() == 2
        raise ZeroDivisionError
    assert sold() == 0


def test_a_listener_that_a_handler_causes_leaves_the_handlers_transaction_alone(make: Make) -> None:
    store = MightBeAway()
    scheduler = make(BACKEND=store).on("error", lambda event: sell("heard"))

    def sync() -> None:
        with transaction.atomic():
            sell()
            with pytest.raises(BackendError):
                scheduler.history("sync")
            sell()

    scheduler.every("sync", "10s", sync)
    store.away = True
    succeeds(scheduler)
    assert sold() == 3


def test_around_run_of_the_site_may_use_the_connection_after_the_handler_has(
    make: Make, opened: list[BaseDatabaseWrapper]
) -> None:
    @contextmanager
    def around(ctx: RunContext) -> Iterator[None]:
        sell("around")
        yield
        sell("around")

    succeeds(make(AROUND_RUN=around).every("sync", "10s", sell))
    assert [one.connection for one in opened] == [None]
    assert sold() == 3


def test_a_run_begins_with_nothing_of_the_one_before_it_on_its_thread(make: Make) -> None:
    queries = []

    def sync() -> None:
        sell()
        queries.append(len(connection.queries))
        # Nobody will ever leave it.
        transaction.atomic().__enter__()

    scheduler = make().every("sync", "10s", sync)
    with override_settings(DEBUG=True):
        for _ in range(3):
            succeeds(scheduler)
    assert queries == [queries[0]] * 3
    assert sold() == 3


class NotingCache(LocMemCache):
    closed: ClassVar[list[int]] = []

    def close(self, **kwargs: Any) -> None:
        self.closed.append(threading.get_ident())
        if len(self.closed) > 1:
            raise OSError("the cache is gone")


def test_the_caches_that_a_run_has_used_are_closed_on_its_thread(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    threads = []

    def sync() -> None:
        cache.set("key", 1)
        threads.append(threading.get_ident())

    # Around every event that is logged they are closed once more.
    scheduler = make(LOG=False).every("sync", "10s", sync)
    NotingCache.closed.clear()
    with override_settings(CACHES={"default": {"BACKEND": f"{__name__}.NotingCache"}}):
        succeeds(scheduler)
        assert NotingCache.closed == threads
        succeeds(scheduler)
    assert NotingCache.closed == threads
    told = [r.getMessage() for r in caplog.records]
    assert told == ["A run's connection to a cache could not be closed."], told


def test_a_connection_that_cannot_be_closed_does_not_change_how_the_run_has_ended(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make().every("sync", "10s", sell)
    close = BaseDatabaseWrapper._close

    def broken(self: BaseDatabaseWrapper) -> None:
        close(self)
        raise DatabaseError("the server is gone")

    monkeypatch.setattr(BaseDatabaseWrapper, "_close", broken)
    with caplog.at_level(logging.WARNING, "anarchon"):
        succeeds(scheduler)
    monkeypatch.undo()
    assert [r.getMessage() for r in caplog.records] == [
        "A run's connection to the database 'default' could not be closed."
    ]
    succeeds(scheduler)


def test_the_connection_of_whoever_runs_a_job_by_hand_is_left_as_it_is(make: Make) -> None:
    scheduler = make().every("sync", "10s", lambda: None)
    with transaction.atomic():
        sell("by hand")
        before = connection.connection
        succeeds(scheduler)
        assert connection.connection is before
    assert sold() == 1
    assert list(connections.all(initialized_only=True))


# -- 500 runs, in a process of their own


def test_500_runs_on_postgresql_leave_no_connection_open_and_share_none(
    postgres: Any, make_site: Callable[..., Any]
) -> None:
    site = make_site(DATABASES={"default": postgres.django}, ANARCHON={"BACKEND": "memory://"})
    site.manage("migrate", "--verbosity", "0")
    program = site.start(sys.executable, str(Path(__file__).with_name("many_runs.py")))
    program.until(lambda: "500 runs" in program.told)
    assert program.told.splitlines() == ["500 runs, 4 at a time: {'success': 500}"]
    # The program lives on. The server takes a moment to end what serves a connection that is closed.
    program.until(lambda: postgres.connections() == 0)


def test_500_runs_on_sqlite_leave_no_connection_open_and_share_none(site: Any) -> None:
    site.manage("migrate", "--verbosity", "0")
    program = site.start(sys.executable, str(Path(__file__).with_name("many_runs.py")))
    program.until(lambda: "500 runs" in program.told)
    assert program.told.splitlines() == ["500 runs, 4 at a time: {'success': 500}"]
    files = [path.readlink() for path in Path(f"/proc/{program.pid}/fd").iterdir() if path.is_symlink()]
    assert [str(path) for path in files if "site.db" in path.name] == []


def test_a_run_after_the_servers_restart_finds_a_connection(postgres: Any, make_site: Callable[..., Any]) -> None:
    site = make_site(DATABASES={"default": {**postgres.django, "CONN_MAX_AGE": None}})
    site.manage("migrate", "--verbosity", "0")
    site.environment["READ"] = "yes"
    worker = site.start_manage("anarchon_worker")
    worker.until(lambda: site.lines(job="read"))
    postgres.break_connections()
    ran = len(site.lines(job="read"))
    worker.until(lambda: len(site.lines(job="read")) > ran + 1)
    records = site.manage("anarchon_history", "read", "--json").stdout
    assert '"success"' in records
    assert '"failed"' not in records
