"""RedisBackend on a real server: what it keeps, what it says when the server is away, and what a reader may do."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from servers import ClockedRedisBackend, RedisServer

from anarchon.backends.memory import MemoryBackend
from anarchon.backends.redis import KEYS, RedisBackend
from anarchon.durations import from_ms, to_ms
from anarchon.errors import BackendError
from anarchon.records import ClaimReply, ClaimRequest, Mode, Outcome, RunRecord, Verdict, encode_record
from anarchon.testing import ManualClock

JOB = "sync"

pytestmark = pytest.mark.usefixtures("patient_redis")


def request(slot_ms: int, token: str = "token", run_id: str | None = None, **options: Any) -> ClaimRequest:
    values: dict[str, Any] = dict(
        job=JOB,
        slot_ms=slot_ms,
        run_id=run_id or str(slot_ms),
        token=token,
        instance_id="host-1",
        lease_ms=30_000,
        overlap="skip",
        max_attempts=3,
        window_ms=60_000,
        mode=Mode.START,
        trigger="scheduled",
        history_limit=200,
    )
    return ClaimRequest(**{**values, **options})


def record(run_id: str, **facts: Any) -> RunRecord:
    # Attempt and fence are wrong on purpose: they are the store's to say.
    values = (JOB, from_ms(1), run_id, 77, "scheduled", "success", "host-1", 7, from_ms(2), from_ms(3), 0.001)
    return dataclasses.replace(RunRecord(*values), **facts)


@pytest.fixture
def backend(redis_url: str, prefix: str) -> Iterator[RedisBackend]:
    """A backend on the session's server."""
    backend = RedisBackend(redis_url, prefix=prefix)
    yield backend
    backend.close()


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of the session's server."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        yield client


def key(prefix: str, name: str) -> str:
    return f"{prefix}{{{JOB}}}:{name}"


class TestOneRun:
    def test_a_whole_run_is_two_round_trips(self, redis_server: Callable[..., RedisServer]) -> None:
        server = redis_server().start()
        backend = RedisBackend(server.url)
        with redis.Redis.from_url(server.url) as raw:
            for _ in range(2):  # the first time, the server does not know the scripts
                raw.config_resetstat()
                slot_ms = backend.time(JOB)
                assert backend.claim(request(slot_ms)).outcome is Outcome.WON
                assert backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms))) is Verdict.OK
            calls = {name: facts["calls"] for name, facts in raw.info("commandstats").items()}
            assert calls["cmdstat_evalsha"] == 2
            assert "cmdstat_eval" not in calls
        backend.close()

    def test_scripts_forgotten_by_the_server_are_sent_again_with_the_same_token(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        backend = RedisBackend(server.url)
        slot_ms = backend.time(JOB)
        with redis.Redis.from_url(server.url) as raw:
            first = backend.claim(request(slot_ms))
            raw.script_flush()
            again = backend.claim(request(slot_ms))
            assert (again.outcome, again.attempt, again.fence) == (Outcome.WON, 1, first.fence)
            calls: list[Callable[[], object]] = [
                lambda: backend.heartbeat(JOB, str(slot_ms), "token", 30_000),
                lambda: backend.release(JOB, str(slot_ms), "token", record(str(slot_ms)), False),
                lambda: backend.finish(JOB, str(slot_ms), "other", record(str(slot_ms))),
                lambda: backend.save_result(JOB, record(str(slot_ms), attempt=1)),
                lambda: backend.forget(JOB),
            ]
            answers = []
            for call in calls:
                raw.script_flush()
                answers.append(call())
        assert answers == [Verdict.OK, Verdict.OK, Verdict.LOST, None, None]
        backend.close()

    def test_forget_leaves_no_key(self, backend: RedisBackend, raw: redis.Redis, prefix: str) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms)))
        assert sorted(raw.scan_iter(f"{prefix}*")) == sorted(key(prefix, name).encode() for name in KEYS)
        backend.forget(JOB)
        assert list(raw.scan_iter(f"{prefix}*")) == []

    def test_nothing_that_is_kept_has_a_time_to_live(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms - 1))
        backend.finish(JOB, str(slot_ms - 1), "token", record(str(slot_ms - 1)))
        assert backend.claim(request(slot_ms)).outcome is Outcome.WON
        assert {raw.ttl(found) for found in raw.scan_iter(f"{prefix}*")} == {-1}


class TestWhatIsKept:
    def test_a_jobs_footprint_stays_what_it_is_over_thousands_of_runs(
        self, redis_clocked_backend: ClockedRedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        backend, sizes = redis_clocked_backend, []
        slot_ms = backend.now_ms
        for count in range(1, 3_001):
            slot_ms += 1_000
            backend.now_ms = slot_ms
            token = f"token-{count}"
            assert backend.claim(request(slot_ms, token, history_limit=50)).outcome is Outcome.WON
            assert backend.finish(JOB, str(slot_ms), token, record(str(slot_ms))) is Verdict.OK
            if count % 1_000 == 0:
                sizes.append(
                    [raw.hlen(key(prefix, "ended")), raw.zcard(key(prefix, "expiry")), raw.hlen(key(prefix, "state"))]
                )
                assert len(list(raw.scan_iter(f"{key(prefix, '')}*"))) == len(KEYS)
                assert raw.zcard(key(prefix, "history")) == raw.hlen(key(prefix, "records")) == 50
        # A run a second, each remembered for ten minutes; and the scalars of a job with no run going on.
        assert sizes == [[600, 600, 4]] * 3

    def test_a_low_history_limit_cuts_a_long_history_in_bounded_steps(
        self, redis_clocked_backend: ClockedRedisBackend
    ) -> None:
        backend = redis_clocked_backend
        now_ms = backend.now_ms
        backend.claim(request(now_ms, history_limit=2_500))
        for fence in range(2_500):
            backend.save_result(JOB, record("run", attempt=fence, fence=fence))
        backend.finish(JOB, str(now_ms), "token", record(str(now_ms)))
        lengths = []
        for count in range(1, 4):
            backend.now_ms = now_ms + count
            backend.claim(request(now_ms + count, history_limit=3))
            backend.finish(JOB, str(now_ms + count), "token", record(str(now_ms + count)))
            lengths.append(len(backend.history(JOB, 9_999)))
        assert lengths == [1_501, 502, 3]

    def test_a_record_that_cannot_be_read_is_passed_over_and_not_deleted(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        for number in range(1, 6):
            backend.save_result(JOB, record("run", attempt=number, fence=number))
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        for number in range(1, 6):
            backend.save_result(JOB, record("run", attempt=number, fence=number))
        raw.hset(key(prefix, "records"), "5:run", b"\xff\xfe not JSON")
        raw.hset(key(prefix, "records"), "3:run", '{"attempt": "many"}')
        raw.hdel(key(prefix, "records"), "2:run")
        # Passed over also where only some are asked for: older ones come in their place.
        assert [found.attempt for found in backend.history(JOB, 2)] == [4, 1]
        assert [found.attempt for found in backend.history(JOB, 100)] == [4, 1]
        assert raw.hget(key(prefix, "records"), "5:run") == b"\xff\xfe not JSON"
        assert raw.zcard(key(prefix, "history")) == 5

    @pytest.mark.parametrize(
        ("name", "text", "named"),
        [
            (b"run:odd", b"\xff", r"run 'odd': '\\xff'"),
            (b"run:odd", b"7", "run 'odd': '7'"),
            (b"run:odd", b"{}", "slot_ms of run 'odd': missing"),
            (b"run:odd", b'{"slot_ms": nan}', "slot_ms of run 'odd': "),
            (b"run:odd", b'{"slot_ms": null}', "slot_ms of run 'odd': None"),
            (b"run:odd", b'{"slot_ms": {"a": [1]}}', "slot_ms of run 'odd': {'a': [1]}"),
            (b"run:odd", b'{"slot_ms": "' + b"x" * 10_000 + b'"}', "slot_ms of run 'odd': '\"" + "x" * 70),
            (b"run:\xff", b"{}", r"run '\\xff': '{}'"),
            (b"fence", b"0x10", "fence: '0x10'"),
            (b"fence", b" 5", "fence: ' 5'"),
            (b"fence", b"", "fence: ''"),
            (b"ends", b"x", "ends: 'x'"),
            (b"latest", b"inf", "latest: 'inf'"),
        ],
    )
    def test_what_only_a_hash_can_have_is_named_and_passed_over_by_readers(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str, name: bytes, text: bytes, named: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        raw.hset(key(prefix, "state"), name, text)
        with pytest.raises(BackendError, match=re.escape(f"job '{JOB}' is damaged ({named}")):
            backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms)))
        assert [run.run_id for run in backend.active(JOB)] == [str(slot_ms)]
        assert raw.hget(key(prefix, "state"), name) == text

    @pytest.mark.parametrize(
        ("field", "text", "named"),
        [
            ("token", b"5", "5"),
            ("instance_id", b"[]", "{}"),  # to Lua the two are one
            ("instance_id", b'"\xe9"', r"""'"\\xe9"'"""),
            ("held_before", b"[1]", "[1]"),
            ("held_before", b'{"a": "b"}', "{'a': 'b'}"),
            ("latest_before_ms", b"true", "True"),
            ("released", b"null", "None"),
        ],
    )
    def test_a_field_of_another_kind_is_named_and_passed_over_by_readers(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str, field: str, text: bytes, named: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        kept: bytes = raw.hget(key(prefix, "state"), f"run:{slot_ms}") or b""
        changed = json.dumps(json.loads(kept) | {field: "HERE"}).encode().replace(b'"HERE"', text)
        raw.hset(key(prefix, "state"), f"run:{slot_ms}", changed)
        with pytest.raises(BackendError, match=re.escape(f"damaged ({field} of run '{slot_ms}': {named})")):
            backend.heartbeat(JOB, str(slot_ms), "token", 30_000)
        assert raw.hget(key(prefix, "state"), f"run:{slot_ms}") == changed
        assert backend.active(JOB) == []

    def test_a_damaged_first_fence_is_named_though_no_reader_needs_it(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        run = json.loads(raw.hget(key(prefix, "state"), f"run:{slot_ms}") or "")
        raw.hset(key(prefix, "state"), f"run:{slot_ms}", json.dumps(run | {"first_fence": "x"}))
        with pytest.raises(BackendError, match=re.escape(f"damaged (first_fence of run '{slot_ms}': 'x')")):
            backend.heartbeat(JOB, str(slot_ms), "token", 30_000)
        assert len(backend.active(JOB)) == 1

    @pytest.mark.parametrize("field", ["fence", "history_limit"])
    def test_a_job_that_has_lost_a_field_is_no_new_job(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str, field: str
    ) -> None:
        backend.claim(request(backend.time(JOB)))
        raw.hdel(key(prefix, "state"), field)
        with pytest.raises(BackendError, match=re.escape(f"damaged ({field}: missing)")):
            backend.claim(request(backend.time(JOB), "other"))

    def test_a_strange_entry_among_the_ends_does_not_cost_a_run_its_record(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        raw.zadd(key(prefix, "expiry"), {"strange": 1})
        assert backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms))) is Verdict.OK
        assert len(backend.history(JOB, 10)) == 1
        assert raw.zscore(key(prefix, "expiry"), "strange") == 1

    def test_an_id_of_any_text_is_no_damage(self, backend: RedisBackend) -> None:
        slot_ms = backend.time(JOB)
        for number, text in enumerate(("\x00", "h\u00f4te-\u20ac-\U0001f600", "\ud800")):
            options = dict(instance_id=text, trigger="manual", overlap="allow")
            assert backend.claim(request(slot_ms, f"token-{text}", f"run-{text}", **options)).outcome is Outcome.WON
            assert len(backend.active(JOB)) == number + 1

    def test_what_a_newer_version_wrote_besides_is_passed_over_and_kept(
        self, backend: RedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        slot_ms = backend.time(JOB)
        backend.claim(request(slot_ms))
        field = f"run:{slot_ms}"
        run = json.loads(raw.hget(key(prefix, "state"), field) or "")
        raw.hset(key(prefix, "state"), mapping={field: json.dumps({**run, "mood": "fine"}), "mood": "fine"})
        assert backend.heartbeat(JOB, str(slot_ms), "token", 30_000) is Verdict.OK
        assert [active.attempt for active in backend.active(JOB)] == [1]
        assert json.loads(raw.hget(key(prefix, "state"), field) or "")["mood"] == "fine"
        newer = json.loads(encode_record(record("newer", attempt=1))) | {"mood": "fine"}
        backend.save_result(JOB, record("newer", attempt=1))
        raw.hset(key(prefix, "records"), "1:newer", json.dumps(newer))
        assert backend.history(JOB, 1) == [record("newer", attempt=1)]

    @pytest.mark.parametrize(
        "error",
        [
            'E: "fence":5,"attempt":9,{"fence":5',
            'E: \\"fence\\":5',
            "NUL \x00, a lone surrogate \ud800, an astral \U0001f600, a control \x1b, all of them odd",
            "\u20ac" * 10_000,
            "%1 %0 %%",
        ],
    )
    def test_an_error_of_any_text_is_kept_with_the_stores_attempt_and_fence(
        self, backend: RedisBackend, error: str
    ) -> None:
        slot_ms = backend.time(JOB)
        granted = backend.claim(request(slot_ms))
        backend.release(JOB, str(slot_ms), "token", record(str(slot_ms), error=error), counts=True)
        (found,) = backend.history(JOB, 10)
        assert (found.attempt, found.fence) == (1, granted.fence)
        memory = MemoryBackend()
        memory.save_result(JOB, record(str(slot_ms), error=error))
        assert found.error == memory.history(JOB, 1)[0].error
        assert found.error is not None and len(found.error.encode()) <= 4096

    def test_names_of_any_characters_come_back_as_they_were(self, backend: RedisBackend) -> None:
        odd = "\u00e9:\U0001f600:\x00:\ud800:\"'\\:-"
        slot_ms = backend.time(odd)
        for number, token in enumerate((odd, "other")):
            asked = request(slot_ms, token, run_id=odd, job=odd, instance_id=odd, lease_ms=1, overlap="allow")
            while (granted := backend.claim(asked)).outcome is Outcome.RUNNING:
                assert granted.holder is not None and granted.holder.instance_id == granted.holder.run_id == odd
            assert (granted.outcome, granted.attempt) == (Outcome.WON, number + 1)
        (lost,) = backend.history(odd, 10)
        assert (lost.status, lost.job, lost.run_id, lost.instance_id) == ("lost", odd, odd, odd)
        (active,) = backend.active(odd)
        assert (active.run_id, active.instance_id) == (odd, odd)

    def test_a_lost_record_has_the_instants_to_the_millisecond(
        self, redis_clocked_backend: ClockedRedisBackend, raw: redis.Redis, prefix: str
    ) -> None:
        backend = redis_clocked_backend
        slot_ms = backend.now_ms = 1_700_000_000_123
        first = backend.claim(request(slot_ms))
        backend.now_ms = slot_ms + 86_400_001
        backend.claim(request(slot_ms, "other"))
        (lost,) = backend.history(JOB, 1)
        assert (lost.status, lost.fence) == ("lost", first.fence)
        assert [to_ms(each) for each in (lost.slot, lost.started_at, lost.finished_at)] == [
            slot_ms,
            slot_ms,
            slot_ms + 86_400_001,
        ]
        assert raw.hget(key(prefix, "records"), f"1:{slot_ms}") == encode_record(lost).encode()


class TestAway:
    def test_a_server_that_never_answers_costs_no_more_than_the_bound(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        backend = RedisBackend(f"{server.url}?socket_connect_timeout=100&socket_timeout=100")
        backend.bound_calls(600)
        answer(lambda: backend.time(JOB))
        server.pause()
        for _ in range(2):  # on a connection that stands, and on a new one
            started = time.monotonic()
            with pytest.raises(BackendError, match="could not reach Redis at 127.0.0.1:"):
                backend.claim(request(1))
            assert time.monotonic() - started < 50
        server.resume()
        slot_ms = answer(lambda: backend.time(JOB))
        assert answer(lambda: backend.claim(request(slot_ms))).outcome is Outcome.WON
        backend.close()

    def test_a_server_that_was_away_is_used_again_by_itself_and_has_kept_everything(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        backend = RedisBackend(server.url)
        slot_ms = backend.time(JOB)
        granted = backend.claim(request(slot_ms))
        server.stop()
        for call in (
            lambda: backend.claim(request(slot_ms)),
            lambda: backend.heartbeat(JOB, str(slot_ms), "token", 30_000),
            lambda: backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms))),
            lambda: backend.release(JOB, str(slot_ms), "token", record(str(slot_ms)), True),
            lambda: backend.save_result(JOB, record(str(slot_ms))),
            lambda: backend.active(JOB),
            lambda: backend.history(JOB, 1),
            lambda: backend.time(JOB),
            lambda: backend.forget(JOB),
        ):
            with pytest.raises(BackendError, match=f"could not reach Redis at 127.0.0.1:{server.port}: "):
                call()
        server.start()
        again = backend.claim(request(slot_ms))
        assert (again.outcome, again.fence) == (Outcome.WON, granted.fence)
        assert backend.finish(JOB, str(slot_ms), "token", record(str(slot_ms))) is Verdict.OK
        backend.close()

    def test_a_call_whose_answer_was_lost_is_not_sent_a_second_time(self) -> None:
        with fake_server(b"") as (port, heard):
            backend = RedisBackend(f"redis://127.0.0.1:{port}?socket_timeout=0.2")
            with pytest.raises(BackendError):
                backend.claim(request(1))
            backend.close()
            # On a busy machine it has not been heard when it is given up.
            deadline = time.monotonic() + 60
            while not heard and time.monotonic() < deadline:
                time.sleep(0.01)
        assert b"".join(heard).count(b"EVALSHA") == 1

    def test_a_new_connection_says_nothing_but_what_it_must(self) -> None:
        with fake_server(b"+OK\r\n") as (port, heard):
            backend = RedisBackend(f"redis://127.0.0.1:{port}?socket_timeout=60")
            with pytest.raises(BackendError, match="gave an answer that cannot be read"):
                backend.history(JOB, 1)
            backend.close()
        assert b"".join(heard).split(b"\r\n")[:3] == [b"*4", b"$9", b"ZREVRANGE"]

    @pytest.mark.parametrize(
        "answer", [b"+hello\r\n", b"!!!\r\n", b"*-1\r\n", b"*2\r\n:1\r\n", b"-ODD thing\r\n", b"$3\r\nabc\r\n"]
    )
    def test_an_answer_of_something_else_is_a_backend_error(self, answer: bytes) -> None:
        with fake_server(answer) as (port, _):
            backend = RedisBackend(f"redis://127.0.0.1:{port}?socket_timeout=0.2")
            for call in (
                lambda: backend.claim(request(1)),
                lambda: backend.active(JOB),
                lambda: backend.history(JOB, 1),
            ):
                with pytest.raises(BackendError, match=f"127.0.0.1:{port}"):
                    call()
            backend.close()

    def test_a_server_that_repeats_the_password_in_an_error_does_not_make_us_tell_it(self) -> None:
        with fake_server(b"-ERR unknown command `AUTH`, with args beginning with: `hush-hush`\r\n") as (port, _):
            backend = RedisBackend(f"redis://:hush-hush@127.0.0.1:{port}?socket_timeout=60")
            with pytest.raises(BackendError, match=r"\*\*\*") as caught:
                backend.time(JOB)
            backend.close()
        assert "hush" not in "".join(traceback.format_exception(caught.value))
        assert caught.value.__cause__ is not None
        assert caught.value.__context__ is None

    def test_a_store_without_room_refuses_the_whole_call(self, redis_server: Callable[..., RedisServer]) -> None:
        server = redis_server(maxmemory_policy="noeviction").start()
        backend = RedisBackend(server.url)
        slot_ms = backend.time(JOB)
        assert backend.claim(request(slot_ms - 1, overlap="allow")).outcome is Outcome.WON
        with redis.Redis.from_url(server.url) as raw:
            before = {found: raw.dump(found) for found in raw.scan_iter("*")}
            raw.config_set("maxmemory", 1)
            with pytest.raises(BackendError, match="refused the call"):
                backend.claim(request(slot_ms, overlap="allow"))
            with pytest.raises(BackendError, match="refused the call"):
                backend.heartbeat(JOB, str(slot_ms - 1), "token", 30_000)
            assert {found: raw.dump(found) for found in raw.scan_iter("*")} == before
            raw.config_set("maxmemory", 0)
        assert backend.claim(request(slot_ms, overlap="allow")).outcome is Outcome.WON
        backend.close()

    def test_more_threads_at_once_than_a_default_pool_would_serve_all_get_their_answer(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        backend = RedisBackend(f"{server.url}?socket_timeout=60")  # how long they wait is not the matter here
        backend.time(JOB)
        server.pause()
        answers: list[object] = []
        together = threading.Barrier(131)

        def ask() -> None:
            together.wait(30)
            try:
                answers.append(backend.time(JOB))
            except BackendError as error:
                answers.append(error)

        threads = [threading.Thread(target=ask) for _ in range(130)]
        for thread in threads:
            thread.start()
        together.wait(30)
        server.resume()
        for thread in threads:
            thread.join(30)
        backend.close()
        assert [type(answer) for answer in answers] == [int] * 130


class TestReader:
    def test_an_account_that_may_only_read_answers_history_active_and_time(
        self, redis_server: Callable[..., RedisServer]
    ) -> None:
        server = redis_server().start()
        writer = RedisBackend(server.url)
        slot_ms = writer.time(JOB)
        writer.claim(request(slot_ms))
        writer.save_result(JOB, record("earlier"))
        with redis.Redis.from_url(server.url) as raw:
            raw.execute_command(
                "ACL", "SETUSER", "reader", "reset", "on", ">hush-hush", "~*", "-@all", "+@read", "+time"
            )
        reader = RedisBackend(f"redis://reader:hush-hush@127.0.0.1:{server.port}")
        assert abs(reader.time(JOB) - slot_ms) < 60_000
        assert [run.run_id for run in reader.active(JOB)] == [str(slot_ms)]
        assert reader.history(JOB, 10) == writer.history(JOB, 10) != []
        assert reader.history("unknown", 10) == reader.active("unknown") == []
        with pytest.raises(BackendError, match="refused the call") as caught:
            reader.claim(request(slot_ms))
        assert "hush" not in "".join(traceback.format_exception(caught.value))
        reader.close()
        writer.close()

    def test_a_wrong_password_is_told_without_it(self, redis_server: Callable[..., RedisServer]) -> None:
        server = redis_server(requirepass="right").start()
        backend = RedisBackend(f"redis://:hush-hush@127.0.0.1:{server.port}/3")
        with pytest.raises(BackendError, match=f"could not reach Redis at 127.0.0.1:{server.port}") as caught:
            backend.time(JOB)
        assert "hush" not in "".join(traceback.format_exception(caught.value))
        backend.close()


def test_every_answer_that_a_head_names_is_given(redis_clocked_backend: ClockedRedisBackend) -> None:
    backend = redis_clocked_backend
    start_ms = backend.now_ms
    replies: list[ClaimReply] = []

    def claim(slot_ms: int, token: str, **options: Any) -> None:
        replies.append(backend.claim(request(slot_ms, token, **options)))

    claim(start_ms + 1, "a")
    claim(start_ms, "a")
    claim(start_ms, "b")
    claim(start_ms - 1, "b")
    backend.finish(JOB, str(start_ms), "a", record(str(start_ms)))
    claim(start_ms, "b")
    claim(start_ms - 60_001, "b", job="late")
    backend.now_ms += 2
    claim(start_ms + 1, "c")
    claim(start_ms + 2, "d")
    backend.now_ms += 60_000
    claim(start_ms + 60_002, "e", overlap="allow")
    claim(start_ms + 1, "f", overlap="allow")
    backend.now_ms += 60_000
    claim(start_ms + 60_002, "g", max_attempts=1)
    told = [(reply.outcome.value, reply.done.value if reply.done else None) for reply in replies]
    assert told == [
        ("none", None),
        ("won", None),
        ("running", None),
        ("done", "passed"),
        ("done", "finished"),
        ("late", None),
        ("won", None),
        ("overlap", None),
        ("won", None),
        ("done", "finished"),
        ("done", "exhausted"),
    ]


# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_random_walk_gets_the_answers_that_memory_gives(redis_url: str, prefix: str, seed: int) -> None:
    chance, clock, calls = random.Random(seed), ManualClock(), Calls()
    memory, backend = MemoryBackend(clock), ClockedRedisBackend(redis_url, prefix=prefix, now_ms=clock.now_ms())
    for step in range(300):
        if chance.random() < 0.5:
            clock.step_wall(chance.choice([0.001, 0.5, 1, 10, 10, 60, 700, 3600, -0.5, -60, -3600]))
            backend.now_ms = clock.now_ms()
        call = calls.next(chance, clock.now_ms(), memory)
        assert call(backend) == call(memory), (seed, step)
        assert backend.active(JOB) == memory.active(JOB), (seed, step)
        assert backend.history(JOB, 100) == memory.history(JOB, 100), (seed, step)
    backend.close()


class Calls:
    """Calls as a careless fleet would make them: repeats, mixed options, manual runs, tokens of others."""

    def __init__(self) -> None:
        self._claims: list[ClaimRequest] = []

    def next(self, chance: random.Random, now_ms: int, memory: MemoryBackend) -> Callable[[Any], object]:
        kind = chance.choice(
            ["claim"] * 6 + ["again"] * 2 + ["heartbeat"] * 3 + ["finish"] * 3 + ["release"] * 2 + ["save"]
        )
        if not self._claims or kind == "claim":
            self._claims.append(self._claim(chance, now_ms))
            return lambda store: store.claim(self._claims[-1])
        asked = chance.choice(self._claims[-6:])
        told = record(asked.run_id, error=chance.choice([None, 'E: "fence":5']), slot=from_ms(asked.slot_ms))
        lease_ms, counts = chance.choice([1_000, 30_000]), chance.random() < 0.5
        saved = memory.history(JOB, 100)
        if kind == "again":
            return lambda store: store.claim(asked)
        if kind == "heartbeat":
            return lambda store: store.heartbeat(JOB, asked.run_id, asked.token, lease_ms)
        if kind == "finish":
            return lambda store: store.finish(JOB, asked.run_id, asked.token, told)
        if kind == "release" or not saved:
            return lambda store: store.release(JOB, asked.run_id, asked.token, told, counts)
        real = dataclasses.replace(chance.choice(saved), status="success", lease_lost=True)
        return lambda store: store.save_result(JOB, real)

    def _claim(self, chance: random.Random, now_ms: int) -> ClaimRequest:
        manual, number = chance.random() < 0.15, len(self._claims)
        slot_ms = now_ms // 10_000 * 10_000 + chance.choice([-20_000, -10_000, 0, 0, 0, 10_000])
        return request(
            now_ms - chance.choice([0, 0, 3_000, 400_000]) if manual else slot_ms,
            f"token-{number if chance.random() < 0.9 else chance.randrange(number + 1)}",
            run_id=f"manual-{chance.randrange(number + 1)}" if manual else None,
            instance_id=f"host-{chance.randrange(3)}",
            lease_ms=chance.choice([1_000, 3_000, 30_000]),
            overlap=chance.choice(["skip", "skip", "allow"]),
            max_attempts=chance.choice([1, 2, 3]),
            window_ms=chance.choice([1_000, 60_000, 3_600_000]),
            mode=chance.choice([Mode.START, Mode.START, Mode.TAKEOVER]),
            trigger="manual" if manual else chance.choice(["scheduled", "takeover", "catch-up"]),
            history_limit=chance.choice([1, 2, 5, 200]),
        )


def answer(call: Callable[[], Any]) -> Any:
    """The answer to a call of which the bound is so tight that a busy machine may need several tries."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except BackendError:
            assert time.monotonic() < deadline


@contextmanager
def fake_server(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Something on a port that gives the same answer to whatever it hears, or none; and what it has heard."""
    heard: list[bytes] = []

    def serve(client: socket.socket) -> None:
        with client:
            while said := client.recv(65_536):
                heard.append(said)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        accepting.join(10)
    for thread in threads:
        thread.join(10)
