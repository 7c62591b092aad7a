"""``CacheBackend`` over a cache in memory that can be away, lose answers and drop keys; and what it refuses."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from caches import ALIAS, set_up_django
from fakes import Script
from world import World

from anarchon import BackendError, CacheBackend, ConfigurationError, RunRecord, Scheduler
from anarchon.backends.cache import AtomicCache
from anarchon.backends.cache_django import DjangoCaches
from anarchon.durations import from_ms

_DAY_S = 86_400


class DictCache(AtomicCache):
    """A cache in this process, by a script.

    Attributes:
        values: what it keeps.
        kept: for how many seconds, by key.
        ever: every key that it has ever kept.
        answer: what ``add`` answers, whatever it has done.
    """

    def __init__(self) -> None:
        self.script = Script()
        self.values: dict[str, str] = {}
        self.kept: dict[str, int | None] = {}
        self.ever: set[str] = set()
        self.answer: object = None
        self._lock = threading.Lock()

    def add(self, key: str, value: str, seconds: int | None) -> object:
        self.script.play("add", (key, value, seconds), lambda: self._add(key, value, seconds))
        return self.answer

    def get(self, key: str) -> str | None:
        found: str | None = self.script.play("get", (key,), lambda: self.values.get(key))
        return found

    def set(self, key: str, value: str, seconds: int) -> object:
        self.script.play("set", (key, value, seconds), lambda: self._keep(key, value, seconds))
        return self.answer

    def delete(self, key: str) -> object:
        self.script.play("delete", (key,), lambda: self.values.pop(key, None))
        return self.answer

    def _add(self, key: str, value: str, seconds: int | None) -> None:
        with self._lock:
            if key not in self.values:
                self._keep(key, value, seconds)

    def _keep(self, key: str, value: str, seconds: int | None) -> None:
        self.values[key] = value
        self.kept[key] = seconds
        self.ever.add(key)

    def keys(self, part: str) -> list[str]:
        return sorted(key for key in self.values if part in key)


@pytest.fixture
def cache() -> DictCache:
    return DictCache()


@pytest.fixture
def backend(cache: DictCache) -> CacheBackend:
    return CacheBackend(cache)


def record(number: int, **fields: Any) -> RunRecord:
    slot = from_ms(number * 1_000)
    values: dict[str, Any] = dict(
        job="x", slot=slot, run_id=str(number * 1_000), attempt=1, trigger="scheduled", status="success",
        instance_id="a", fence=0, started_at=slot, finished_at=slot, duration=0.0,
    )  # fmt: skip
    return RunRecord(**{**values, **fields})


def numbers(records: Sequence[RunRecord]) -> list[int]:
    return [int(record.run_id) // 1_000 for record in records]


# -- claims


def test_whoever_comes_first_has_the_slot_and_the_same_token_is_told_so_again(backend: CacheBackend) -> None:
    answers = [backend.claim("x", 1_000, token) for token in ("a", "b", "a", "b")]
    assert answers == [True, False, True, False]


def test_slots_and_jobs_do_not_stand_in_each_others_way(backend: CacheBackend) -> None:
    assert all(backend.claim(job, slot_ms, "a") for job in ("x", "y") for slot_ms in (1_000, 2_000))
    assert not any(backend.claim(job, slot_ms, "b") for job in ("x", "y") for slot_ms in (1_000, 2_000))


def test_prefixes_keep_schedulers_apart(cache: DictCache) -> None:
    assert all(CacheBackend(cache, prefix=prefix).claim("x", 1_000, prefix) for prefix in ("a:", "b:", ""))


@pytest.mark.parametrize("answer", [True, False, None])
def test_what_add_answers_does_not_decide(cache: DictCache, backend: CacheBackend, answer: object) -> None:
    """
    A client that does not wait for an answer says True to everybody, a database cache says False where the database is
    away.
    """
    cache.answer = answer
    assert [backend.claim("x", 1_000, token) for token in ("a", "b")] == [True, False]


@pytest.mark.parametrize("answer", [True, False])
def test_a_cache_that_keeps_nothing_is_a_store_that_failed(
    cache: DictCache, backend: CacheBackend, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    cache.answer = answer
    monkeypatch.setattr(cache, "_keep", lambda *given: None)
    with pytest.raises(BackendError, match="did not keep"):
        backend.claim("x", 1_000, "a")
    with pytest.raises(BackendError, match="did not keep"):
        backend.save_result("x", record(1), 5)


@pytest.mark.parametrize("verb", ["add", "get"])
def test_a_claim_whose_answer_was_lost_is_recognised_when_it_is_repeated(
    cache: DictCache, backend: CacheBackend, verb: str
) -> None:
    cache.script.next(verb, "lose")
    with pytest.raises(BackendError):
        backend.claim("x", 1_000, "a")
    assert backend.claim("x", 1_000, "b") is False
    assert backend.claim("x", 1_000, "a") is True


def test_whatever_the_cache_raises_is_a_backend_error_with_its_cause(cache: DictCache, backend: CacheBackend) -> None:
    cache.script.next("add", OSError("connection refused"))
    with pytest.raises(BackendError, match="OSError: connection refused") as raised:
        backend.claim("x", 1_000, "a")
    assert isinstance(raised.value.__cause__, OSError)


def test_tokens_that_come_back_as_bytes_are_read(cache: DictCache, backend: CacheBackend) -> None:
    assert backend.claim("x", 1_000, "a")
    backend.save_result("x", record(1), 5)
    cache.values = {key: value.encode() for key, value in cache.values.items()}  # type: ignore[misc]
    assert [backend.claim("x", 1_000, token) for token in ("a", "b")] == [True, False]
    assert backend.history("x", 5) == [record(1)]


@pytest.mark.parametrize("name", ["σύνοψη-" + "ημέρας" * 30, "x" * 200, "日" * 200, "a%3A:b", "é", "e\u0301"])
def test_keys_are_short_plain_ascii_whatever_the_jobs_name(cache: DictCache, name: str) -> None:
    backend = CacheBackend(cache, prefix="p" * 100)
    assert backend.claim(name, 253_402_300_799_999, "a")
    backend.save_result(name, record(1, job=name), 5)
    for key in cache.ever:
        assert len(key) <= 154
        assert key.isascii() and key.isprintable() and " " not in key
    assert backend.claim("e", 253_402_300_799_999, "b")
    assert [kept.job for kept in backend.history(name, 5)] == [name]


# -- how long claims are kept


def kept(cache: DictCache) -> int | None:
    return cache.kept[cache.keys(":slot:")[0]]


@pytest.mark.parametrize(
    ("schedule", "options", "seconds"),
    [
        ("10s", {}, 60 + 7_200),
        ("10s", {"max_late": "5m"}, 300 + 7_200),
        ("10s", {"catch_up": "3d"}, 3 * _DAY_S + 7_200),
        ("7d", {}, 7 * _DAY_S + 7_200),
        ("10s", {"catch_up": "90d"}, 90 * _DAY_S + 7_200),
        ("10s", {"catch_up": "800d"}, None),
    ],
)
def test_a_claim_is_kept_for_longer_than_anybody_could_ask_for_its_slot(
    cache: DictCache, backend: CacheBackend, schedule: str, options: dict[str, Any], seconds: int | None
) -> None:
    Scheduler(backend).every("x", schedule, print, **options)
    backend.claim("x", 7 * _DAY_S * 1_000 * 2_900, "a")
    assert kept(cache) == seconds


def test_of_several_schedulers_on_one_backend_the_one_that_asks_longest_counts(
    cache: DictCache, backend: CacheBackend
) -> None:
    for catch_up in ("1h", "2d", None):
        Scheduler(backend).every("x", "10s", print, catch_up=catch_up)
    backend.claim("x", 10_000, "a")
    assert kept(cache) == 2 * _DAY_S + 7_200


def test_the_margin_can_be_set_and_parts_of_a_second_are_not_cut_off(cache: DictCache) -> None:
    backend = CacheBackend(cache, claim_margin="20m")
    Scheduler(backend).every("x", "10s", print, max_late="60001ms")
    backend.claim("x", 10_000, "a")
    assert kept(cache) == 60 + 1_200 + 1


def test_a_job_that_was_never_registered_has_its_claims_kept_for_a_day_more(
    cache: DictCache, backend: CacheBackend
) -> None:
    backend.claim("x", 10_000, "a")
    assert kept(cache) == _DAY_S + 7_200


# -- history


def test_history_is_newest_first_and_keeps_the_newest_records(cache: DictCache, backend: CacheBackend) -> None:
    for number in range(1, 8):
        backend.save_result("x", record(number), 5)
    assert numbers(backend.history("x", 9)) == [7, 6, 5, 4, 3]
    assert numbers(backend.history("x", 2)) == [7, 6]
    assert len(cache.keys(":history:")) == 5 + 2


def test_a_lower_limit_removes_all_that_is_older(cache: DictCache, backend: CacheBackend) -> None:
    for number in range(1, 31):
        backend.save_result("x", record(number), 30)
    backend.save_result("x", record(31), 3)
    assert numbers(backend.history("x", 99)) == [31, 30, 29]
    assert len(cache.keys(":history:")) == 3 + 2


def test_jobs_have_histories_of_their_own(backend: CacheBackend) -> None:
    backend.save_result("x", record(1), 5)
    backend.save_result("y", record(2, job="y"), 5)
    assert (numbers(backend.history("x", 9)), numbers(backend.history("y", 9))) == ([1], [2])


def test_a_job_that_never_ran_has_no_history_and_reading_never_writes(cache: DictCache, backend: CacheBackend) -> None:
    assert backend.history("x", 5) == []
    backend.save_result("x", record(1), 5)
    written = len(cache.script.calls)
    assert numbers(backend.history("x", 5)) == [1]
    assert {verb for verb, *_ in cache.script.calls[written:]} == {"get"}


def test_of_two_that_save_at_once_neither_loses_the_others_record(cache: DictCache, backend: CacheBackend) -> None:
    """
    1. A looks where the newest record is
    2. B saves two
    3. A adds its own, and says last where the newest is
    """
    backend.save_result("x", record(1), 9)
    other = CacheBackend(cache)

    def overtake() -> None:
        for number in (2, 3):
            other.save_result("x", record(number), 9)

    cache.script.next("add", "work", overtake)
    backend.save_result("x", record(4), 9)
    assert sorted(numbers(backend.history("x", 9))) == [1, 2, 3, 4]


def test_a_hint_that_is_behind_hides_no_record(cache: DictCache, backend: CacheBackend) -> None:
    """Whoever wrote last said where the newest record is, and that need not be the one who wrote the newest."""
    for number in (1, 2):
        backend.save_result("x", record(number), 9)
    (hint,) = cache.keys(":newest")
    behind = cache.values[hint]
    for number in (3, 4, 5):
        backend.save_result("x", record(number), 9)
    cache.values[hint] = behind
    assert numbers(backend.history("x", 9)) == [5, 4, 3, 2, 1]
    backend.save_result("x", record(6), 4)
    assert numbers(backend.history("x", 9)) == [6, 5, 4, 3]


def test_a_process_that_was_paused_in_a_save_does_not_hide_what_came_since(
    cache: DictCache, backend: CacheBackend
) -> None:
    """
    1. A adds its record, and is paused as it removes an old one
    2. B saves so many that A's has gone
    3. A goes on: it must not say that the newest record is where its own was
    """
    other = CacheBackend(cache)

    def pause() -> None:
        for number in range(5, 12):
            other.save_result("x", record(number), 3)

    for number in (1, 2, 3):
        backend.save_result("x", record(number), 3)
    cache.script.next("delete", pause)
    backend.save_result("x", record(4), 3)
    assert numbers(backend.history("x", 9)) == [11, 10, 9]


@pytest.mark.parametrize("verb", ["add", "get", "set", "delete"])
@pytest.mark.parametrize("act", ["fail", "lose"])
@pytest.mark.parametrize("at", range(3))
def test_a_save_that_is_repeated_leaves_one_record(
    cache: DictCache, backend: CacheBackend, verb: str, act: str, at: int
) -> None:
    for number in range(1, 5):
        backend.save_result("x", record(number), 3)
    cache.script.next(verb, *["work"] * at, act)
    for _ in range(2):
        with contextlib.suppress(BackendError):
            backend.save_result("x", record(5), 3)
            break
    cache.script.end()
    backend.save_result("x", record(6), 3)
    assert numbers(backend.history("x", 9)) == [6, 5, 4]


def test_a_save_whose_answer_was_lost_and_that_others_overtook_is_shown_once(
    cache: DictCache, backend: CacheBackend
) -> None:
    cache.script.next("add", "work", "lose")
    with pytest.raises(BackendError):
        backend.save_result("x", record(1), 9)
    backend.save_result("x", record(2), 9)
    backend.save_result("x", record(1), 9)
    assert sorted(numbers(backend.history("x", 9))) == [1, 2]


def test_a_run_that_was_run_twice_is_shown_twice(backend: CacheBackend) -> None:
    for instance in ("a", "b"):
        backend.save_result("x", record(1, instance_id=instance), 9)
    assert [kept.instance_id for kept in backend.history("x", 9)] == ["b", "a"]


def test_records_that_the_cache_dropped_are_passed_over(cache: DictCache, backend: CacheBackend) -> None:
    for number in range(1, 251):
        backend.save_result("x", record(number), 200)
    lost = [key for key in cache.keys(":history:") if key.endswith(("0", "1", "2"))]
    for key in lost:
        del cache.values[key]
    left = [number for number in range(250, 50, -1) if number % 10 > 2]
    assert numbers(backend.history("x", 1_000)) == left
    assert numbers(backend.history("x", 100)) == left[:100]
    cache.values[cache.keys(":history:")[-2]] = "{"
    assert len(backend.history("x", 1_000)) == len(left) - 1


@pytest.mark.parametrize("runs", [3, 30])
def test_a_history_whose_hint_was_dropped_goes_on(cache: DictCache, backend: CacheBackend, runs: int) -> None:
    for number in range(1, runs + 1):
        backend.save_result("x", record(number), 5)
    (hint,) = cache.keys(":newest")
    del cache.values[hint]
    for number in range(runs + 1, runs + 8):
        backend.save_result("x", record(number), 5)
    assert numbers(backend.history("x", 9)) == list(range(runs + 7, runs + 2, -1))


def test_a_history_whose_generation_was_dropped_begins_anew(cache: DictCache, backend: CacheBackend) -> None:
    for number in range(1, 4):
        backend.save_result("x", record(number), 5)
    (generation,) = [key for key in cache.keys(":history:") if key.count(":") == 2]
    del cache.values[generation]
    assert backend.history("x", 9) == []
    backend.save_result("x", record(4), 5)
    assert numbers(backend.history("x", 9)) == [4]


def test_what_decides_where_records_are_is_kept_for_ever_and_records_for_over_a_year(
    cache: DictCache, backend: CacheBackend
) -> None:
    backend.save_result("x", record(1), 5)
    assert sorted(cache.kept.values(), key=str) == [400 * _DAY_S, 400 * _DAY_S, None]


def test_forget_removes_the_history_and_leaves_the_claims(cache: DictCache, backend: CacheBackend) -> None:
    for number in range(1, 9):
        backend.claim("x", number * 1_000, "a")
        backend.save_result("x", record(number), 5)
    (hint,) = cache.keys(":newest")
    cache.values[hint] = "1:6"
    backend.forget("x")
    assert cache.keys(":history:") == []
    assert backend.claim("x", 1_000, "b") is False
    backend.forget("x")
    backend.save_result("x", record(9), 5)
    assert numbers(backend.history("x", 9)) == [9]


def test_no_key_is_ever_added_again_where_it_was_removed(cache: DictCache, backend: CacheBackend) -> None:
    """A database cache on PostgreSQL lets several processes win a key that has been there and has expired."""
    removed: set[str] = set()

    class Watched(DictCache):
        def add(self, key: str, value: str, seconds: int | None) -> object:
            assert key not in removed or key.count(":") == 2  # a generation, which never expires
            return super().add(key, value, seconds)

        def delete(self, key: str) -> object:
            removed.add(key)
            return super().delete(key)

    backend = CacheBackend(Watched())
    for round in range(3):
        for number in range(1, 9):
            backend.claim("x", number * 1_000, "a")
            backend.save_result("x", record(number + 10 * round), 3)
        backend.forget("x")
    assert removed


# -- under a scheduler


@pytest.fixture
def two(world: World, cache: DictCache) -> Iterator[list[Any]]:
    """Two schedulers, each with a backend of its own on one cache."""
    schedulers = [world.scheduler(name, CacheBackend(cache)) for name in ("a", "b")]
    for scheduler in schedulers:
        scheduler.every("x", "10s", lambda: None)
    yield schedulers
    cache.script.end()


def test_each_slot_is_run_once(world: World, two: list[Any]) -> None:
    for scheduler in two:
        scheduler.start()
    world.pass_time("1m")
    heard = two[0].heard.words() + two[1].heard.words()
    assert sorted(heard) == ["skip taken"] * 6 + ["start"] * 6 + ["success"] * 6
    assert [each.status for each in two[0].history("x")] == ["success"] * 6


def test_a_cache_that_is_away_is_an_error_and_not_a_slot_that_somebody_has(world: World, cache: DictCache) -> None:
    scheduler = world.scheduler("a", CacheBackend(cache)).every("x", "1m", lambda: None)
    cache.script.down = True
    scheduler.start()
    world.pass_time("65s")
    assert scheduler.heard.words() == ["error"]
    cache.script.down = False
    # A claim that failed is repeated after five seconds at the latest.
    world.pass_time("10s")
    assert scheduler.heard.words() == ["error", "start", "success"]


def test_a_slot_whose_process_dies_is_lost(world: World, cache: DictCache, two: list[Any]) -> None:
    """The process of A ends as it runs a slot: nobody takes it over, and its history knows nothing of it."""
    slot_ms = world.now_ms + 10_000
    assert CacheBackend(cache).claim("x", slot_ms, "of a process that is gone")
    two[1].start()
    world.pass_time("20s")
    assert two[1].heard.words() == ["skip taken", "start", "success"]
    assert [each.slot for each in two[1].history("x")] == [from_ms(slot_ms + 10_000)]


def test_clocks_an_hour_apart_run_each_slot_once(world: World, cache: DictCache) -> None:
    ran: list[int] = []
    for name, skew in (("a", "1h"), ("b", "0s")):
        scheduler = world.scheduler(name, CacheBackend(cache), clock=world.skewed_clock(skew))
        scheduler.every("x", "5m", lambda ctx: ran.append(ctx.slot))
        scheduler.start()
    world.pass_time("2h30m")
    assert len(set(ran)) == len(ran) >= 30


# -- what is refused


@pytest.mark.parametrize("prefix", ["a b", "ä:", "x" * 101, "a\n", None, b"a:"])
def test_a_prefix_that_not_every_cache_can_hold_is_refused(cache: DictCache, prefix: Any) -> None:
    with pytest.raises(ConfigurationError, match="prefix must be at most 100"):
        CacheBackend(cache, prefix=prefix)


@pytest.mark.parametrize(
    ("margin", "why"), [("10m", "at least 15m, not 10m"), ("soon", "a duration"), (-1, "negative")]
)
def test_a_margin_that_is_too_short_or_none_is_refused(cache: DictCache, margin: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        CacheBackend(cache, claim_margin=margin)


@pytest.mark.parametrize("cache", [{}, None, "redis://localhost", object(), CacheBackend])
def test_what_is_no_cache_is_refused_with_what_was_expected(cache: object) -> None:
    with pytest.raises(ConfigurationError, match="takes a cache object of Django's, a pymemcache client, or an Atomic"):
        CacheBackend(cache)


_BACKENDS = "django.core.cache.backends."
_DATABASE = {"BACKEND": f"{_BACKENDS}db.DatabaseCache", "LOCATION": "cron_cache"}


class OwnLocalMemory:
    """Stands for ``class OwnLocalMemory(LocMemCache)`` below: Django is not imported before a test sets it up."""


@pytest.fixture
def django_cache() -> Iterator[Any]:
    """Django's cache of that entry in CACHES."""
    set_up_django()
    from django.core.cache import caches
    from django.test import override_settings

    changes = []

    def cache(**entry: Any) -> Any:
        changes.append(override_settings(CACHES={"default": entry, ALIAS: entry}))
        changes[-1].enable()
        return caches[ALIAS]

    yield cache
    for change in reversed(changes):
        change.disable()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"BACKEND": f"{_BACKENDS}locmem.LocMemCache"}, "LocMemCache is the memory of each process alone"),
        ({"BACKEND": f"{_BACKENDS}dummy.DummyCache"}, "DummyCache keeps nothing"),
        ({"BACKEND": f"{_BACKENDS}filebased.FileBasedCache", "LOCATION": "x"}, "FileBasedCache looks for the file and"),
        ({"BACKEND": f"{_BACKENDS}memcached.PyMemcacheCache", "LOCATION": ["a:1", "b:1"]}, "names 2 servers"),
        ({"BACKEND": f"{_BACKENDS}memcached.PyMemcacheCache", "LOCATION": "a:1;b:1;c:1"}, "names 3 servers"),
        ({"BACKEND": f"{_BACKENDS}redis.RedisCache", "LOCATION": ["redis://a", "redis://b"]}, "names 2 servers"),
        (_DATABASE, "over MAX_ENTRIES, now 300, Django removes live entries"),
        ({**_DATABASE, "OPTIONS": {"MAX_ENTRIES": 9_999}}, "MAX_ENTRIES, now 9999"),
        ({**_DATABASE, "OPTIONS": {"MAX_ENTRIES": 10_000, "CULL_FREQUENCY": 0}}, "a CULL_FREQUENCY that is not 0"),
        ({"BACKEND": f"{_BACKENDS}redis.RedisCache", "LOCATION": "redis://a", "KEY_PREFIX": "k" * 190}, "at most 250"),
        ({"BACKEND": f"{_BACKENDS}redis.RedisCache", "LOCATION": "redis://a", "KEY_PREFIX": "a b"}, "white"),
        (
            {
                "BACKEND": f"{_BACKENDS}redis.RedisCache",
                "LOCATION": "redis://a",
                "KEY_FUNCTION": lambda key, prefix, version: "one",
            },
            "one key of two",
        ),
    ],
)
def test_a_cache_of_djangos_that_cannot_serve_is_refused_and_says_why(
    django_cache: Any, entry: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        CacheBackend(django_cache(**entry))


def test_djangos_default_cache_is_refused_by_its_proxy_too(django_cache: Any) -> None:
    from django.core.cache import cache

    django_cache(BACKEND=f"{_BACKENDS}locmem.LocMemCache")
    with pytest.raises(ConfigurationError, match="cannot use the cache 'default': LocMemCache.*Use a cache on Redis"):
        CacheBackend(cache)


@pytest.mark.parametrize("kind", ["locmem.LocMemCache", "dummy.DummyCache", "filebased.FileBasedCache"])
def test_what_was_derived_from_a_refused_cache_is_refused(
    django_cache: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from django.utils.module_loading import import_string

    own = type("Own", (import_string(_BACKENDS + kind),), {})
    monkeypatch.setattr(sys.modules[__name__], "OwnLocalMemory", own)
    with pytest.raises(ConfigurationError, match=f"{kind.split('.')[1]} "):
        CacheBackend(django_cache(BACKEND=f"{__name__}.OwnLocalMemory", LOCATION="x"))


def test_a_cache_that_another_was_put_in_the_place_of_is_looked_at_again(django_cache: Any) -> None:
    """As a test of the site does: a dummy cache would let everybody win."""
    backend = CacheBackend(django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION="redis://127.0.0.1:1"))
    django_cache(BACKEND=f"{_BACKENDS}dummy.DummyCache")
    with pytest.raises(BackendError, match="DummyCache keeps nothing"):
        backend.claim("x", 1_000, "a")


def test_a_database_router_that_reads_elsewhere_is_refused(django_cache: Any) -> None:
    from django.test import override_settings

    class Replicas:
        def db_for_read(self, model: Any, **hints: Any) -> str:
            return "replica"

        def db_for_write(self, model: Any, **hints: Any) -> str:
            return "primary"

    cache = django_cache(**_DATABASE, OPTIONS={"MAX_ENTRIES": 10_000})
    with (
        override_settings(DATABASE_ROUTERS=[Replicas()]),
        pytest.raises(ConfigurationError, match="must be read where it was written"),
    ):
        CacheBackend(cache)


def test_a_cache_object_that_is_none_of_the_settings_is_refused(django_cache: Any) -> None:
    from django.core.cache.backends.redis import RedisCache

    django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION="redis://a")
    with pytest.raises(ConfigurationError, match="takes a cache of settings.CACHES"):
        CacheBackend(RedisCache("redis://a", {}))


def test_the_database_connection_itself_is_no_cache(django_cache: Any) -> None:
    from django.db import connection

    django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION="redis://a")
    with pytest.raises(ConfigurationError, match=r"takes a cache"):
        CacheBackend(connection)


def test_a_cache_that_is_not_known_here_is_warned_of_and_the_known_are_not(
    django_cache: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django.core.cache.backends.base import BaseCache

    class Unknown(BaseCache):
        def __init__(self, server: str, params: dict[str, Any]) -> None:
            super().__init__(params)

    monkeypatch.setattr(sys.modules[__name__], "OwnLocalMemory", Unknown)
    CacheBackend(django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION="redis://a"))
    CacheBackend(django_cache(BACKEND=f"{_BACKENDS}memcached.PyMemcacheCache", LOCATION="a:1"))
    CacheBackend(django_cache(**_DATABASE, OPTIONS={"MAX_ENTRIES": 10_000}))
    assert caplog.text == ""
    CacheBackend(django_cache(BACKEND=f"{__name__}.OwnLocalMemory"))
    assert "does not know" in caplog.text and "<locals>.Unknown: its add must be atomic" in caplog.text


def test_no_secret_of_a_cache_is_shown(django_cache: Any) -> None:
    backend = CacheBackend(django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION="redis://:s3cret@127.0.0.1:1"))
    with pytest.raises(BackendError) as raised:
        backend.claim("x", 1_000, "a")
    assert "s3cret" not in repr(backend) + str(raised.value)


@pytest.mark.parametrize(
    "location",
    [
        "redis://:s3cret/x@a:1/0",
        "redis://:s3cret#x@a:1/0",
        "redis://:s3cret?x@a:1/0",
        "redis://:12/s3cret@a:1/0",
        "redis://:s3cret[x@a:1/0",
        "redis://:x@a:s3cret/0",
    ],
)
def test_a_location_that_would_show_a_part_of_its_password_is_refused_and_not_repeated(
    django_cache: Any, location: str
) -> None:
    with pytest.raises(ConfigurationError, match="LOCATION cannot be read as a URL.*'/' as %2F") as raised:
        CacheBackend(django_cache(BACKEND=f"{_BACKENDS}redis.RedisCache", LOCATION=location))
    assert "s3cret" not in str(raised.value)
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    ("kind", "location", "names"),
    [
        ("redis.RedisCache", "redis://a", ("socket_connect_timeout", "socket_timeout")),
        ("memcached.PyMemcacheCache", "a:1", ("connect_timeout", "timeout")),
    ],
)
@pytest.mark.parametrize(("told", "limits"), [(None, [1, 2]), (7, [7, 7])])
def test_a_cache_without_time_outs_is_not_waited_for_without_end(
    django_cache: Any, kind: str, location: str, names: tuple[str, str], told: int | None, limits: list[int]
) -> None:
    options = dict.fromkeys(names, told)
    caches = DjangoCaches(django_cache(BACKEND=_BACKENDS + kind, LOCATION=location, OPTIONS=options), "key")
    with caches() as cache:
        assert [cache._cache._options[name] for name in names] == limits  # type: ignore[attr-defined]


def test_pymemcache_clients_of_several_servers_or_with_long_keys_are_refused() -> None:
    from pymemcache.client.base import Client
    from pymemcache.client.hash import HashClient
    from pymemcache.client.retrying import RetryingClient

    two = HashClient([("a", 1), ("b", 1)])
    for cache in (two, RetryingClient(two)):
        with pytest.raises(ConfigurationError, match="one memcached server, not 2"):
            CacheBackend(cache)
    for key_prefix in (b"k" * 200, b"a b"):
        with pytest.raises(ConfigurationError, match="at most 250 bytes"):
            CacheBackend(Client(("a", 1), key_prefix=key_prefix))


def test_neither_framework_nor_driver_is_imported_for_those_who_do_not_use_it() -> None:
    code = (
        "import json, sys; from anarchon import CacheBackend; from anarchon.backends.cache import AtomicCache;"
        "print(json.dumps([name for name in ('django', 'pymemcache', 'redis', 'asgiref') if name in sys.modules]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, timeout=60)
    assert json.loads(answer.stdout) == []


def test_a_record_from_the_cache_is_the_one_that_was_saved(backend: CacheBackend) -> None:
    saved = replace(record(1), error="ValueError: \u03b1\u0000\ud800" + "\x01" * 5_000, status="failed", duration=1.5)
    backend.save_result("x", saved, 5)
    (kept,) = backend.history("x", 1)
    assert (kept.status, kept.duration, kept.slot) == ("failed", 1.5, saved.slot)
    assert kept.error is not None and kept.error.startswith("ValueError: \u03b1") and kept.error.endswith("(cut)")
