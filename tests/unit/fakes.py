"""What stands in for the world outside in these tests: chance that can be told, and a store that does as it is told."""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from typing import Any

from anarchon.backends import ClaimOnlyBackend, LeaseBackend
from anarchon.backends.memory import MemoryBackend
from anarchon.clock import Clock
from anarchon.errors import BackendError
from anarchon.records import ActiveRun, ClaimReply, ClaimRequest, RunRecord, Verdict


class SeededChance:
    """Chance that is the same in every run; ``pick`` may be replaced: it takes both bounds and gives the draw."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._tokens = 0
        self.draws: list[tuple[int, int]] = []
        self.pick: Callable[[int, int], int] = self._random.randint

    def token(self) -> str:
        with self._lock:
            self._tokens += 1
            return f"token-{self._tokens}"

    def between(self, low_ms: int, high_ms: int) -> int:
        with self._lock:
            self.draws.append((low_ms, high_ms))
            return self.pick(low_ms, high_ms)


class Hang:
    """A call that does not come back until it is let go, or (``ms``) for that long on the test's clock."""

    def __init__(self, clock: Clock, ms: int | None = None, then: str = "work") -> None:
        self._clock = clock
        self._ms = ms
        self._let_go = clock.event()
        self.then = then
        self.hangs = clock.event()

    def __call__(self) -> None:
        self.hangs.set()
        self._clock.wait(self._let_go, self._ms)

    def let_go(self) -> None:
        self._let_go.set()


class Script:
    """What the next calls of each verb do: one act a call, in order; then they work again.

    An act is ``"work"``, ``"fail"`` (before anything happens), ``"lose"`` (it happens, and the answer is lost), a
    ``Hang``, an exception to raise, or a function to call first. ``down`` makes every call fail.
    """

    def __init__(self) -> None:
        self._acts: dict[str, deque[Any]] = defaultdict(deque)
        self._hangs: list[Hang] = []
        self.down = False
        #: Every call, in order: the verb and what it was given.
        self.calls: list[tuple[Any, ...]] = []

    def next(self, verb: str, *acts: Any) -> None:
        self._acts[verb].extend(acts)
        self._hangs += [act for act in acts if isinstance(act, Hang)]

    def end(self) -> None:
        """From now on the store works, and lets go whatever hangs."""
        self.down = False
        self._acts.clear()
        for hang in self._hangs:
            hang.let_go()

    def sent(self, verb: str) -> list[tuple[Any, ...]]:
        """What each call of the verb was given."""
        return [arguments for called, *arguments in self.calls if called == verb]

    def play(self, verb: str, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        self.calls.append((verb, *arguments))
        if self.down:
            raise BackendError("the store is down")
        try:
            act = self._acts[verb].popleft()
        except IndexError:  # rather than a look first: between the two, another thread could take the last one
            act = "work"
        if isinstance(act, Hang):
            act()
            act = act.then
        if isinstance(act, BaseException):
            raise act
        if act == "fail":
            raise BackendError(f"{verb} did not get through")
        if callable(act):
            act()
        answer = call()
        if act == "lose":
            raise BackendError(f"the answer to {verb} was lost")
        return answer


class ScriptedBackend(LeaseBackend):
    """A lease backend that goes by a script, over one in memory."""

    def __init__(self, store: MemoryBackend) -> None:
        self.store = store
        self.script = Script()
        self.closed = 0
        self.clocks: dict[str, Hashable] = {}
        self.bounds: list[int] = []

    def claim(self, request: ClaimRequest) -> ClaimReply:
        return self.script.play("claim", (request,), lambda: self.store.claim(request))

    def heartbeat(self, job: str, run_id: str, token: str, lease_ms: int) -> Verdict:
        given = (job, run_id, token, lease_ms)
        return self.script.play("heartbeat", given, lambda: self.store.heartbeat(*given))

    def finish(self, job: str, run_id: str, token: str, record: RunRecord) -> Verdict:
        given = (job, run_id, token, record)
        return self.script.play("finish", given, lambda: self.store.finish(*given))

    def release(self, job: str, run_id: str, token: str, record: RunRecord, counts: bool) -> Verdict:
        given = (job, run_id, token, record, counts)
        return self.script.play("release", given, lambda: self.store.release(*given))

    def save_result(self, job: str, record: RunRecord) -> None:
        self.script.play("save_result", (job, record), lambda: self.store.save_result(job, record))

    def time(self, job: str) -> int:
        return self.script.play("time", (job,), lambda: self.store.time(job))

    def active(self, job: str) -> list[ActiveRun]:
        return self.script.play("active", (job,), lambda: self.store.active(job))

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self.script.play("history", (job, limit), lambda: self.store.history(job, limit))

    def forget(self, job: str) -> None:
        self.script.play("forget", (job,), lambda: self.store.forget(job))

    def bound_calls(self, limit_ms: int) -> None:
        self.bounds.append(limit_ms)

    def clock_of(self, job: str) -> Hashable:
        return self.clocks.get(job)

    def close(self) -> None:
        self.closed += 1


class FirstComeBackend(ClaimOnlyBackend):
    """A claim-only backend in memory, by a script."""

    def __init__(self) -> None:
        self.script = Script()
        self._lock = threading.Lock()
        self._holders: dict[tuple[str, int], str] = {}
        self._records: dict[str, list[RunRecord]] = defaultdict(list)

    def claim(self, job: str, slot_ms: int, token: str) -> bool:
        return self.script.play("claim", (job, slot_ms, token), lambda: self._claim(job, slot_ms, token))

    def _claim(self, job: str, slot_ms: int, token: str) -> bool:
        with self._lock:
            return self._holders.setdefault((job, slot_ms), token) == token

    def save_result(self, job: str, record: RunRecord, history_limit: int) -> None:
        self.script.play("save_result", (job, record, history_limit), lambda: self._save(job, record, history_limit))

    def _save(self, job: str, record: RunRecord, history_limit: int) -> None:
        with self._lock:
            self._records[job] = [record, *self._records[job]][:history_limit]

    def history(self, job: str, limit: int) -> list[RunRecord]:
        return self.script.play("history", (job, limit), lambda: self._records[job][:limit])

    def forget(self, job: str) -> None:
        self.script.play("forget", (job,), lambda: self._records.pop(job, None))
