"""Scripts travel in groups: who sends, who waits, and what becomes of them where something goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from anarchon.backends import redis_groups
from anarchon.backends.redis_groups import GroupingRedis

LONGEST_S = 60


class Line:
    """A connection of the test: what was written on it, and answers that the test gives, or lets through."""

    socket_timeout: float | None = 30

    def __init__(self, server: Server) -> None:
        self._server = server
        self._expected: list[str] = []
        self.closed = 0
        self.over = False

    def connect(self) -> None:
        pass

    def send_packed_command(self, packed: list[bytes], check_health: bool) -> None:
        (text,) = packed
        names = [word.decode() for word in text.split(b"\r\n") if word.startswith(b"name-")]
        self._server.write(names)
        self._expected += names

    def read_response(self, disable_decoding: bool) -> bytes:
        name = self._expected.pop(0)
        answer = self._server.answer(name)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def can_read(self, timeout: float) -> bool:
        return self.over

    def disconnect(self) -> None:
        self.closed += 1
        self._expected.clear()


class Server:
    """Answers each script with its name, when it may; counts the writes."""

    def __init__(self) -> None:
        self.max_connections = 1_000
        self.connection_kwargs: dict[str, Any] = {}
        self.writes: list[list[str]] = []
        self.lines: list[Line] = []
        self.answers: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._held: set[str] = set()

    def connection_class(self) -> Line:
        self.lines.append(Line(self))
        return self.lines[-1]

    def write(self, names: list[str]) -> None:
        with self._changed:
            self.writes.append(names)
            self._changed.notify_all()

    def answer(self, name: str) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: name not in self._held, LONGEST_S)
        return self.answers.get(name, name.encode())

    def hold(self, *names: str) -> None:
        self._held.update(names)

    def let_go(self, *names: str) -> None:
        with self._changed:
            self._held.difference_update(names)
            self._changed.notify_all()

    def wait_for_writes(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.writes) >= count, LONGEST_S)


class Asker(threading.Thread):
    """A thread that sends one script, and what came back."""

    def __init__(self, client: GroupingRedis, name: str) -> None:
        super().__init__(daemon=True)
        self._client, self._name = client, name
        self.got: Any = None

    def run(self) -> None:
        try:
            self.got = self._client.execute_command("EVALSHA", "sha", 0, self._name)
        except BaseException as error:
            self.got = error


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.let_go(*list(server._held))


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> GroupingRedis:
    # Who waits for a turn here waits for what the test does next, however busy the machine.
    monkeypatch.setattr(redis_groups, "PATIENCE_MS", LONGEST_S * 1000)
    client = GroupingRedis(redis.ConnectionPool())
    client.connection_pool = server  # type: ignore[assignment]
    return client


@pytest.fixture
def ask(client: GroupingRedis) -> Callable[[str], Asker]:
    def start(name: str) -> Asker:
        asker = Asker(client, name)
        asker.start()
        return asker

    return start


def until(condition: Callable[[], object]) -> None:
    tick, left_s = threading.Event(), float(LONGEST_S)
    while not condition():
        assert left_s > 0
        tick.wait(0.005)
        left_s -= 0.005


def ended(*askers: Asker) -> list[Any]:
    for asker in askers:
        asker.join(LONGEST_S)
        assert not asker.is_alive()
    return [asker.got for asker in askers]


def two_on_their_way(server: Server, ask: Callable[[str], Asker]) -> list[Asker]:
    """As many groups as may be on their way at once, one script each, and no answer yet."""
    server.hold("name-1", "name-2")
    askers = [ask("name-1")]
    server.wait_for_writes(1)
    askers.append(ask("name-2"))
    server.wait_for_writes(2)
    return askers


def a_group_of_two_on_its_way(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> tuple[list[Asker], list[Asker]]:
    """As above, but the first was answered: then 3 and 4 are on their way together, in the third write."""
    first = two_on_their_way(server, ask)
    others = [ask(f"name-{number}") for number in (3, 4)]
    until(lambda: len(client._waiting) == 2)
    server.hold("name-3", "name-4")
    server.let_go("name-1")
    server.wait_for_writes(3)
    return first, others


def test_a_script_that_comes_alone_is_sent_at_once(server: Server, ask: Callable[[str], Asker]) -> None:
    assert ended(ask("name-1")) == [b"name-1"]
    assert server.writes == [["name-1"]]


def test_scripts_that_come_meanwhile_go_out_in_one_write(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    """
    1. two groups are on their way, of one script each
    2. three more scripts come: they wait
    3. the first group is answered: one of the three sends all three
    """
    first = two_on_their_way(server, ask)
    others = [ask(f"name-{number}") for number in (3, 4, 5)]
    until(lambda: len(client._waiting) == 3)
    assert len(server.writes) == 2
    server.let_go("name-1")
    assert ended(first[0], *others) == [b"name-1", b"name-3", b"name-4", b"name-5"]
    assert sorted(server.writes[2]) == ["name-3", "name-4", "name-5"]
    server.let_go("name-2")
    assert ended(first[1]) == [b"name-2"]
    assert client._leaders == 0
    assert len(server.lines) == 2


def test_no_group_is_larger_than_it_may_be(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_groups, "_LARGEST", 2)
    first = two_on_their_way(server, ask)
    others = [ask(f"name-{number}") for number in (3, 4, 5)]
    until(lambda: len(client._waiting) == 3)
    server.let_go("name-1", "name-2")
    assert ended(*first, *others) == [f"name-{number}".encode() for number in (1, 2, 3, 4, 5)]
    assert max(map(len, server.writes)) == 2


def test_each_thread_is_told_as_soon_as_its_own_answer_is_there(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    """All but the leader, who reads the answers of the others."""
    first = two_on_their_way(server, ask)
    others = {}
    for count, name in enumerate(("name-3", "name-4", "name-5"), start=1):
        others[name] = ask(name)
        until(lambda count=count: len(client._waiting) == count)  # type: ignore[misc]
    server.hold("name-5")
    server.let_go("name-1")
    assert ended(others["name-4"]) == [b"name-4"]
    assert others["name-5"].is_alive()
    server.let_go("name-2", "name-5")
    ended(*first, *others.values())


def test_an_error_in_one_script_is_that_ones_alone(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    server.answers["name-4"] = redis.exceptions.NoScriptError("No matching script.")
    first = two_on_their_way(server, ask)
    others = [ask(f"name-{number}") for number in (3, 4, 5)]
    until(lambda: len(client._waiting) == 3)
    server.let_go("name-1", "name-2")
    ended(*first)
    third, fourth, fifth = ended(*others)
    assert (third, fifth) == (b"name-3", b"name-5")
    assert isinstance(fourth, redis.exceptions.NoScriptError)
    assert [line.closed for line in server.lines] == [0, 0]


def test_a_connection_that_breaks_fails_what_has_no_answer_yet_and_nobody_waits_for_ever(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    """
    1. three scripts go out in one write; the first of them is answered
    2. the connection breaks: the two others may have been done or not, and both hear of it
    3. the connection is closed, and the next script gets an answer of its own
    """
    first = two_on_their_way(server, ask)
    others = [ask(f"name-{number}") for number in (3, 4, 5)]
    until(lambda: len(client._waiting) == 3)
    server.hold("name-3", "name-4", "name-5")
    server.let_go("name-1")
    server.wait_for_writes(3)
    answered, *broken = server.writes[2]
    server.answers[broken[0]] = redis.ConnectionError("Connection closed by server.")
    server.let_go("name-3", "name-4", "name-5")
    got = dict(zip(["name-3", "name-4", "name-5"], ended(*others), strict=True))
    assert got[answered] == answered.encode()
    errors = [got[name] for name in broken]
    assert [type(error) for error in errors] == [redis.ConnectionError] * 2
    assert errors[0] is not errors[1]
    assert str(errors[1]) == "Connection closed by server."
    server.let_go("name-2")
    ended(*first)
    assert sum(line.closed > 0 for line in server.lines) == 1
    assert ended(ask("name-6")) == [b"name-6"]
    assert client._leaders == 0


def test_answers_that_trickle_in_do_not_add_up_to_more_than_one_may_take(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, others = a_group_of_two_on_its_way(server, client, ask)
    real = redis_groups._clock.monotonic_ms
    monkeypatch.setattr(redis_groups._clock, "monotonic_ms", lambda: real() + 31_000, raising=False)
    server.let_go("name-3", "name-4", "name-2")
    ended(*first)
    answered, late = server.writes[2]
    got = dict(zip(["name-3", "name-4"], ended(*others), strict=True))
    assert got[answered] == answered.encode()
    assert isinstance(got[late], redis.TimeoutError)


def test_who_has_waited_long_enough_sends_alone(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = two_on_their_way(server, ask)
    monkeypatch.setattr(redis_groups, "PATIENCE_MS", 1)
    assert ended(ask("name-3")) == [b"name-3"]
    assert not client._waiting
    server.let_go("name-1", "name-2")
    ended(*first)
    assert client._leaders == 0
    assert ended(ask("name-4")) == [b"name-4"]


def test_who_is_made_the_leader_as_its_patience_ends_leads(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. thread B waits for its turn; its patience ends, and it has not yet taken the lock
    2. A's group is answered; A takes B out of the queue, and makes it the leader
    3. B finds itself out of the queue: it leads, and does not send alone beside it
    """
    first = two_on_their_way(server, ask)
    wait, impatient, made = redis_groups._clock.wait, threading.Event(), threading.Event()

    def wait_too_long(event: threading.Event, timeout_ms: float | None) -> bool:
        if timeout_ms is None:
            return wait(event, None)
        impatient.set()
        assert made.wait(LONGEST_S)
        return False

    monkeypatch.setattr(redis_groups._clock, "wait", wait_too_long, raising=False)
    third = ask("name-3")
    assert impatient.wait(LONGEST_S)
    server.let_go("name-1")
    ended(first[0])
    until(lambda: not client._waiting)
    made.set()
    assert ended(third) == [b"name-3"]
    server.let_go("name-2")
    ended(first[1])
    assert server.writes == [["name-1"], ["name-2"], ["name-3"]]
    assert client._leaders == 0


def test_the_main_thread_neither_leads_nor_follows(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    first = two_on_their_way(server, ask)
    assert client.execute_command("EVALSHA", "sha", 0, "name-3") == b"name-3"
    server.answers["name-4"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        client.execute_command("EVALSHA", "sha", 0, "name-4")
    server.let_go("name-1", "name-2")
    assert ended(*first) == [b"name-1", b"name-2"]
    assert client._leaders == 0


def test_a_leader_that_is_interrupted_leaves_nobody_waiting(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    first, others = a_group_of_two_on_its_way(server, client, ask)
    leader, follower = server.writes[2]
    server.answers[leader] = SystemExit()
    server.let_go("name-2", "name-3", "name-4")
    ended(*first)
    got = dict(zip(["name-3", "name-4"], ended(*others), strict=True))
    assert isinstance(got[leader], SystemExit)
    assert isinstance(got[follower], redis.ConnectionError)
    assert client._leaders == 0


def test_a_connection_that_has_idled_is_looked_at_and_made_anew_where_it_is_over(
    server: Server, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(ask("name-1"))
    server.lines[0].over = True
    ended(ask("name-2"))
    assert server.lines[0].closed == 0  # it has not idled
    real = redis_groups._clock.monotonic_ms
    monkeypatch.setattr(redis_groups._clock, "monotonic_ms", lambda: real() + 1_001, raising=False)
    assert ended(ask("name-3")) == [b"name-3"]
    assert (server.lines[0].closed, len(server.lines)) == (1, 1)


def test_hang_up_closes_what_is_idle_and_what_is_in_use_after_its_answers(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    first = two_on_their_way(server, ask)
    server.let_go("name-1")
    ended(first[0])
    client.hang_up()
    assert sorted(line.closed for line in server.lines) == [0, 1]
    server.let_go("name-2")
    assert ended(first[1]) == [b"name-2"]
    until(lambda: [line.closed for line in server.lines] == [1, 1])


def test_however_often_it_hangs_up_no_more_connections_are_made(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker]
) -> None:
    """The pool counts what it has made, and refuses one day."""
    for number in range(5):
        assert ended(ask(f"name-{number}")) == [f"name-{number}".encode()]
        client.hang_up()
    first = two_on_their_way(server, ask)
    client.hang_up()
    server.let_go("name-1", "name-2")
    ended(*first)
    assert ended(ask("name-3")) == [b"name-3"]
    assert len(server.lines) == 2


def test_with_too_many_connections_whoever_wants_another_is_told_so_and_nobody_waits(
    server: Server, client: GroupingRedis, monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], Asker]
) -> None:
    """
    1. the one connection that there may be is in use
    2. another thread's patience is over, and it would send alone
    """
    server.max_connections = 1
    server.hold("name-1")
    first = ask("name-1")
    server.wait_for_writes(1)
    monkeypatch.setattr(redis_groups, "PATIENCE_MS", 1)
    (refused,) = ended(ask("name-2"))
    assert isinstance(refused, redis.ConnectionError)
    assert "Too many connections" in str(refused)
    server.let_go("name-1")
    assert ended(first, ask("name-3")) == [b"name-1", b"name-3"]
    assert len(server.lines) == 1


def test_a_leader_that_gets_no_connection_tells_those_that_follow_it(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = two_on_their_way(server, ask)
    others = [ask("name-3"), ask("name-4")]
    until(lambda: len(client._waiting) == 2)

    def none() -> None:
        raise redis.ConnectionError("none to be had")

    monkeypatch.setattr(client, "_take", none)
    server.let_go("name-1", "name-2")
    assert [str(error) for error in ended(*others)] == ["none to be had"] * 2
    assert ended(*first) == [b"name-1", b"name-2"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_connection_that_could_not_be_closed_is_not_used_again(
    server: Server, client: GroupingRedis, ask: Callable[[str], Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Ctrl-C comes while an answer is waited for
    2. and once more before the connection is closed: the answer is still to come
    3. the next script must not take it for its own
    """

    def interrupted() -> None:
        raise SystemExit

    ended(ask("name-0"))
    server.answers["name-1"] = KeyboardInterrupt()
    monkeypatch.setattr(server.lines[0], "disconnect", interrupted)
    assert isinstance(ended(ask("name-1"))[0], KeyboardInterrupt)
    assert ended(ask("name-2")) == [b"name-2"]
    assert len(server.lines) == 2
    assert client._connections == 1


def test_what_is_no_script_goes_the_way_of_redis_py() -> None:
    pool = redis.ConnectionPool(port=1, retry=None)
    client = GroupingRedis(pool)
    with pytest.raises(redis.ConnectionError):
        client.execute_command("PING")
    pool.disconnect()
