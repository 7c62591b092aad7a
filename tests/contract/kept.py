"""What a store keeps of a job, read past its calls and told in one form, so that two stores can be compared.

Two stores that keep the same go on to answer the same; where they part, the call that parted them is the last one, and
not whichever happens to show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

from harness import Harness, MemoryHarness, RedisHarness, SQLiteHarness

from anarchon.backends.redis import _read_run
from anarchon.backends.sqlite import _load_runs
from anarchon.backends.state import Run
from anarchon.records import RunRecord, decode_record


@dataclass
class Kept:
    """A job as a store keeps it. One that is unknown is kept as these defaults say.

    Attributes:
        finished: the runs that are remembered as finished, each with the token that finished it; None: given up.
        releasers: the (run id, token) that are remembered to have released one.
        ends: when each of both kinds may be forgotten, and of which run it is, in the order of their coming.
    """

    latest_ms: int | None = None
    fence: int = 0
    history_limit: int = 1
    runs: dict[str, Run] = field(default_factory=dict)
    finished: dict[str, str | None] = field(default_factory=dict)
    releasers: set[tuple[str, str]] = field(default_factory=set)
    ends: list[tuple[int, str]] = field(default_factory=list)
    history: list[RunRecord | None] = field(default_factory=list)


@singledispatch
def kept(store: Harness, jobs: Iterable[str]) -> list[Kept]:
    """What the store keeps of each job."""
    raise NotImplementedError(type(store))


@kept.register
def _(store: MemoryHarness, jobs: Iterable[str]) -> list[Kept]:
    states = [store._memory._seen(job) for job in jobs]
    return [
        Kept(
            state.latest_ms,
            state.fence,
            state.history_limit,
            state.runs,
            state._finished,
            state._releasers,
            [(until_ms, run_id) for _, until_ms, run_id in sorted((e[1], e[0], e[2]) for e in state._forget_after)],
            state.newest(),
        )
        for state in states
    ]


@kept.register
def _(store: SQLiteHarness, jobs: Iterable[str]) -> list[Kept]:
    with store.backend._reading() as file:
        return [Kept() if file is None else _in_rows(file, job) for job in jobs]


def _in_rows(file: Any, job: str) -> Kept:
    def rows(sql: str) -> list[tuple[Any, ...]]:
        return file.run(sql, {"job": job})

    own = rows("SELECT latest_ms, fence, history_limit FROM jobs WHERE job = :job")
    ends = rows("SELECT run_id, token, finished, keep_until_ms FROM ended WHERE job = :job ORDER BY id")
    records = rows("SELECT record FROM history WHERE job = :job ORDER BY fence DESC")
    return Kept(
        *(own[0] if own else ()),
        runs={values["run_id"]: Run(**values) for values in _load_runs(file, job)},
        finished={run_id: token for run_id, token, finished, _ in ends if finished},
        releasers={(run_id, token) for run_id, token, finished, _ in ends if not finished},
        ends=[(until_ms, run_id) for run_id, _, _, until_ms in ends],
        history=[decode_record(text) for (text,) in records],
    )


@kept.register
def _(store: RedisHarness, jobs: Iterable[str]) -> list[Kept]:
    def read(client: Any) -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            for job in jobs:
                state, ended, expiry, history, records = store._redis._keys(job)
                pipeline.hgetall(state).hgetall(ended).zrange(expiry, 0, -1, withscores=True)
                pipeline.zrevrange(history, 0, -1).hgetall(records)
            return pipeline.execute()

    answers = store._redis._source.ask(read)
    return [_in_keys(*answers[start : start + 5]) for start in range(0, len(answers), 5)]


def _in_keys(state: Any, ended: Any, expiry: Any, history: Any, records: Any) -> Kept:
    own = {b"latest": "latest_ms", b"fence": "fence", b"history_limit": "history_limit"}
    found = Kept(**{own[name]: int(value) for name, value in state.items() if name in own})
    found.runs = {
        name[4:].decode(): _read_run(name[4:], text) for name, text in state.items() if name.startswith(b"run:")
    }
    for name, value in ended.items():
        run_id, token = _ended(name.decode())
        if token is None:
            found.finished[run_id] = value[3:].decode() if value.startswith(b"by:") else None
        else:
            found.releasers.add((run_id, token))
    numbered = [(*entry.decode().split(":", 1), int(until_ms)) for entry, until_ms in expiry]
    found.ends = [(until_ms, _ended(name)[0]) for _, name, until_ms in sorted(numbered, key=lambda end: int(end[0]))]
    assert set(history) == set(records), "the history and its records have parted"
    found.history = [decode_record(records[name]) for name in history]
    return found


def _ended(name: str) -> tuple[str, str | None]:
    """The run id, and the token where it is one that released the run."""
    kind, rest = name.split(":", 1)
    if kind == "run":
        return rest, None
    length, text = rest.split(":", 1)
    return text[int(length) :], text[: int(length)]
