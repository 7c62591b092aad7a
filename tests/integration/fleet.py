"""Fleets: worker processes (``worker.py``) on one store, and what they wrote of what they did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anarchon import LeaseBackend, Scheduler, open_backend
from anarchon.testing import RunLog

__all__ = ["Fleet", "Line", "Worker", "cron_at", "only", "together"]

Line = dict[str, Any]
#: A fleet, or the kind of store that it is to be on.
_On = TypeVar("_On")

_ROOT = Path(__file__).resolve().parents[2]
_LOOK_AGAIN_S = 0.05

# A process that begins keeps a processor busy. Where many fleets are played at once, those that are at work already
# would come too late for everything if all the others began at one time.
_beginning = threading.Semaphore(3)


class Worker:
    """One process of a fleet."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], complaints: Path) -> None:
        self.name = name
        self._process = process
        self._complaints = complaints
        self._told_to_end = False
        self.was_paused = False

    @property
    def complaints(self) -> str:
        """What it has written to its standard error."""
        return self._complaints.read_text(encoding="utf-8")

    def ask(self, wish: str, **more: Any) -> None:
        """Asks for something; what comes of it is in the log. See the methods of ``Worker`` in ``worker.py``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": wish, **more}).encode() + b"\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        self.was_paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM; returns at once."""
        self._told_to_end = True
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``, for it and for its children; returns when it is gone."""
        self._told_to_end = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def wait(self, timeout_s: float = 60) -> int:
        """Waits for its end; returns its exit status."""
        self._process.wait(timeout_s)
        self._end()
        return self._process.returncode

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether it has ended though nobody told it to."""
        return not self._told_to_end and not self.running

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class Fleet:
    """Worker processes on one store. Every method may be called on any thread; close it, and they are gone.

    Args:
        directory: for its log and what its workers complain of.
        url, prefix: of the store.

    Attributes:
        runs: what the handlers of the workers that were told so have written for the oracle.
    """

    def __init__(self, directory: Path, url: str, prefix: str | None = None) -> None:
        directory.mkdir()
        self.url = url
        self.prefix = prefix
        self._runs = directory / "runs"
        self.runs = RunLog(self._runs)
        self.workers: dict[str, Worker] = {}
        self._directory = directory
        self._log = directory / "log"
        self._log.touch()
        self._runs.touch()
        self._lock = threading.Lock()
        self._read = 0
        self._lines: list[Line] = []
        self._lines_by_what: dict[str, list[Line]] = defaultdict(list)

    def __repr__(self) -> str:
        return f"<Fleet on {self.url.partition(':')[0]}>"

    def start(
        self,
        name: str,
        jobs: Iterable[Line] = (),
        *,
        skew_ms: int = 0,
        stop_timeout: str = "20s",
        renewals: bool = False,
        runs: bool = False,
        url: str | None = None,
        script: str = "worker.py",
    ) -> Worker:
        """Starts a worker and returns at once; its log says ``ready`` when its scheduler has been started.

        Args:
            runs: whether its handlers write to ``runs``, too.
            script: what is run, where it is not ``worker.py`` itself.
        """
        given = {"jobs": list(jobs), "skew_ms": skew_ms, "stop_timeout": stop_timeout, "renewals": renewals}
        if runs:
            given["runs"] = str(self._runs)
        if url is not None:
            given["url"] = url
        return self.launch(name, script, given)

    def launch(
        self,
        name: str,
        script: str,
        given: Line,
        *,
        warnings: tuple[str, ...] = ("error",),
        environ: Mapping[str, str] | None = None,
    ) -> Worker:
        """Starts any script of this directory that takes what it is given as JSON and writes the log of a worker.

        Args:
            environ: more of its environment.
        """
        given = {"name": name, "log": str(self._log), "url": self.url, "prefix": self.prefix, **given}
        options = [part for each in warnings for part in ("-W", each)]
        complaints = self._directory / f"{name}.err"
        with open(complaints, "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *options, str(Path(__file__).with_name(script)), json.dumps(given)],
                env={**os.environ, "PYTHONPATH": str(_ROOT), **(environ or {})},
                stdin=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        worker = self.workers[name] = Worker(name, process, complaints)
        return worker

    def restart(self, name: str, jobs: Iterable[Line] = (), **more: Any) -> None:
        """Starts a worker anew, after its end, and waits until it is ready."""
        before = len(self.lines("ready", worker=name))
        self.start(name, jobs, **more)
        self.wait_for(before + 1, what="ready", worker=name)

    def start_all(self, names: Iterable[str], jobs: Iterable[Line] = (), **more: Any) -> None:
        """Starts several workers and waits until all are ready."""
        names, jobs = list(names), list(jobs)
        self.begin({name: partial(self.start, name, jobs, **more) for name in names})

    def begin(self, starts: Mapping[str, Callable[[], object]]) -> None:
        """Starts workers, each by its name and in its own way, in their turn among all fleets; waits for all."""
        with _beginning:
            for start in starts.values():
                start()
            for name in starts:
                self.wait_for(what="ready", worker=name)

    def lines(self, what: str | None = None, **wanted: Any) -> list[Line]:
        """What has been logged so far, in order, as far as it has these values."""
        with self._lock:
            with open(self._log, "rb") as log:
                log.seek(self._read)
                whole = log.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                for line in map(json.loads, whole.split(b"\n")):
                    self._lines.append(line)
                    self._lines_by_what[line["what"]].append(line)
            lines = list(self._lines if what is None else self._lines_by_what[what])
        return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]

    def lost_by_standstill(self) -> list[Line]:
        """Who was told of a lost lease though the test had not paused it."""
        paused = [worker.name for worker in self.workers.values() if worker.was_paused]
        return [line for line in self.lines("told", reason="lease-lost") if line["worker"] not in paused]

    def note(self, what: str, **more: Any) -> None:
        """Adds a line of the test's own to the log."""
        line = {"what": what, "wall_ms": time.time_ns() // 1_000_000, **more}
        with open(self._log, "ab", buffering=0) as log:
            log.write(json.dumps(line).encode() + b"\n")

    def wait_for(self, count: int = 1, timeout_s: float = 60, **wanted: Any) -> list[Line]:
        """Waits until so many such lines have been logged; returns all that have."""
        self.wait_until(lambda: len(self.lines(**wanted)) >= count, f"{count} lines with {wanted}", timeout_s)
        return self.lines(**wanted)

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Waits for something that comes to pass."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            died = [worker.name for worker in list(self.workers.values()) if worker.died]
            if died or time.monotonic() > deadline:
                raise AssertionError(f"{self!r}: not in time: {what}; died: {died}\n{self._told()}")
            time.sleep(_LOOK_AGAIN_S)

    def wait_for_value(self, ask: Callable[[], int | None], what: str, timeout_s: float = 60) -> int:
        """Waits until there is a number, and returns it."""
        found: list[int] = []

        def is_there() -> bool:
            number = ask()
            if number is not None:
                found.append(number)
            return number is not None

        self.wait_until(is_there, what, timeout_s)
        return found[0]

    def stop(self) -> None:
        """Stops every worker that runs, and waits for its end: each must end in time."""
        stopped = [worker for worker in list(self.workers.values()) if worker.running]
        for worker in stopped:
            worker.terminate()
        assert [worker.wait() for worker in stopped] == [0] * len(stopped), self._told()

    def close(self) -> None:
        """Kills what still runs."""
        for worker in list(self.workers.values()):
            worker.kill()

    def complaints(self) -> str:
        """What all workers have written to their standard errors."""
        return "".join(worker.complaints for worker in list(self.workers.values()))

    def reader(self) -> Scheduler:
        """A scheduler of this process that only reads; the caller stops it."""
        return Scheduler(self.backend())

    def backend(self) -> LeaseBackend:
        """The store; the caller closes it."""
        return open_backend(self.url, prefix=self.prefix)

    def _told(self) -> str:
        lines = "\n".join(map(str, self.lines()[-30:]))
        return f"{lines}\n{self.complaints()[-4000:]}"


def only(lines: list[Line]) -> Line:
    """The one line that there must be."""
    assert len(lines) == 1, lines
    return lines[0]


def cron_at(*instants_ms: int) -> str:
    """A cron text with seconds for instants of one minute, once a year; seconds are cut."""
    instants = [datetime.fromtimestamp(ms // 1000, timezone.utc) for ms in instants_ms]
    first = instants[0]
    assert {instant.minute for instant in instants} == {first.minute}, instants
    seconds = ",".join(str(instant.second) for instant in instants)
    return f"{seconds} {first.minute} {first.hour} {first.day} {first.month} *"


def together(fleets: Iterable[_On], scenario: Callable[[_On], None]) -> None:
    """Plays the scenario on several fleets at once: most of it is waiting. Raises what any of them raised."""
    failures: list[tuple[_On, BaseException]] = []

    def play(fleet: _On) -> None:
        try:
            scenario(fleet)
        except BaseException as failure:
            failures.append((fleet, failure))

    threads = [threading.Thread(target=play, args=(fleet,)) for fleet in fleets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fleet, failure in failures:
        raise AssertionError(f"{fleet!r}: {failure}") from failure
