"""Servers as processes of their own: started, asked, told by signals; what the site in them wrote of what it did."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from anarchon import RunRecord, Scheduler, open_backend

Line = dict[str, Any]

_HERE = Path(__file__).parent
_ROOT = Path(__file__).parents[3]
_BIN = Path(sys.executable).parent
# The packages, too: uWSGI starts itself anew by its binary, which knows nothing of a virtual environment.
_PATHS = (_ROOT, _HERE, sysconfig.get_path("purelib"))

#: No process waits this long for anything unless something is wrong.
_LONGEST_S = 90
_LOOK_AGAIN_S = 0.02
#: Servers of others lose a signal now and then.
_TELL_AGAIN_S = 15


class Served:
    """One server with the bare site in it, in a session of its own; it is gone, all of it, when this is killed.

    Args:
        directory: for the site's lines, the server's output and a socket; its path is short, as sockets' must be.
        url, prefix: the store.
        command: the server's program, as it stands beside Python's, and its arguments.
        job, every, options, hooks: see ``bare_site.py``.
        cwd: the server's working directory. In files there, too, ``{socket}`` stands for the socket to listen on.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        prefix: str | None,
        command: list[str],
        *,
        job: str = "tick",
        every: str = "1s",
        options: dict[str, Any] | None = None,
        hooks: tuple[str, ...] = (),
        cwd: Path = _HERE,
    ) -> None:
        self.directory = directory
        self.socket = directory / "s"
        self._log = directory / "lines"
        self._log.touch()
        self._url, self._prefix = url, prefix
        self._told: signal.Signals | None = None
        self._until = float("inf")
        given = {
            "log": str(self._log),
            "url": url,
            "prefix": prefix,
            "job": job,
            "every": every,
            # One server goes on while others are waited for: none of its records is to be cut off meanwhile.
            "options": {"history_limit": 1000, **(options or {})},
            "hooks": hooks,
        }
        for file in cwd.glob("*.ini"):
            file.write_text(file.read_text(encoding="utf-8").replace("{socket}", str(self.socket)), encoding="utf-8")
        program, *arguments = (part.format(socket=self.socket, directory=directory) for part in command)
        with open(directory / "output", "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable if program == "python" else str(_BIN / program), *arguments],
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS)), "BARE_SITE": json.dumps(given)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    # -- what happened

    @property
    def output(self) -> str:
        """What the server has printed."""
        return (self.directory / "output").read_text(encoding="utf-8", errors="replace")

    def all_lines(self) -> list[Line]:
        """The site's lines, in the order they were written."""
        return [*map(json.loads, self._log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines())]

    def processes(self) -> list[int]:
        """Those of its group that are left, but for zombies, which may be buried late or never."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, group = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
                if int(group) == self.process.pid and state not in "ZX":
                    found.append(int(stat.parent.name))
        return found

    def lines(self, what: str) -> list[Line]:
        """The site's lines of one kind."""
        return [line for line in self.all_lines() if line["what"] == what]

    def pids(self, what: str) -> list[int]:
        """The processes that wrote a line of that kind, once for each."""
        return [line["pid"] for line in self.lines(what)]

    def history(self) -> list[RunRecord]:
        """The job's records, newest first."""
        return self._read(lambda reader: reader.history("job", 1000))

    def leases(self) -> list[str]:
        """Who holds a lease that is live."""
        runs = self._read(lambda reader: reader.active("job"))
        return [run.instance_id for run in runs if run.lease_left > 0]

    def _read(self, ask: Callable[[Scheduler], Any]) -> Any:
        reader = Scheduler(open_backend(self._url, prefix=self._prefix))
        try:
            return ask(reader)
        finally:
            reader.stop()

    # -- waiting and asking

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, condition: Any, what: str) -> Any:
        """Waits for a condition and returns what it gave."""
        deadline = time.monotonic() + _LONGEST_S
        while True:
            running = self.running  # asked first: it may do what is waited for, and then end
            if found := condition():
                return found
            assert running, f"{what}: the server has ended.\n{self.output}"
            assert time.monotonic() < deadline, f"{what}: not within {_LONGEST_S} s.\n{self.output}"
            time.sleep(_LOOK_AGAIN_S)

    def wait_for(self, what: str, count: int) -> list[Line]:
        """Waits for that many of the site's lines."""
        self.wait_until(lambda: len(self.lines(what)) >= count, f"{count} lines {what!r}")
        return self.lines(what)

    def wait_until_all_hear(self, processes: int) -> None:
        """Waits until there are so many processes, the first one included, and each hears what it is told.

        uWSGI's workers call the site's hook a moment before they do, and its master begins to when it has forked them
        all. What they are told before that, such as to end, is lost.
        """

        def all_hear() -> bool:
            pids = self.processes()
            return len(pids) >= processes and all(map(_hears, pids))

        self.wait_until(all_hear, f"{processes} processes that listen to signals")

    def get(self, path: str = "/") -> int:
        """Asks the site through the server's socket; the process that answered, or 0 where none could be reached."""
        connection = http.client.HTTPConnection("site", timeout=_LONGEST_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_LONGEST_S)
        try:
            connection.sock.connect(str(self.socket))
            connection.request("GET", path, headers={"Connection": "close"})
            return int(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    # -- the end

    def tell(self, number: signal.Signals = signal.SIGTERM, *, each: bool = False) -> None:
        """Tells the server to end, and returns at once: what is to be ended beside others need not wait for them.

        Args:
            each: tells every process, as Ctrl-C does, and not only the first one.
        """
        if self._told is None:
            self._until = max((line["slot"] for line in self.lines("begin")), default=0)
        with suppress(ProcessLookupError):
            (os.killpg if each else os.kill)(self.process.pid, number)
        self._told = number

    def end(self, number: signal.Signals = signal.SIGTERM, *, each: bool = False) -> int:
        """Tells the server to end, unless it has been told, and waits until all of its processes have ended.

        Returns:
            Its exit status.
        """
        deadline = time.monotonic() + _LONGEST_S
        if self._told != number:
            self.tell(number, each=each)
        again = time.monotonic() + _TELL_AGAIN_S
        while self.running or self.processes():
            assert time.monotonic() < deadline, f"It goes on after {number.name}.\n{self.output}"
            if time.monotonic() > again:
                self.tell(number, each=each or not self.running)
                again += _TELL_AGAIN_S
            time.sleep(_LOOK_AGAIN_S)
        return self.process.wait()

    def kill(self) -> None:
        """Ends all of its processes at once, where the end is not what is tested; what they did until then stands."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_LONGEST_S)
        while self.processes():
            time.sleep(0.001)

    # -- judging

    def faults(self, servers: int | None = None) -> list[str]:
        """What is wrong with what the site did, as sentences.

        Args:
            servers: how many processes should have started the scheduler. None: those that come and go are not counted.
        """
        starts = Counter(self.pids("start"))
        names: dict[int, set[str]] = defaultdict(set)
        for line in self.lines("start"):
            names[line["pid"]].add(line["instance"])
        faults = [f"{pid} has started {count} times." for pid, count in starts.items() if count > 1]
        if servers is not None and len(starts) != servers:
            faults.append(f"{len(starts)} processes have started, not {servers}.")
        if self.process.pid in starts and servers != 1:
            faults.append("The first process has started.")
        if len(set.union(set(), *names.values())) != len(starts):
            faults.append(f"The instances' names are {dict(names)}.")
        for line in self.lines("begin"):
            if line["pid"] not in starts or line["name"] not in names[line["pid"]]:
                faults.append(f"A run in {line['pid']} by {line['name']}, which has not started.")
        slots = Counter(line["slot"] for line in self.lines("begin"))
        faults += [f"The slot {slot} has run {count} times." for slot, count in slots.items() if count > 1]
        return faults

    def untrue(self) -> list[str]:
        """What the history tells otherwise than it was; a run that met the end of its process may not have begun."""
        begun = Counter(line["slot"] for line in self.lines("begin"))
        told = Counter(record.slot.timestamp() for record in self.history() if record.status == "success")
        faults = [
            f"The slot {slot} has not succeeded as often as it began." for slot in (begun - told) + (told - begun)
        ]
        others = {record.status for record in self.history()} - {"success", "interrupted"}
        return [*faults, *(f"A run of this job cannot be {status}." for status in others)]

    def has_run_after(self, first: int) -> bool:
        """Whether a process that started after so many others has run the job."""
        return not set(self.pids("start")[first:]).isdisjoint(self.pids("begin"))

    def missing(self) -> list[float]:
        """The slots between the first run and the last that nobody has run, nor passed over, as on a busy machine.

        The last is the newest that had begun when the server was told to end: a worker that ends gives back what it has
        not begun, and another one that takes longer to end may have a newer slot by then.
        """
        slots = [line["slot"] for line in self.lines("begin")]
        told = {*slots, *(line["slot"] for line in self.lines("passed-over"))}
        return [slot for slot in range(int(min(slots)), int(min(max(slots), self._until))) if slot not in told]


def _hears(pid: int) -> bool:
    """Whether it has set what signals do to it. SIGUSR1 is the last that uWSGI sets."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        caught = int(re.findall(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)[0], 16)
        return bool(caught >> (signal.SIGUSR1 - 1) & 1)
    return False


@pytest.fixture(scope="module")
def serve(redis_url: str) -> Iterator[Callable[..., Served]]:
    """Starts servers, each on a new store: ``serve("redis", "gunicorn", ...)``; all are gone after the tests of a file.

    Those of all its tests are best started together: they go on while others are waited for.
    """
    with tempfile.TemporaryDirectory(prefix="served-", ignore_cleanup_errors=True) as parent:
        servers: list[Served] = []
        prefix = f"test:{uuid.uuid4().hex}:"

        def start(store: str, *command: str, **more: Any) -> Served:
            directory = Path(parent, str(len(servers)))
            directory.mkdir()
            if store == "redis":
                servers.append(Served(directory, redis_url, f"{prefix}{len(servers)}:", [*command], **more))
            else:
                servers.append(Served(directory, f"sqlite:///{directory}/jobs.db", None, [*command], **more))
            return servers[-1]

        try:
            yield start
        finally:
            for server in servers:
                server.kill()
            with redis.Redis.from_url(redis_url, protocol=2) as client:
                for key in client.scan_iter(match=f"{prefix}*", count=1000):
                    client.delete(key)
