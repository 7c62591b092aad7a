"""RedisBackend as far as it goes without a server: URLs and secrets, options, time-outs, and the scripts' heads."""

from __future__ import annotations

import dataclasses
import re
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff, ExponentialBackoff, NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from anarchon import open_backend
from anarchon.backends.redis import KEYS, RedisBackend
from anarchon.backends.redis_replicas import _wait_ms
from anarchon.backends.redis_scripts import VERBS, lua
from anarchon.backends.redis_url import read_redis_url
from anarchon.durations import from_ms
from anarchon.errors import BackendError, ConfigurationError
from anarchon.records import ClaimRequest, Mode, Outcome, RunRecord, Verdict, encode_record

REQUEST = ClaimRequest(
    job="sync",
    slot_ms=1_700_000_000_001,
    run_id="run",
    token="token",
    instance_id="instance",
    lease_ms=30_002,
    overlap="skip",
    max_attempts=3,
    window_ms=60_003,
    mode=Mode.START,
    trigger="scheduled",
    history_limit=204,
)
RECORD = RunRecord(
    "sync", from_ms(1), "run", 7, "scheduled", "success", "instance", 77, from_ms(2), from_ms(3), duration=0.001
)


def told_by(error: BaseException) -> str:
    """Everything that a log could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


class TestUrl:
    @pytest.mark.parametrize(
        ("url", "text"),
        [
            ("redis://", "redis://localhost:6379/0"),
            ("redis://cache", "redis://cache:6379/0"),
            ("redis://cache:7000/3", "redis://cache:7000/3"),
            ("redis://user:hush@cache/1", "redis://cache:6379/1"),
            ("redis://:hush@[::1]:7000", "redis://[::1]:7000/0"),
            ("redis://cache/1?db=2", "redis://cache:6379/2"),
            ("rediss://cache?ssl_cert_reqs=none", "rediss://cache:6379/0"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
            ("unix://user:hush@/run/redis.sock?db=4", "unix:///run/redis.sock?db=4"),
            ("unix:///run/redis.sock?password=hush", "unix:///run/redis.sock?db=0"),
        ],
    )
    def test_a_backend_shows_where_its_server_is_and_never_who_logs_in(self, url: str, text: str) -> None:
        assert repr(RedisBackend(url)) == f"<RedisBackend {text} prefix='anarchon:'>"

    @pytest.mark.parametrize("password", ["p@ss", "p/ss", "p#ss", "p?ss", "p:ss", "p%ss", "p ss", "pässwörd", "["])
    def test_an_escaped_password_is_read_back_whole(self, password: str) -> None:
        from urllib.parse import quote

        address = read_redis_url(f"redis://me:{quote(password, safe='')}@cache:7000/3")
        assert (address.options["username"], address.options["password"]) == ("me", password)
        assert address.options["host"] == "cache"

    # The part of the password after the odd character is what a careless message would show.
    @pytest.mark.parametrize(
        "password", ["lift/hush", "lift#hush", "lift?hush", "9083/hush", "9083#7642", "9083?7642=5311", "[hush"]
    )
    @pytest.mark.parametrize("scheme", ["redis", "rediss"])
    def test_a_password_that_breaks_the_url_is_refused_and_not_repeated(self, scheme: str, password: str) -> None:
        for user in ("", "user"):
            with pytest.raises(ConfigurationError) as caught:
                RedisBackend(f"{scheme}://{user}:{password}@cache:6379/0")
            told = told_by(caught.value)
            assert not any(part in told for part in re.split(r"[/#?=\[]", password) if len(part) > 1)
            assert "%23" in told

    @pytest.mark.parametrize(
        ("url", "wrong"),
        [
            (None, "exactly one"),
            (7, "must be text"),
            ("cache:6379", "must begin with"),
            ("http://hush@cache", "must begin with"),
            ("redis://hush:x", "port"),
            ("redis://cache:0", "port"),
            ("redis://cache:99999", "port"),
            ("redis://cache:", "port"),
            ("redis://cache/hush", "database"),
            ("redis://cache/1/hush", "database"),
            ("redis://cache/" + "9" * 5000, "database"),
            ("redis://cache?hush=1", "not known"),
            ("redis://cache?db=1&db=2", "twice"),
            ("redis://cache?db=hush", "db must be"),
            ("redis://cache?hush", "not known"),
            ("redis://cache?socket_timeout=0", "socket_timeout must be"),
            ("redis://cache?socket_timeout=inf", "socket_timeout must be"),
            ("redis://cache?retry_on_timeout=true", "retries are anarchon's own"),
            ("redis://cache?ssl_certfile=hush", "not known"),
            ("redis://ca che", "white space"),
            ("redis://cache\nhush", "white space"),
            ("redis://ca%0Ache", "white space"),
            ("redis://[::1", "cannot be read"),
            ("rediss://cache?ssl_cert_reqs=sometimes", "ssl_cert_reqs must be none, optional or required"),
            ("unix://run/redis.sock", "three slashes"),
            ("unix://", "three slashes"),
        ],
    )
    def test_a_wrong_url_is_told_by_what_is_wrong_with_it_alone(self, url: Any, wrong: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            RedisBackend(url)
        assert wrong in str(caught.value)
        assert "hush" not in told_by(caught.value)

    def test_open_backend_makes_one_with_its_prefix(self) -> None:
        assert repr(open_backend("redis://cache", prefix="p:")) == "<RedisBackend redis://cache:6379/0 prefix='p:'>"


class TestOptions:
    def test_a_url_and_a_client_are_not_taken_together(self) -> None:
        with pytest.raises(ConfigurationError, match="exactly one"):
            RedisBackend("redis://cache", client=redis.Redis())

    @pytest.mark.parametrize("client", [object(), "redis://cache", redis.asyncio.Redis(), redis.ConnectionPool()])
    def test_what_is_no_redis_client_is_refused_with_its_type(self, client: object) -> None:
        with pytest.raises(ConfigurationError, match=type(client).__name__):
            RedisBackend(client=client)

    @pytest.mark.parametrize(
        ("prefix", "wrong"),
        [
            (b"p:", "text"),
            (None, "text"),
            ("a{b", "braces"),
            ("a}b", "braces"),
            ("a\nb", "control"),
            ("x" * 201, "200"),
        ],
    )
    def test_a_wrong_prefix_is_refused(self, prefix: Any, wrong: str) -> None:
        with pytest.raises(ConfigurationError, match=wrong):
            RedisBackend("redis://cache", prefix=prefix)

    def test_a_prefix_of_200_characters_or_none_is_taken(self) -> None:
        for prefix in ("", "é" * 200, "a b:"):
            RedisBackend("redis://cache", prefix=prefix)

    @pytest.mark.parametrize("wrong", [-1, 101, 500, True, 1.0, "1", [1], 10**30])
    def test_what_is_no_number_of_replicas_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match="wait_replicas must be a number of replicas, at most 100"):
            RedisBackend("redis://cache", wait_replicas=wrong)

    @pytest.mark.parametrize("wrong", ["-1", "101", "1.0", "", "yes"])
    def test_a_url_that_gives_no_number_of_replicas_is_refused(self, wrong: str) -> None:
        with pytest.raises(ConfigurationError, match="option wait_replicas must be a number of replicas, at most 100"):
            RedisBackend(f"redis://cache?wait_replicas={wrong}")

    def test_wait_replicas_may_stand_in_the_url_as_other_options_do(self) -> None:
        told = "<RedisBackend redis://cache:6379/0 prefix='anarchon:' wait_replicas=2>"
        assert repr(RedisBackend("redis://cache", wait_replicas=2)) == told
        assert repr(open_backend("redis://cache?wait_replicas=2")) == told
        for none in (RedisBackend("redis://cache?wait_replicas=0"), RedisBackend("redis://cache", wait_replicas=0)):
            assert "wait_replicas" not in repr(none)

    def test_wait_replicas_is_not_given_twice(self) -> None:
        with pytest.raises(ConfigurationError, match="given twice"):
            RedisBackend("redis://cache?wait_replicas=1", wait_replicas=1)

    def test_the_package_is_imported_without_the_driver(self) -> None:
        code = "import sys, anarchon; sys.exit('redis' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestOwnClient:
    def made(self, url: str, limit_ms: int | None = None) -> Any:
        backend = RedisBackend(url)
        if limit_ms is not None:
            backend.bound_calls(limit_ms)
        pool = backend._source._make().connection_pool
        return pool.connection_class(**pool.connection_kwargs)

    def test_repeats_are_off_and_every_wait_has_its_time_out(self) -> None:
        connection = self.made("redis://cache")
        assert (connection.socket_connect_timeout, connection.socket_timeout) == (1, 2)
        assert connection.retry._retries == 0
        assert connection.protocol == 2
        assert connection.health_check_interval == 0

    def test_its_waits_together_fit_the_bound_with_all_that_a_new_connection_says(self) -> None:
        # EVALSHA and EVAL, each: its turn; connect; an answer each to AUTH, SELECT and CLIENT SETNAME; its own, twice.
        connection = self.made("redis://:hush@cache/1?client_name=me", limit_ms=1_000)
        assert 2 * (connection.socket_connect_timeout + 5 * connection.socket_timeout) == pytest.approx(0.9)

    def test_its_waits_fit_the_bound_with_a_second_connection_that_waits_for_replicas(self) -> None:
        # EVALSHA, EVAL, and EVALSHA with WAIT, each: its turn; connect; an answer to AUTH; its own, twice.
        connection = self.made("redis://:hush@cache?wait_replicas=1", limit_ms=1_000)
        assert 3 * (connection.socket_connect_timeout + 3 * connection.socket_timeout) == pytest.approx(0.85)

    def test_a_bound_lowers_time_outs_and_never_raises_them(self) -> None:
        backend = RedisBackend("redis://cache")
        for limit_ms in (1_000, 60_000):
            backend.bound_calls(limit_ms)
        assert backend._source.longest_call_s == pytest.approx(1)  # type: ignore[attr-defined]
        assert self.made("redis://cache?socket_timeout=0.25", limit_ms=60_000).socket_timeout == 0.25

    def test_the_addresses_of_a_name_share_the_time_to_connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with full_backlog() as port:
            found = socket.getaddrinfo("127.0.0.1", port, 0, socket.SOCK_STREAM)
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found * 4)
            connection = self.made(f"redis://cache:{port}?socket_connect_timeout=0.4")
            with pytest.raises(redis.TimeoutError):
                connection.connect()
            assert connection.socket_connect_timeout == pytest.approx(0.1)

    def test_a_tls_url_makes_tls_connections(self) -> None:
        connection = self.made("rediss://cache?ssl_cert_reqs=none&ssl_check_hostname=false")
        assert isinstance(connection, redis.SSLConnection)
        assert not connection.check_hostname

    def test_an_unreachable_server_is_told_with_host_and_port_and_without_the_password(self) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            backend = RedisBackend(f"redis://:hush-hush@127.0.0.1:{port}/0")
            with pytest.raises(BackendError, match=f"could not reach Redis at 127.0.0.1:{port}: ") as caught:
                backend.time("sync")
        assert isinstance(caught.value.__cause__, redis.ConnectionError)
        assert "hush" not in told_by(caught.value)


def right(**options: Any) -> dict[str, Any]:
    return {"socket_connect_timeout": 1, "socket_timeout": 2, "retry": Retry(NoBackoff(), 0), **options}


UNIX_TIME_OUT = pytest.mark.skipif(
    redis.UnixDomainSocketConnection(path="/redis.sock", socket_timeout=1).socket_timeout != 1,
    reason="this redis-py forgets the time-out of a socket in the file system, and its clients are rightly refused",
)


def unix_client(read_s: float, connect_s: float = 1) -> redis.Redis:
    # A client made with unix_socket_path alone takes no time to connect from its caller.
    times = right(socket_timeout=read_s, socket_connect_timeout=connect_s)
    kind = redis.UnixDomainSocketConnection
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kind, path="/redis.sock", **times))


def sentinel_client(**options: Any) -> redis.Redis:
    sentinel = Sentinel([("one", 1), ("two", 2)], sentinel_kwargs=right(**options), **right(**options))
    client: redis.Redis = sentinel.master_for("main")
    return client


def built_as_told(refusal: str, refused: Any) -> redis.Redis:
    """A client like the refused one, with the time-outs that the refusal asks for."""
    built = re.search(r"socket_connect_timeout=([\d.]+), socket_timeout=([\d.]+), retry", refusal)
    assert built is not None
    times = {"socket_connect_timeout": float(built[1]), "socket_timeout": float(built[2])}
    if "Sentinel" in refusal:
        return sentinel_client(**times)
    if "Unix" in refusal:
        return unix_client(times["socket_timeout"], times["socket_connect_timeout"])
    return redis.Redis(refused.connection_pool.connection_kwargs["host"], **right(**times))


class TestGivenClient:
    @pytest.mark.parametrize(
        ("client", "longest_ms"),
        [
            (redis.Redis("cache", **right()), 3_000),
            (redis.Redis("localhost", **right()), 4_000),
            pytest.param(unix_client(2), 3_000, marks=UNIX_TIME_OUT),
            (redis.Redis("cache", **right(health_check_interval=5)), 5_000),
            (redis.Redis("cache", **right(retry=Retry(NoBackoff(), 2))), 9_000),
            (redis.Redis("cache", **right(retry=Retry(ConstantBackoff(0.5), 2))), 10_000),
            (redis.Redis("cache", **right(retry=Retry(ExponentialBackoff(cap=0.5, base=0.1), 3))), 12_000 + 1_100),
            (redis.Redis(connection_pool=redis.BlockingConnectionPool(host="cache", timeout=4, **right())), 7_000),
            (sentinel_client(), 9_000),
            (sentinel_client(retry=Retry(NoBackoff(), 1)), 30_000),
        ],
    )
    def test_its_longest_call_is_added_up_and_held_against_the_bound(self, client: Any, longest_ms: int) -> None:
        backend = RedisBackend(client=client)
        backend.bound_calls(longest_ms)
        with pytest.raises(ConfigurationError, match="Build it so"):
            backend.bound_calls(longest_ms - 1)

    @pytest.mark.parametrize(
        ("client", "longest_ms"),
        [
            (redis.Redis("cache", **right()), 3_000 + 5_000),
            (redis.Redis("localhost", **right()), 4_000 + 6_000),
            pytest.param(unix_client(2), 3_000 + 5_000, marks=UNIX_TIME_OUT),
            (redis.Redis("cache", **right(health_check_interval=5)), 5_000 + 7_000),
            (redis.Redis("cache", **right(retry=Retry(NoBackoff(), 2))), 9_000 + 15_000),
            (sentinel_client(), 9_000 + 11_000),
        ],
    )
    def test_its_longest_call_counts_the_repeat_that_waits_for_replicas(self, client: Any, longest_ms: int) -> None:
        backend = RedisBackend(client=client, wait_replicas=1)
        backend.bound_calls(longest_ms)
        with pytest.raises(ConfigurationError, match="; and to wait for replicas .*Build it so") as caught:
            backend.bound_calls(longest_ms - 1)
        # One built as the refusal says is taken.
        client = built_as_told(str(caught.value), client)
        RedisBackend(client=client, wait_replicas=1).bound_calls(longest_ms - 1)

    @pytest.mark.parametrize(("read_s", "wait_ms"), [(2, 1_000), (0.3, 150), (0.001, 1), (0.0001, 1), (None, 1_000)])
    def test_replicas_have_half_the_time_of_an_answer_and_never_no_limit(
        self, read_s: float | None, wait_ms: int
    ) -> None:
        assert _wait_ms(redis.Redis("cache", socket_timeout=read_s)) == wait_ms

    @pytest.mark.parametrize(
        "client",
        [
            redis.Redis("cache", **right(socket_timeout=None)),
            redis.Redis("cache", **right(socket_timeout=None, socket_connect_timeout=None)),
            redis.Redis("cache", **right(retry=Retry(NoBackoff(), -1))),
            redis.Redis(connection_pool=redis.BlockingConnectionPool(host="cache", timeout=None, **right())),
        ],
    )
    def test_one_that_may_wait_for_ever_is_refused_at_any_bound(self, client: Any) -> None:
        with pytest.raises(ConfigurationError, match="may wait for ever"):
            RedisBackend(client=client).bound_calls(10**9)

    def test_the_refusal_says_what_was_found_and_what_is_right(self) -> None:
        client = redis.Redis("cache", 7000, password="hush-hush", **right(retry=Retry(ConstantBackoff(0.5), 2)))
        with pytest.raises(ConfigurationError) as caught:
            RedisBackend(client=client).bound_calls(3_000)
        assert str(caught.value) == (
            "The client of Redis at cache:7000 may take 10s for one call: "
            "3 tries x (connect 1s + read 2s) + pauses 1s. A lease of 9s allows 3s, a third of it. Build it so: "
            "redis.Redis(..., socket_connect_timeout=1, socket_timeout=2, retry=Retry(NoBackoff(), 0))."
        )

    @pytest.mark.parametrize(
        "client",
        [
            redis.Redis("localhost", **right(socket_timeout=9)),
            sentinel_client(socket_timeout=9),
            pytest.param(unix_client(9), marks=UNIX_TIME_OUT),
        ],
    )
    def test_one_built_as_the_refusal_says_is_taken(self, client: redis.Redis) -> None:
        with pytest.raises(ConfigurationError) as caught:
            RedisBackend(client=client).bound_calls(2_000)
        client = built_as_told(str(caught.value), client)
        RedisBackend(client=client).bound_calls(2_000)

    def test_it_is_shown_by_its_place_and_never_by_its_password(self) -> None:
        assert "hush" not in repr(RedisBackend(client=redis.Redis("cache", username="hush", password="hush")))
        assert "cache:6379" in repr(RedisBackend(client=redis.Redis("cache")))
        assert "main of sentinels one:1, two:2" in repr(RedisBackend(client=sentinel_client(password="hush")))


class TestScripts:
    def words(self, verb: str) -> tuple[dict[str, Any], list[bytes]]:
        """What a verb's head names, with what Python passes there; and the keys."""
        sent: list[Any] = []
        backend = RedisBackend("redis://cache")

        class Client:
            def execute_command(self, *words: Any, **_: Any) -> bytes:
                sent[:] = words
                return b"none 1 - - - - - -" if verb == "claim" else b"ok"

        backend._source._make = Client  # type: ignore[method-assign]
        calls: dict[str, Callable[[], object]] = {
            "claim": lambda: backend.claim(REQUEST),
            "heartbeat": lambda: backend.heartbeat("sync", "run", "token", 30_002),
            "finish": lambda: backend.finish("sync", "run", "token", RECORD),
            "release": lambda: backend.release("sync", "run", "token", RECORD, True),
            "save_result": lambda: backend.save_result("sync", RECORD),
            "forget": lambda: backend.forget("sync"),
        }
        calls[verb]()
        command, _, count, *rest = sent
        assert command == "EVALSHA"
        names = re.search(r"^-- ARGV(.*(?:\n--  +.*)*)\n-- ANSWER", lua(verb), re.MULTILINE)
        assert names is not None
        named = re.findall(r"\w+", names[1])
        assert len(named) == len(rest[count:])
        return dict(zip(named, rest[count:])), rest[:count]

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_head_names_the_arguments_that_are_passed_in_their_order(self, verb: str) -> None:
        passed, _ = self.words(verb)
        known = {**dataclasses.asdict(REQUEST), "mode": "start", "attempt": 7, "fence": 77, "counts": 1}
        known["record"] = encode_record(RECORD)
        for name, value in passed.items():
            value = value.decode() if isinstance(value, bytes) else value
            assert value == known[name], name

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_script_takes_its_arguments_by_the_names_of_its_head(self, verb: str) -> None:
        passed, _ = self.words(verb)
        taken = re.search(r"^local ([\w,\s]+) = (.*)$", lua(verb), re.MULTILINE)
        names = re.findall(r"\w+", taken[1]) if taken and "ARGV" in taken[2] else []
        assert [name.removeprefix("job_") if name != "job_name" else "job" for name in names] == list(passed)

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_key_is_declared_and_shares_the_jobs_hash_tag(self, verb: str) -> None:
        _, keys = self.words(verb)
        assert keys == [f"anarchon:{{sync}}:{name}".encode() for name in KEYS]
        head = re.search(r"^-- KEYS(.*)$", lua("job"), re.MULTILINE)
        assert head is not None
        assert re.findall(r"\w+", head[1]) == list(KEYS)

    @pytest.mark.parametrize("verb", VERBS)
    def test_a_script_has_the_files_whose_functions_it_uses_and_no_others(self, verb: str) -> None:
        shared = {file for files in VERBS.values() for file in files}
        home = {name: file for file in shared for name in re.findall(r"^local function (\w+)", lua(file), re.MULTILINE)}

        def needed(file: str) -> set[str]:
            # No file needs another that needs it: Lua knows only the functions that stand above.
            called = re.findall(r"\b(\w+)\(", re.sub("--.*", "", lua(file)))
            return {file}.union(*map(needed, {home[name] for name in called if name in home} - {file}))

        assert needed(verb) - {verb} | {"job"} == set(VERBS[verb])

    @pytest.mark.parametrize("answer", [None, 7, b"nonsense", b"won", b"won x - - - - - -", [], b"none 1 - - - - - {"])
    def test_an_answer_that_is_none_of_ours_is_a_backend_error(self, answer: Any) -> None:
        backend = RedisBackend("redis://cache")

        class Client:
            def execute_command(self, *_: Any, **__: Any) -> Any:
                return answer

        backend._source._make = Client  # type: ignore[method-assign]
        for call in (
            lambda: backend.claim(REQUEST),
            lambda: backend.heartbeat("sync", "run", "token", 1),
            lambda: backend.active("sync"),
            lambda: backend.time("sync"),
        ):
            with pytest.raises(BackendError, match="Redis at cache:6379 gave an answer that cannot be read"):
                call()

    def test_every_outcome_and_verdict_that_python_knows_stands_in_a_head(self) -> None:
        assert all(outcome.value in lua("claim") for outcome in Outcome)
        assert all(f"'{verdict.value}'" in lua("heartbeat") for verdict in Verdict)


class TestAdvice:
    def advice(self, wait_replicas: int = 0, **facts: Any) -> list[str]:
        backend = RedisBackend("redis://cache", wait_replicas=wait_replicas)

        class Client:
            def execute_command(self, *words: Any) -> dict[str, Any]:
                assert words == ("INFO",)
                return facts

        backend._source._make = Client  # type: ignore[method-assign]
        return backend.advice()

    @pytest.mark.parametrize("version", ["2.8.24", "3.2.6", "4.0.14", "5.0.14"])
    def test_a_server_that_is_too_old_is_told_with_its_version(self, version: str) -> None:
        [told] = self.advice(redis_version=version)
        assert f"is version {version}. anarchon needs 6.0 or newer" in told

    @pytest.mark.parametrize("version", ["6.0.16", "7.2.4", "8.2.3", "10.0.1", "255.255.255", "", "unstable"])
    def test_a_version_that_is_new_enough_or_unknown_is_no_reason_for_a_word(self, version: str) -> None:
        assert self.advice(redis_version=version, maxmemory_policy="noeviction") == []
        assert self.advice() == []

    def test_fewer_replicas_than_are_waited_for_are_told(self) -> None:
        assert self.advice(wait_replicas=1, connected_slaves=1) == []
        [told] = self.advice(wait_replicas=2, connected_slaves=1)
        assert "has 1 replicas, and wait_replicas=2 waits for more" in told


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port where connecting gets no answer at all: nobody accepts, and no more may wait."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(server.getsockname())
            waiting.append(client)
        yield server.getsockname()[1]
        for client in waiting:
            client.close()
