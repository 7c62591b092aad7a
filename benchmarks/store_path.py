"""What a call through RedisBackend costs, beside bare scripts that touch the same keys through the same client.

    python benchmarks/store_path.py [--json] [--rounds 30] [--calls 200]

One thread calls one server. In each round every call is made so many times by either side, in turns; a round's figure
is the median of its calls, and a ratio is the median over the rounds. ``server`` is what the server itself spent in
scripts. The bare scripts send the commands that ours send, with no decision between them.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median
from typing import Any

import redis
from harness import Row, new_redis, ratio, show

from anarchon import LeaseBackend, RedisBackend, RunRecord
from anarchon.backends.redis import KEYS
from anarchon.records import ClaimRequest, Mode, Outcome, Verdict, encode_record

LEASE_MS, HISTORY = 30_000, 100
INSTANCE = "web-1:4242:Zk3x"

BARE_CLAIM = """
redis.call('TIME')
redis.call('HGETALL', KEYS[1])
redis.call('HEXISTS', KEYS[2], 'run:' .. ARGV[1])
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'history_limit', ARGV[2], 'run:' .. ARGV[1], ARGV[3], 'latest', ARGV[1])
return ARGV[4]
"""
ANSWER = b"won 1700000000000 1700000000000 1 1700000000000 - - -"
TRIVIAL = "return 1"

BARE_READ = """
redis.call('TIME')
redis.call('HGETALL', KEYS[1])
return ARGV[4]
"""
BARE_HEARTBEAT = """
redis.call('TIME')
redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], 'run:' .. ARGV[1], ARGV[3])
return 'ok'
"""
BARE_FINISH = """
local name = '1:' .. ARGV[1]
redis.call('TIME')
redis.call('HGETALL', KEYS[1])
redis.call('HDEL', KEYS[1], 'run:' .. ARGV[1])
redis.call('HSET', KEYS[1], 'ends', ARGV[1])
redis.call('HSET', KEYS[2], 'run:' .. ARGV[1], ARGV[4])
redis.call('ZADD', KEYS[3], ARGV[1], name)
redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '0', 'LIMIT', 0, 1000)
redis.call('HSET', KEYS[5], name, ARGV[3])
redis.call('ZADD', KEYS[4], ARGV[1], name)
local surplus = redis.call('ZCARD', KEYS[4]) - ARGV[2]
if surplus > 0 then
  local oldest = redis.call('ZRANGE', KEYS[4], 0, surplus - 1)
  redis.call('ZREM', KEYS[4], unpack(oldest))
  redis.call('HDEL', KEYS[5], unpack(oldest))
end
return 'ok'
"""

Call = Callable[[], object]


class Ours:
    """The runs of one job, through the backend."""

    def __init__(self, backend: LeaseBackend) -> None:
        self._backend = backend
        self._slots_ms = itertools.count(int(time.time() * 1000) - 10_000_000)

    def begin_anew(self) -> None:
        slot_ms = next(self._slots_ms)
        self._claim = ClaimRequest(
            job="job",
            slot_ms=slot_ms,
            run_id=f"{slot_ms}",
            token="k3J9sX0aQ2mP7vB1nL5tYw",
            instance_id=INSTANCE,
            lease_ms=LEASE_MS,
            overlap="skip",
            max_attempts=3,
            window_ms=10**9,
            mode=Mode.START,
            trigger="scheduled",
            history_limit=HISTORY,
        )
        self._lost = replace(self._claim, token="8sW2dF4gH6jK0lZ9xC1vBn")
        self._check = replace(self._lost, mode=Mode.TAKEOVER, trigger="takeover")
        self._record = record_of(slot_ms)

    def claim(self) -> None:
        assert self._backend.claim(self._claim).outcome is Outcome.WON

    def lose(self) -> None:
        assert self._backend.claim(self._lost).outcome is Outcome.RUNNING

    def check(self) -> None:
        assert self._backend.claim(self._check).outcome is Outcome.RUNNING

    def heartbeat(self) -> None:
        assert self._backend.heartbeat("job", self._claim.run_id, self._claim.token, LEASE_MS) is Verdict.OK

    def finish(self) -> None:
        assert self._backend.finish("job", self._claim.run_id, self._claim.token, self._record) is Verdict.OK


class Bare:
    """The same keys and commands, through redis-py's client as it comes."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url, protocol=2)
        self._keys = [f"bare:{{job}}:{name}".encode() for name in KEYS]
        self._slots_ms = itertools.count(int(time.time() * 1000) - 10_000_000)
        self._shas = {
            text: self._client.script_load(text)
            for text in (BARE_CLAIM, BARE_READ, BARE_HEARTBEAT, BARE_FINISH, TRIVIAL)
        }

    def begin_anew(self) -> None:
        slot_ms = next(self._slots_ms)
        self._run_id = f"{slot_ms}".encode()
        self._record = encode_record(record_of(slot_ms))

    def _send(self, text: str) -> Any:
        words = (len(KEYS), *self._keys, self._run_id, HISTORY, self._record, ANSWER)
        return self._client.execute_command("EVALSHA", self._shas[text], *words)

    def claim(self) -> None:
        assert self._send(BARE_CLAIM) == ANSWER

    def lose(self) -> None:
        assert self._send(BARE_READ) == ANSWER

    check = lose

    def heartbeat(self) -> None:
        assert self._send(BARE_HEARTBEAT) == b"ok"

    def finish(self) -> None:
        assert self._send(BARE_FINISH) == b"ok"

    def trivial(self) -> None:
        self._send(TRIVIAL)

    def ping(self) -> None:
        self._client.execute_command("PING")


def record_of(slot_ms: int) -> RunRecord:
    at = datetime.fromtimestamp(slot_ms / 1000, timezone.utc)
    return RunRecord("job", at, f"{slot_ms}", 1, "scheduled", "success", INSTANCE, slot_ms, at, at, 0.001)


#: One turn: these calls, as many times as asked. Those between claim and finish find the run that was claimed.
TURN = ("claim", "lose", "check", "heartbeat", "finish")


def one_round(side: Any, calls: int) -> dict[str, float]:
    """Microseconds of each call: the median; and of a whole run, which claims and finishes."""
    took: dict[str, list[float]] = {name: [] for name in TURN}
    for _ in range(calls):
        side.begin_anew()
        for name in TURN:
            call = getattr(side, name)
            begun = time.perf_counter()
            call()
            took[name].append((time.perf_counter() - begun) * 1e6)
    return {name: median(values) for name, values in took.items()}


def alone(call: Call, calls: int) -> float:
    took = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        took.append((time.perf_counter() - begun) * 1e6)
    return median(took)


def measure(arguments: argparse.Namespace) -> list[Row]:
    with new_redis() as url:
        ours, bare = Ours(RedisBackend(url, prefix="ours:")), Bare(url)
        mine: list[dict[str, float]] = []
        theirs: list[dict[str, float]] = []
        for number in range(arguments.rounds + 1):
            both = (one_round(ours, arguments.calls), one_round(bare, arguments.calls))
            beside = {"ping": alone(bare.ping, arguments.calls), "trivial": alone(bare.trivial, arguments.calls)}
            if number:  # the first round warms up
                mine.append(both[0])
                theirs.append(both[1] | beside)
    for each in mine:
        each["run"] = each["claim"] + each["finish"]
    for each in theirs:
        # A naive run: a claim, a heartbeat at its start, and a finish.
        each["run"] = each["claim"] + each["heartbeat"] + each["finish"]
    return [row(name, mine, theirs) for name in (*TURN, "run")]


NAMES = {
    "claim": "claim that wins",
    "lose": "claim that loses",
    "check": "check of a backup",
    "heartbeat": "heartbeat",
    "finish": "finish",
    "run": "whole run, beside three bare calls",
}


def row(name: str, mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> Row:
    ours, bare = [each[name] for each in mine], [each[name] for each in theirs]
    return {
        "call": NAMES[name],
        "anarchon, us": median(ours),
        "bare, us": median(bare),
        "ratio": ratio(ours, bare),
        "of a PING": ratio(ours, [each["ping"] for each in theirs]),
        "of a trivial script": ratio(ours, [each["trivial"] for each in theirs]),
        "rounds": [ours, bare],
    }


if __name__ == "__main__":
    show(
        __doc__,
        measure,
        rounds={"type": int, "default": 30, "help": "how many rounds count"},
        calls={"type": int, "default": 100, "help": "how often each call is made in a round"},
    )
