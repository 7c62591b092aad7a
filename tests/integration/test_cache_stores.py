"""``CacheBackend`` on real servers: Redis, memcached and databases through Django, and memcached through pymemcache."""

from __future__ import annotations

import gc
import os
import re
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import redis
from caches import DATABASE_ALIAS, DATABASE_KINDS, KINDS, Store, cache_on, set_up_django
from fleet import Fleet
from servers import MemcachedServer, PostgresDatabase, RedisServer

from anarchon import BackendError, CacheBackend, RunRecord, Scheduler
from anarchon.backends import cache_django, cache_pymemcache
from anarchon.durations import from_ms

#: As long as anything may take on a machine that is kept busy.
LONGEST_S = 60

_DAY_S = 86_400


@pytest.fixture(autouse=True)
def time_limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how long a call waits for a server: half a minute, for a busy one may not answer within seconds."""

    def limit(seconds: float) -> None:
        for module in (cache_django, cache_pymemcache):
            monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", seconds)
            monkeypatch.setattr(module, "TIMEOUT_S", seconds)

    limit(30)
    return limit


@pytest.fixture
def make_store(request: pytest.FixtureRequest) -> Iterator[Callable[..., Store]]:
    """Makes a cache of a kind that no other test has; for one at a time."""
    entered: list[Any] = []

    def make(kind: str, **more: Any) -> Store:
        entered.append(cache_on(kind, request, **more))
        return entered[-1].__enter__()

    yield make
    for each in entered:
        each.__exit__(None, None, None)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, make_store: Callable[..., Store]) -> Store:
    return make_store(request.param)


def record(number: int, **fields: Any) -> RunRecord:
    slot = from_ms(number * 1_000)
    values: dict[str, Any] = dict(
        job="x", slot=slot, run_id=str(number * 1_000), attempt=1, trigger="scheduled", status="success",
        instance_id="a", fence=0, started_at=slot, finished_at=slot, duration=0.0,
    )  # fmt: skip
    return RunRecord(**{**values, **fields})


def numbers(records: list[RunRecord]) -> list[int]:
    return [int(record.run_id) // 1_000 for record in records]


def wait_until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end, f"{what}: not in time"
        time.sleep(0.02)


def on_threads(count: int, work: Callable[[int], object]) -> None:
    """Calls ``work`` on so many threads at once, and raises what one of them raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait(LONGEST_S)
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_S * 10)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


@contextmanager
def open_database(store: Store) -> Iterator[None]:
    """This thread's connection to the cache's database, if it has one, is open, as in a request."""
    if not store.database:
        yield
        return
    from django.db import connections

    connections[DATABASE_ALIAS].ensure_connection()
    try:
        yield
    finally:
        connections[DATABASE_ALIAS].close()


def repeat(call: Callable[[], Any]) -> Any:
    """As a scheduler would: a call that failed, for SQLite is locked at times, is sent again as it was."""
    end = time.monotonic() + LONGEST_S
    while True:
        try:
            return call()
        except BackendError:
            if time.monotonic() > end:
                raise


# -- one winner


def race_of_threads(store: Store, slots: int) -> list[int]:
    """Eight threads claim each of so many slots; which were won, each as often as it was."""
    won: list[int] = []

    def race(number: int) -> None:
        backend = store.new_backend()
        with open_database(store):
            for slot in range(1, slots + 1):
                if repeat(lambda slot=slot: backend.claim("x", slot * 1_000, f"token-{number}")):
                    won.append(slot)

    on_threads(8, race)
    return sorted(won)


def test_eight_threads_race_for_each_slot_and_one_wins(store: Store) -> None:
    # Where a claim takes a server's while, the long run below has the rest.
    slots = 200 if "memcache" in store.kind else 50
    assert race_of_threads(store, slots) == list(range(1, slots + 1))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_eight_threads_race_for_each_of_thousands_of_slots_and_one_wins(store: Store) -> None:
    slots = int(os.environ.get("CACHE_SOAK_SLOTS", "2000"))
    assert race_of_threads(store, slots) == list(range(1, slots + 1))


def test_processes_and_their_forked_children_race_for_each_slot_and_one_wins(store: Store, tmp_path: Path) -> None:
    with processes(store, tmp_path, *[{"does": "race", "slots": 40}] * 2) as fleet:
        lines = fleet.wait_for(4, what="raced")
    won = Counter(slot for line in lines for slot in line["won"])
    assert won == Counter(range(1, 41))


def test_of_two_processes_one_runs_each_slot_and_a_crash_loses_its_slot(
    make_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = make_store("django-memcached")
    with processes(store, tmp_path, *[{"does": "run", "hangs": hangs} for hangs in (True, False)]) as fleet:
        dead = fleet.wait_for(what="begin", worker="process-0")[0]["slot_ms"]
        fleet.workers["process-0"].kill()
        before = len(fleet.lines("end"))
        fleet.wait_for(before + 3, what="end", worker="process-1")
        fleet.workers["process-1"].terminate()
        assert fleet.workers["process-1"].wait(LONGEST_S) == 0
        begun = [line["slot_ms"] for line in fleet.lines("begin")]
        ended = {line["slot_ms"] for line in fleet.lines("end")}
    assert len(set(begun)) == len(begun)
    recorded = {int(each.run_id) for each in store.new_backend().history("tick", 100)}
    assert dead in begun and recorded == ended == set(begun) - {dead}


@contextmanager
def processes(store: Store, directory: Path, *given: dict[str, Any]) -> Iterator[Fleet]:
    """Processes on the cache, which have begun together."""
    fleet = Fleet(directory / "fleet", store.kind, store.prefix)
    try:
        names = [f"process-{number}" for number in range(len(given))]
        for name, own in zip(names, given):
            fleet.launch(name, "cache_worker.py", {**asdict(store), **own})
        for name in names:
            fleet.wait_for(what="ready", worker=name)
        for name in names:
            fleet.workers[name].ask("begin")
        yield fleet
    finally:
        fleet.close()
    assert "Traceback" not in fleet.complaints(), fleet.complaints()


# -- what every cache keeps


def test_names_and_prefixes_of_any_length_and_script_are_kept(store: Store) -> None:
    backend = store.new_backend(prefix=(store.prefix * 3)[:100])
    names = ["日" * 200, "é", "e\u0301", "a:b", "a/b%20"]
    assert all(backend.claim(name, 1_000, "a") for name in names)
    assert not any(backend.claim(name, 1_000, "b") for name in names)


@pytest.mark.parametrize("days", [40, 800])
def test_a_claim_that_is_kept_for_longer_than_a_month_is_there(store: Store, days: int) -> None:
    """memcached takes over 30 days for a Unix time, and would drop at once what is kept for so long after 1970."""
    backend = store.new_backend()
    backend.keep_claims("x", lambda slot_ms: slot_ms + days * _DAY_S * 1_000)
    assert [backend.claim("x", 1_000, token) for token in ("a", "b")] == [True, False]


def test_records_that_are_saved_at_once_are_all_there_and_the_oldest_make_room(store: Store) -> None:
    def save(number: int) -> None:
        backend = store.new_backend()
        for each in range(6):
            repeat(lambda each=each: backend.save_result("x", record(number * 10 + each), 20))

    on_threads(3, save)
    saved = [number * 10 + each for number in range(3) for each in range(6)]
    backend = store.new_backend()
    assert sorted(numbers(backend.history("x", 99))) == saved
    for number in range(100, 110):
        backend.save_result("x", record(number), 5)
    assert numbers(backend.history("x", 99)) == [109, 108, 107, 106, 105]
    assert numbers(backend.history("x", 2)) == [109, 108]
    backend.forget("x")
    assert backend.history("x", 99) == []


def test_a_claim_is_kept_by_its_own_time_whatever_the_sites_time_out_and_version_are(
    make_store: Callable[..., Store], redis_url: str
) -> None:
    """A deploy that raises VERSION must not let two versions of the code run each slot."""
    store = make_store("django-redis", TIMEOUT=1, VERSION=7)
    assert store.new_backend().claim("x", 1_000, "a")
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        (key,) = client.keys(f"{store.prefix}*")
        assert _DAY_S < client.ttl(key) <= _DAY_S + 7_200
    assert f"{store.prefix}:1:".encode() in key


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_a_site_without_time_zones_has_claims_and_history(make_store: Callable[..., Store], kind: str) -> None:
    from django.test import override_settings

    with override_settings(USE_TZ=False, TIME_ZONE="America/New_York"):
        backend = make_store(kind).new_backend()
        assert [backend.claim("x", 1_000, token) for token in ("a", "b")] == [True, False]
        for number in range(4):
            backend.save_result("x", record(number), 3)
        assert numbers(backend.history("x", 9)) == [3, 2, 1]


def test_a_database_cache_that_makes_room_begins_with_what_is_oldest(
    make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_django, "LEAST_MAX_ENTRIES", 30)
    backend = make_store("django-sqlite", OPTIONS={"MAX_ENTRIES": 30}).new_backend()
    for number in range(5):
        backend.save_result("x", record(number), 5)
    for slot in range(1, 101):
        assert backend.claim("x", slot * 1_000, "a")
        assert not any(backend.claim("x", recent * 1_000, "b") for recent in range(max(1, slot - 15), slot + 1, 5))


# -- a cache that is away


def fails(call: Callable[[], object]) -> bool:
    """Whether it is an error; the answer of a cache that works counts for nothing."""
    try:
        call()
    except BackendError:
        return True
    return False


def check_away(backend: CacheBackend, slot_ms: int) -> None:
    """No call takes a cache that is away for one that is empty, or for a slot that somebody has."""
    assert fails(lambda: backend.claim("x", slot_ms, "a"))
    assert fails(lambda: backend.history("x", 5))
    assert fails(lambda: backend.save_result("x", record(2), 5))
    assert fails(lambda: backend.forget("x"))


def check_back(backend: CacheBackend, slot_ms: int) -> None:
    assert [repeat(lambda token=token: backend.claim("x", slot_ms, token)) for token in ("a", "b")] == [True, False]
    backend.save_result("x", record(3), 5)
    assert numbers(backend.history("x", 1)) == [3]


#: Options with which a client says nothing of what fails, and does not wait for answers.
_SILENT = {"ignore_exc": True, "default_noreply": True, "retry_attempts": 0}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("django-memcached", {}),
        ("django-memcached", {"OPTIONS": _SILENT}),
        ("django-memcached", {"OPTIONS": {**_SILENT, "use_pooling": True, "max_pool_size": 4}}),
        ("pymemcache", {}),
    ],
)
def test_a_memcached_that_is_away_is_an_error(
    make_store: Callable[..., Store], memcached_alone: Callable[..., MemcachedServer], kind: str, more: dict[str, Any]
) -> None:
    server = memcached_alone().start()
    backend = make_store(kind, location=server.address, **more).new_backend()
    check_back(backend, 1_000)
    server.stop()
    check_away(backend, 2_000)
    server.start()
    check_back(backend, 2_000)


def test_a_redis_that_is_away_is_an_error(
    make_store: Callable[..., Store], redis_server: Callable[..., RedisServer]
) -> None:
    server = redis_server().start()
    backend = make_store("django-redis", location=server.url).new_backend()
    check_back(backend, 1_000)
    server.stop()
    check_away(backend, 2_000)
    server.start()
    check_back(backend, 2_000)


@pytest.mark.parametrize("kind", ["django-redis", "django-memcached", "pymemcache"])
def test_a_server_that_does_not_answer_is_an_error_in_bounded_time(
    make_store: Callable[..., Store],
    memcached_alone: Callable[..., MemcachedServer],
    redis_server: Callable[..., RedisServer],
    time_limits: Callable[[float], None],
    kind: str,
) -> None:
    server = redis_server().start() if kind == "django-redis" else memcached_alone().start()
    location = server.url if isinstance(server, RedisServer) else server.address
    store = make_store(kind, location=location)
    backend = store.new_backend()
    check_back(backend, 1_000)
    time_limits(0.5)
    hasty = store.new_backend()
    server.pause()
    began = time.monotonic()
    assert fails(lambda: hasty.claim("x", 2_000, "a"))
    assert time.monotonic() - began < 60
    server.resume()
    check_back(backend, 2_000)


def test_a_postgresql_that_is_away_is_an_error(make_store: Callable[..., Store], postgres_server: Any) -> None:
    backend = make_store("django-postgresql").new_backend()
    check_back(backend, 1_000)
    postgres_server.stop()
    try:
        check_away(backend, 2_000)
    finally:
        postgres_server.start()
    check_back(backend, 2_000)


def test_a_cache_table_that_was_never_made_is_an_error_that_says_so(make_store: Callable[..., Store]) -> None:
    from django.db import connections

    backend = make_store("django-sqlite").new_backend()
    with connections[DATABASE_ALIAS].cursor() as cursor:
        cursor.execute("DROP TABLE cron_cache")
    check_away(backend, 1_000)
    with pytest.raises(BackendError, match="no such table: cron_cache"):
        backend.claim("x", 1_000, "a")


# -- the docs


def example(words: str) -> str:
    """The example of the page that has these words, as it stands there."""
    page = (Path(__file__).parents[2] / "docs" / "cache.rst").read_text(encoding="utf-8")
    found = [textwrap.dedent(block) for block in re.findall(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)", page)]
    (only,) = [block for block in found if words in block]
    return only


def test_the_pages_examples_work_as_they_stand(memcached: str, prefix: str) -> None:
    from django.test import override_settings

    set_up_django()
    site: dict[str, Any] = {}
    exec(example("# settings.py").replace("memcached.internal:11212", memcached), site)
    assert site["CACHES"]["cron"]["LOCATION"] == memcached
    with override_settings(CACHES=site["CACHES"]):
        exec(example("# website/cron.py"), site)
        backend = site["make_backend"]()
        assert backend.claim(prefix, 1_000, "a") and not backend.claim(prefix, 1_000, "b")
        exec(example("from pymemcache").replace("memcached.internal:11211", memcached), site)
        site["scheduler"].every(prefix, "10s", print)
        assert site["scheduler"].run_now(prefix).status == "success"
        assert len(site["scheduler"].history(prefix)) == 1
    exec(example("DatabaseCache"), site)
    with override_settings(CACHES=site["CACHES"]):
        exec(example("# website/cron.py"), site)
        assert "'cron'" in repr(site["make_backend"]())


# -- pymemcache's other clients


@pytest.mark.parametrize("options", [{}, _SILENT])
@pytest.mark.parametrize("kind", ["Client", "PooledClient", "HashClient", "HashClient of pools", "RetryingClient"])
def test_every_client_of_pymemcache_serves_as_a_pattern(
    memcached_alone: Callable[..., MemcachedServer], prefix: str, kind: str, options: dict[str, Any]
) -> None:
    from pymemcache.client.base import Client, PooledClient
    from pymemcache.client.hash import HashClient
    from pymemcache.client.retrying import RetryingClient
    from pymemcache.serde import pickle_serde

    server = memcached_alone().start()
    # None but a HashClient fails over.
    options = {name: value for name, value in options.items() if "Hash" in kind or not name.startswith("retry")}
    clients: dict[str, Callable[[], Any]] = {
        "Client": lambda: Client(server.address, key_prefix=b"own-", **options),
        "PooledClient": lambda: PooledClient(server.address, serde=pickle_serde, **options),
        "HashClient": lambda: HashClient([server.address], **options),
        "HashClient of pools": lambda: HashClient([server.address], use_pooling=True, **options),
        "RetryingClient": lambda: RetryingClient(Client(server.address, **options), attempts=3),
    }
    backend = CacheBackend(clients[kind](), prefix=prefix)
    won: list[int] = []

    def race(number: int) -> None:
        won.extend(slot for slot in range(1, 31) if backend.claim("x", slot * 1_000, f"token-{number}"))

    on_threads(4, race)
    assert sorted(won) == list(range(1, 31))
    check_back(backend, 100_000)
    server.stop()
    check_away(backend, 101_000)


# -- connections


def test_no_call_leaves_a_connection_to_redis_or_memcached_open(
    make_store: Callable[..., Store],
    redis_server: Callable[..., RedisServer],
    memcached_alone: Callable[..., MemcachedServer],
) -> None:
    from pymemcache import Client

    server, other = redis_server().start(), memcached_alone().start()
    with redis.Redis.from_url(server.url, protocol=2) as client, closing(Client(other.address)) as stats:
        before = stats.stats()[b"curr_connections"]
        for kind, location in (
            ("django-redis", server.url),
            ("django-memcached", other.address),
            ("pymemcache", other.address),
        ):
            store = make_store(kind, location=location)
            backend = store.new_backend()
            on_threads(4, lambda number, backend=backend: check_history(backend, f"job-{number}"))
            wait_until(lambda: len(client.client_list()) == 1, f"{kind}: Redis")
            # The one that asked whether the server serves may have been among those before.
            wait_until(lambda: stats.stats()[b"curr_connections"] <= before, f"{kind}: memcached")


def check_history(backend: CacheBackend, job: str) -> None:
    for number in range(5):
        backend.claim(job, number * 1_000, "a")
        backend.save_result(job, record(number, job=job), 3)
    assert numbers(backend.history(job, 9)) == [4, 3, 2]


@pytest.mark.parametrize("age", [0, 600, None])
def test_no_thread_keeps_a_connection_to_the_database_after_its_calls(
    make_store: Callable[..., Store], postgres: PostgresDatabase, age: int | None
) -> None:
    """However long Django's settings would keep it: no request ends on these threads, to close one."""
    from django.db import connections

    store = make_store("django-postgresql")
    connections.settings[DATABASE_ALIAS]["CONN_MAX_AGE"] = age
    have_called, may_end = threading.Barrier(4), threading.Event()

    def call(number: int) -> None:
        check_history(store.new_backend(), f"job-{number}")
        if have_called.wait(LONGEST_S) == 0:
            try:
                wait_until(lambda: postgres.connections() == 0, "the last connection's end")
            finally:
                may_end.set()
        may_end.wait(LONGEST_S * 2)

    on_threads(4, call)


def test_a_hundred_runs_leave_no_connection_to_the_database_open(
    make_store: Callable[..., Store], postgres: PostgresDatabase
) -> None:
    """A connection that is left to the collector would be a warning, and so an error here."""
    ran: list[Any] = []
    scheduler = Scheduler(make_store("django-postgresql").new_backend())
    for number in range(20):
        scheduler.every(f"job-{number}", "250ms", lambda ctx: ran.append(ctx.slot))
    with scheduler:
        wait_until(lambda: len(ran) >= 100, "a hundred runs")
        assert scheduler.stop(LONGEST_S)
    gc.collect()
    wait_until(lambda: postgres.connections() == 0, "the last connection's end")


@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_a_connection_that_was_open_stays_open_in_its_transaction(make_store: Callable[..., Store], kind: str) -> None:
    """As in a view under ATOMIC_REQUESTS that shows the history."""
    from django.db import connections, transaction

    backend = make_store(kind).new_backend()
    backend.save_result("x", record(1), 5)
    mine = connections[DATABASE_ALIAS]
    assert mine.connection is None
    with transaction.atomic(using=DATABASE_ALIAS):
        before = mine.connection
        mine.cursor().execute("CREATE TABLE of_the_view (id integer)")
        assert numbers(backend.history("x", 5)) == [1]
        assert mine.connection is before and mine.in_atomic_block
        transaction.set_rollback(True, using=DATABASE_ALIAS)
    assert mine.connection is before
    assert "of_the_view" not in mine.introspection.table_names()


def test_a_connection_that_broke_is_opened_again_after_one_error(
    make_store: Callable[..., Store], postgres: PostgresDatabase
) -> None:
    from django.db import connections

    backend = make_store("django-postgresql").new_backend()
    connections[DATABASE_ALIAS].ensure_connection()
    postgres.break_connections()
    with pytest.raises(BackendError):
        backend.claim("x", 1_000, "a")
    assert connections[DATABASE_ALIAS].connection is None
    assert backend.claim("x", 1_000, "a") is True
    assert connections[DATABASE_ALIAS].connection is None
