"""What is done while the demo goes on: every line that the workers tell is told to people, and one worker is killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from anarchon.clock import SystemClock
from anarchon.demo.judge import Facts, clock_time, expected
from anarchon.demo.lines import Line
from anarchon.demo.plan import BILLING_LEASE_MS, EVERY_MS, JOBS, LONGEST_MS, WORKERS
from anarchon.demo.processes import Workers
from anarchon.durations import format_duration, from_ms
from anarchon.scheduler import Scheduler

__all__ = ["Watcher"]

#: How long after both workers are ready billing is due, and how long all of it lasts if nothing takes longer.
_DUE_AFTER_MS = 2_000
_LASTS_MS = 15_000

#: The steps of billing that are its middle.
_MIDDLE = range(2, 7)


class Watcher:
    """What is known so far, and what is done about it.

    Args:
        reader: a scheduler without jobs on the workers' store.
        path: of that store.
        tell: called with each line for people.
    """

    def __init__(self, workers: Workers, reader: Scheduler, path: str, tell: Callable[[str], object]) -> None:
        self._clock = SystemClock()
        self._workers = workers
        self._reader = reader
        self._path = path
        self._tell = tell
        self._from_ms = self._clock.now_ms()
        self._lines: list[Line] = []
        self._up: set[str] = set()
        self._stored: set[tuple[str, int]] = set()
        self._late: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._holder: str | None = None
        self._steps = 0
        self._killed: str | None = None
        self._heartbeat_ms: int | None = None
        self._since_ms: int | None = None
        self._until_ms: int | None = None

    def watch(self) -> Facts:
        """Goes on until both workers have ended."""
        self._tell(f"Two workers share {self._path}. Slots are in UTC.\n")
        for name in WORKERS:
            self._say(f"{name} starts, process {self._workers.start(name)}")
        deadline_ms = self._clock.monotonic_ms() + LONGEST_MS
        for line in self._workers.lines():
            self._lines.append(line)
            getattr(self, f"_on_{line.what}")(line)
            self._kill_in_the_middle()
            if self._seen_all() or self._clock.monotonic_ms() > deadline_ms:
                self._workers.stop()
        exit_codes = self._workers.exit_codes()
        self._say("both are gone")
        history = [record for job in JOBS for record in self._reader.history(job, limit=200)]
        until_ms = self._until_ms if self._until_ms is not None else self._clock.now_ms()
        # Where none has started, no slot can be expected of them.
        since_ms = self._since_ms if self._since_ms is not None else until_ms
        return Facts(self._lines, history, self._killed, exit_codes, since_ms, until_ms)

    def _on_ready(self, line: Line) -> None:
        self._up.add(line.worker)
        if len(self._up) == len(WORKERS):
            self._up.clear()
            due_ms = (self._clock.now_ms() + _DUE_AFTER_MS) // 1000 * 1000
            # Once a day at that second: no other slot of it will come in between.
            self._workers.tell(from_ms(due_ms).strftime("%S %M %H * * *"))
            self._say(f"both are ready: tick is due every 1s, report every 5s, billing at {clock_time(due_ms)}")

    def _on_started(self, line: Line) -> None:
        self._up.add(line.worker)
        self._since_ms = self._since_ms or line.at_ms

    def _on_begin(self, line: Line) -> None:
        run = f"{line.job} {clock_time(line.slot_ms)}"
        if line.job != "billing":
            self._say(f"{line.worker} runs {run}", line)
        elif line.attempt == 1:
            self._holder = line.worker
            lease = format_duration(BILLING_LEASE_MS)
            self._say(f"{line.worker} runs {run}, attempt 1, which takes some seconds; its lease is {lease}", line)
        else:
            self._say(f"{line.worker} takes over {run}, attempt {line.attempt}{self._after_heartbeat(line)}", line)

    def _on_step(self, line: Line) -> None:
        self._steps += 1

    def _on_end(self, line: Line) -> None:
        """What counts is that it is stored."""

    def _on_stored(self, line: Line) -> None:
        self._stored.add((line.job, line.slot_ms))
        if line.job == "billing":
            self._say(f"{line.worker} has ended billing, attempt {line.attempt}", line)
            self._until_ms = max(self._from_ms + _LASTS_MS, line.at_ms) // 1000 * 1000

    def _on_late(self, line: Line) -> None:
        self._late[line.job, line.slot_ms].add(line.worker)
        self._say(f"{line.worker} comes too late for {line.job} {clock_time(line.slot_ms)}", line)

    def _on_error(self, line: Line) -> None:
        self._say(f"{line.worker} met an error: {line.text}", line)

    def _kill_in_the_middle(self) -> None:
        """Kills the holder of billing, at a moment when it holds nothing else.

        A tick that it takes with it could rightly be lost or run again, and nobody could tell that from a fault. So:
          1. every slot that was due is over, and the next is still to come
          2. it is frozen
          3. if the next slot has not come even now, it has not claimed it, and never will; else it is let go on
        """
        now_ms = self._clock.now_ms()
        if self._killed or self._holder is None or len(self._up) < len(WORKERS) or self._steps not in _MIDDLE:
            return
        if not self._all_over(now_ms):
            return
        self._workers.freeze(self._holder)
        if self._clock.now_ms() // 1000 > now_ms // 1000:
            self._workers.thaw(self._holder)
            return
        self._workers.kill(self._holder)
        self._killed = self._holder
        self._say(f"{self._killed} is killed (kill -9) in the middle of billing")
        self._heartbeat_ms = self._last_heartbeat_ms()

    def _all_over(self, until_ms: int) -> bool:
        """Whether each slot is stored, or has passed while all who live were late for it."""
        assert self._since_ms is not None
        alive = set(WORKERS) - {self._killed}
        return all(slot in self._stored or self._late[slot] >= alive for slot in expected(self._since_ms, until_ms))

    def _last_heartbeat_ms(self) -> int | None:
        """When the holder last renewed its lease, as the store has it; None where the lease is over already."""
        # Before the store is asked: an answer that takes its time must not make the lease seem younger than it is.
        now_ms = self._clock.now_ms()
        for run in self._reader.active("billing"):
            if run.lease_left > 0 and run.instance_id == self._killed:
                return now_ms + round(run.lease_left * 1000) - BILLING_LEASE_MS
        return None

    def _after_heartbeat(self, line: Line) -> str:
        if self._heartbeat_ms is None:
            return ""
        return f", {(line.at_ms - self._heartbeat_ms) / 1000:.1f} s after the last heartbeat of {self._killed}"

    def _seen_all(self) -> bool:
        """Whether every slot that is expected has been seen; one that is missing is waited for, but not for ever."""
        if self._until_ms is None:
            return False
        patience_ms = self._until_ms + max(EVERY_MS.values())
        return self._all_over(self._until_ms) or self._clock.now_ms() > patience_ms

    def _say(self, text: str, line: Line | None = None) -> None:
        at_ms = self._clock.now_ms() if line is None else line.at_ms
        self._tell(f"{(at_ms - self._from_ms) / 1000:5.1f} s  {text}")
