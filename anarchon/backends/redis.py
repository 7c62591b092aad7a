"""A lease backend on Redis (6.0 or newer) or Valkey: one Lua script a verb, each one atomic step on the server's clock.

Guarantees:

- One call is one round trip, but for a server that does not know the script yet: it is sent again whole, with the same
  arguments and so the same token. With ``wait_replicas`` a grant, a renewal and a finish take a second one.
- All keys of a job share one hash tag, are declared to the script and are five, whatever the job's age.
- Reading uses reading commands alone: an account with ``+@read +time`` answers history and active.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from redis.client import NEVER_DECODE
from redis.exceptions import NoScriptError

from anarchon.backends import LeaseBackend, claims
from anarchon.backends.damage import MISSING, RUN, damaged, first_damaged
from anarchon.backends.redis_advice import advice_of
from anarchon.backends.redis_client import ClientSource, GivenClient, OwnClient
from anarchon.backends.redis_limits import is_cluster
from anarchon.backends.redis_replicas import repeat_and_wait
from anarchon.backends.redis_scripts import load_scripts, lua
from anarchon.backends.redis_url import MOST_REPLICAS
from anarchon.backends.state import Run
from anarchon.errors import BackendError, ConfigurationError, shown
from anarchon.records import (
    MANUAL_WINDOW_MS,
    ActiveRun,
    ClaimReply,
    ClaimRequest,
    DoneReason,
    Holder,
    Outcome,
    RunRecord,
    Verdict,
    decode_record,
    encode_record,
)

__all__ = ["RedisBackend"]

_T = TypeVar("_T")

KEYS = ("state", "ended", "expiry", "history", "records")

PREFIX_CHARACTERS = 200

# Answers come as bytes, also from a client that was made to decode them: bytes of any kind may be in what is read.
_RAW: dict[str, Any] = {NEVER_DECODE: []}

# How a script writes what is not known or of no use.
_NOTHING = b"-"

_OUTCOMES = {outcome.value.encode(): outcome for outcome in Outcome}
_DONE = {reason.value.encode(): reason for reason in DoneReason} | {_NOTHING: None}
_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}


class RedisBackend(LeaseBackend):
    """A lease backend on Redis or Valkey. Connects at its first call, not before.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``, as redis-py reads them. The client that is made of it
            never repeats a call by itself, and its time-outs fit the shortest registered lease.
        client: in place of a URL, a redis-py client: ``redis.Redis``, Sentinel's ``master_for``, or ``RedisCluster``.
            It is never closed here. Its time-outs are checked when a job is registered.
        prefix: goes before every key; schedulers that share jobs share it.
        wait_replicas: how many replicas must have a grant, a renewal or the end of a run before it is relied on; a call
            that fewer acknowledge within half the time-out of an answer fails. None: as the URL says, else 0, which
            waits for none. It narrows what a failover can lose, and is no proof.

    Raises:
        ConfigurationError: neither or both of url and client, a wrong URL (never repeated in the message), or a prefix
            that is not text, is over 200 characters, or has braces or control characters; or wait_replicas is no
            number of replicas, or is given here and in the URL.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: object = None,
        prefix: str = "anarchon:",
        wait_replicas: int | None = None,
    ) -> None:
        if (url is None) == (client is None):
            raise ConfigurationError("RedisBackend takes a URL or client=..., and exactly one of the two.")
        self._prefix = _checked_prefix(prefix)
        self._source: ClientSource = GivenClient(client) if url is None else OwnClient(url)
        if wait_replicas is not None:
            self._source.need_replicas(_checked_replicas(wait_replicas))
        self._scripts = load_scripts(self._clock())
        self._clocks: dict[str, str] = {}

    def __repr__(self) -> str:
        told = f"{self._source.text} prefix={self._prefix!r}"
        if self._source.wait_replicas:
            told += f" wait_replicas={self._source.wait_replicas}"
        return f"<RedisBackend {told}>"

    def claim(self, request: ClaimRequest) -> ClaimReply:
        return self._run(
            "claim",
            request.job,
            _bytes(request.job),
            _bytes(request.run_id),
            request.slot_ms,
            _bytes(request.token),
            _bytes(request.instance_id),
            request.lease_ms,
            request.overlap,
            request.max_attempts,
            MANUAL_WINDOW_MS if request.manual else request.window_ms,
            request.mode.value,
            _bytes(request.trigger),
            request.history_limit,
            read=_claim_reply,
            must_last=lambda reply: reply.outcome is Outcome.WON,
        )

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        arguments = _bytes(run_id), _bytes(token), lease_ms
        return self._run("heartbeat", job, *arguments, read=_VERDICTS.__getitem__, must_last=_is_ok)

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        text = encode_record(record)
        arguments = _bytes(run_id), _bytes(token), text
        return self._run("finish", job, *arguments, read=_VERDICTS.__getitem__, must_last=_is_ok)

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        text = encode_record(record)
        return self._run("release", job, _bytes(run_id), _bytes(token), text, int(counts), read=_VERDICTS.__getitem__)

    def save_result(self, job: str, record: RunRecord) -> None:
        run_id, text = _bytes(record.run_id), encode_record(record)
        self._run("save_result", job, run_id, record.attempt, record.fence, text, read=_VERDICTS.__getitem__)

    def time(self, job: str) -> int:
        return self._source.ask(lambda client: self._time(client, job))

    def active(self, job: str) -> list[ActiveRun]:
        def read(client: Any) -> list[ActiveRun]:
            # The time first: a lease renewed in between then looks a little longer, and is cut to its length.
            now_ms = self._time(client, job)
            state = client.execute_command("HGETALL", self._keys(job)[0], **_RAW)
            runs = [_read_run(name[4:], text) for name, text in state.items() if name.startswith(b"run:")]
            return claims.active(job, [run for run in runs if run is not None], now_ms)

        return self._source.ask(read)

    def history(self, job: str, limit: int) -> list[RunRecord]:
        *_, history, records = self._keys(job)

        def read(client: Any) -> list[RunRecord]:
            found: list[RunRecord] = []
            start = 0
            while len(found) < limit:
                wanted = limit - len(found)
                names = _list(client.execute_command("ZREVRANGE", history, start, start + wanted - 1, **_RAW))
                texts = _list(client.execute_command("HMGET", records, *names, **_RAW)) if names else []
                found += [record for record in map(_read_record, texts) if record is not None]
                start += wanted
                if len(names) < wanted:
                    break
            return found

        return self._source.ask(read)

    def forget(self, job: str) -> None:
        self._run("forget", job, read=_VERDICTS.__getitem__)

    def bound_calls(self, limit_ms: int) -> None:
        self._source.bound(limit_ms)

    def clock_of(self, job: str) -> Hashable:
        if not self._source.has_nodes:
            return None
        try:
            name = self._source.ask(lambda client: getattr(self._node(client, job), "name", None))
        except BackendError:
            # A cluster that is away: the clock that served the job last is still the best guess.
            return self._clocks.get(job)
        if name is not None:
            self._clocks[job] = name
        return name

    def advice(self) -> list[str]:
        place, replicas = f"Redis at {self._source.text}", self._source.wait_replicas or 0
        return self._source.ask(lambda client: advice_of(client, place, replicas))

    def close(self) -> None:
        """Closes the connections made from a URL; a client that was given is left alone."""
        self._source.close()

    def _keys(self, job: str) -> list[bytes]:
        tag = _bytes(f"{self._prefix}{{{job}}}:")
        return [tag + name for name in _KEYS]

    def _run(
        self,
        verb: str,
        job: str,
        *arguments: Any,
        read: Callable[[Any], _T],
        must_last: Callable[[_T], bool] = lambda _: False,
    ) -> _T:
        """One call of a verb's script; where ``must_last`` says so of its answer, the replicas must have it, too."""
        script = self._scripts[verb]
        keys = self._keys(job)
        words = (len(KEYS), *keys, *arguments)

        def understood(answer: Any) -> _T:
            if isinstance(answer, list) and answer[:1] == [b"damaged"]:
                raise _damage(job, *answer[1:])
            return read(answer)

        def run(client: Any) -> _T:
            try:
                answer = understood(client.execute_command("EVALSHA", script.sha, *words, **_RAW))
            except NoScriptError:
                answer = understood(client.execute_command("EVAL", script.text, *words, **_RAW))
            replicas = self._source.wait_replicas
            if not replicas or not must_last(answer):
                return answer
            repeated, lack = repeat_and_wait(client, keys[0], replicas, ("EVALSHA", script.sha, *words), _RAW)
            answer = understood(repeated)
            if lack is not None and must_last(answer):
                raise lack
            return answer

        return self._source.ask(run)

    def _time(self, client: Any, job: str) -> int:
        node = self._node(client, job)
        there = {} if node is None else {"target_nodes": node}
        seconds, microseconds = client.execute_command("TIME", **there)
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _node(self, client: Any, job: str) -> Any:
        """In a cluster, the node that serves the job, whose clock is the job's; else None."""
        return client.get_node_from_key(self._keys(job)[0]) if is_cluster(client) else None

    def _clock(self) -> str:
        """The Lua that reads the store's clock. Tests put another in its place, and in that of ``_time``."""
        return lua("time")


_KEYS = [name.encode() for name in KEYS]


def _is_ok(verdict: Verdict) -> bool:
    return verdict is Verdict.OK


def _checked_prefix(prefix: object) -> str:
    if not isinstance(prefix, str):
        raise ConfigurationError(f"prefix must be text, not {type(prefix).__name__}.")
    if len(prefix) > PREFIX_CHARACTERS:
        raise ConfigurationError(f"prefix must be at most {PREFIX_CHARACTERS} characters long, not {len(prefix)}.")
    if "{" in prefix or "}" in prefix:
        raise ConfigurationError(f"prefix must not have braces, which mark a job's keys for a cluster: {prefix!r}.")
    if not prefix.isprintable():
        raise ConfigurationError(f"prefix must not have control characters: {prefix!r}.")
    return prefix


def _checked_replicas(replicas: object) -> int:
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not 0 <= replicas <= MOST_REPLICAS:
        raise ConfigurationError(
            f"wait_replicas must be a number of replicas, at most {MOST_REPLICAS}, or 0 or None to wait for none; not"
            f" {shown(replicas)}."
        )
    return replicas


def _bytes(text: str) -> bytes:
    # Encoded here, for a client that was given may have another encoding.
    return text.encode("utf-8", "surrogatepass")


def _claim_reply(answer: Any) -> ClaimReply:
    outcome, now_ms, latest_ms, attempt, fence, done, wait_ms, holder = answer.split(b" ", 7)
    return ClaimReply(
        _OUTCOMES[outcome],
        int(now_ms),
        _number(latest_ms),
        _number(attempt),
        _number(fence),
        None if holder == _NOTHING else Holder(*json.loads(holder)),
        _DONE[done],
        _number(wait_ms),
    )


def _damage(job: str, name: bytes, field: bytes, text: bytes | None = None) -> BackendError:
    """The error for what a script found damaged: see ``damage`` in job.lua."""
    value: object = MISSING if text is None else text.decode("utf-8", "backslashreplace")
    if field and text is not None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass  # It was cut, or is no JSON: shown as it stands.
    place = name.decode("utf-8", "backslashreplace")
    if not name.startswith(b"run:"):
        return damaged(job, place, value)
    return damaged(job, field.decode() or None, value, run_id=place[4:])


def _number(word: bytes) -> int | None:
    return None if word == _NOTHING else int(word)


def _list(answer: Any) -> list[bytes]:
    if not isinstance(answer, list):
        raise TypeError(f"expected a list, not {answer!r:.80}")
    return answer


def _read_record(text: bytes | None) -> RunRecord | None:
    return None if text is None else decode_record(text)


def _read_run(run_id: bytes, text: bytes) -> Run | None:
    """An unfinished run as the scripts keep it; None for what cannot be read."""
    try:
        values = {name: value for name, value in json.loads(text).items() if name in RUN}
        values["run_id"] = run_id.decode("utf-8", "surrogatepass")
    except (ValueError, AttributeError, RecursionError):
        return None
    values["manual"] = values.get("trigger") == "manual"
    # Of a run, only what is true is written.
    values = {"latest_before_ms": None, "released": False, "ended": False, "held_before": []} | values
    return None if first_damaged(values, RUN) else Run(**values)
