"""Database connections: a run's are its own, and are closed after it."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
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

# Many processes begin at one time here, and the machine may have other things to do.
pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.timeout(240)]

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
        assert scheduler.stop("60s")


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


# -- in processes of their own


MANY_RUNS = (sys.executable, str(Path(__file__).with_name("many_runs.py")))


def begin(site: Any, *program: str) -> Any:
    """Makes the tables, and goes on as that program."""
    migrate = shlex.join((sys.executable, "manage.py", "migrate", "--verbosity", "0"))
    return site.start("sh", "-c", f"{migrate} && exec {shlex.join(program)}")


@pytest.fixture(scope="module")
def on_sqlite(site_type: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The 500 runs on SQLite, which begin before all others of this file."""
    site = site_type(tmp_path_factory.mktemp("sqlite"))
    yield begin(site, *MANY_RUNS)
    site.close()


@pytest.fixture(scope="module")
def on_postgresql(
    on_sqlite: Any, site_type: Any, postgres_server: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Any, Any, Any]]]:
    """By a name a site, its process and its database; they begin together."""
    many, kept = databases = [postgres_server.database() for _ in range(2)]
    settings = {
        "many": {"DATABASES": {"default": many.django}, "ANARCHON": {"BACKEND": "memory://"}},
        "kept": {"DATABASES": {"default": {**kept.django, "CONN_MAX_AGE": None}}},
    }
    sites = {name: site_type(tmp_path_factory.mktemp(name), **settings[name]) for name in settings}
    sites["kept"].environment["READ"] = "yes"
    try:
        yield {
            "many": (sites["many"], begin(sites["many"], *MANY_RUNS), many),
            "kept": (sites["kept"], begin(sites["kept"], sys.executable, "manage.py", "anarchon_worker"), kept),
        }
    finally:
        for site in sites.values():
            site.close()
        for database in databases:
            database.remove()


def test_500_runs_on_postgresql_leave_no_connection_open_and_share_none(on_postgresql: dict[str, Any]) -> None:
    _, program, database = on_postgresql["many"]
    program.until(lambda: "500 runs" in program.told)
    assert program.told.splitlines() == ["500 runs, 4 at a time: {'success': 500}"]
    # The program lives on. The server takes a moment to end what serves a connection that is closed.
    program.until(lambda: database.connections() == 0)


def test_500_runs_on_sqlite_leave_no_connection_open_and_share_none(on_sqlite: Any) -> None:
    program = on_sqlite
    program.until(lambda: "500 runs" in program.told)
    assert program.told.splitlines() == ["500 runs, 4 at a time: {'success': 500}"]

    def none_is_open() -> bool:
        files = []
        for path in Path(f"/proc/{program.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # another one, of the jobs' store, may be closed meanwhile
                files.append(path.readlink().name)
        return not any("site.db" in name for name in files)

    # The program lives on. The last listener may have been told a moment after the last run was over.
    program.until(none_is_open)


def test_a_run_after_the_servers_restart_finds_a_connection(on_postgresql: dict[str, Any]) -> None:
    site, worker, database = on_postgresql["kept"]
    worker.until(lambda: site.lines(job="read"))
    database.break_connections()
    # One that was at work at that moment may have failed.
    broken = datetime.now(timezone.utc).isoformat()
    ran = len(site.lines(job="read"))
    worker.until(lambda: len(site.lines(job="read")) > ran + 1)

    def records_after() -> list[dict[str, Any]]:
        records = json.loads(site.manage("anarchon_history", "read", "--json").stdout)
        return [record for record in records if record["started_at"] > broken]

    assert {record["status"] for record in worker.until(records_after)} == {"success"}
