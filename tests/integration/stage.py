"""A stage on which a scenario is played: fleets, servers and directories, all gone at its end.

Scenarios of real time are played side by side, for most of each is waiting. A test that has one says so:
``@pytest.mark.at_once(scenario=...)``, and asks the fixture ``played`` (``conftest.py``) what came of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import redis
from fleet import Fleet, together
from servers import RedisServer

__all__ = ["Stage"]


class Stage:
    """Every method may be called on any thread. Close it, and what was made is gone.

    Args:
        directory: for all files.
        redis_url: of the session's server.
    """

    def __init__(self, directory: Path, redis_url: str) -> None:
        self._directory = directory
        self._redis_url = redis_url
        self._made = ExitStack()
        self._fleets: list[Fleet] = []

    def directory(self) -> Path:
        """A name for a new directory; nothing is there yet."""
        return self._directory / uuid.uuid4().hex[:8]

    def fleet(self, kind: str) -> Fleet:
        """A fleet on a new, empty store of a kind: ``redis`` or ``sqlite``."""
        directory = self.directory()
        if kind == "sqlite":
            return self.fleet_on(f"sqlite:///{directory}/jobs.db", directory)
        prefix = f"test:{uuid.uuid4().hex}:"
        self._made.callback(_remove_keys, self._redis_url, prefix)
        return self.fleet_on(self._redis_url, directory, prefix)

    def fleet_on(self, url: str, directory: Path, prefix: str | None = None) -> Fleet:
        """A fleet on a store that is there already, or will be."""
        fleet = Fleet(directory, url, prefix)
        self._fleets.append(fleet)
        self._made.callback(fleet.close)
        return fleet

    def on_each_store(self, scenario: Callable[[Fleet], None]) -> None:
        """Plays it on a fleet on each kind of store, at once.

        Once more, on a new one, where it failed and somebody had lost a lease that was not meant to be lost: a machine
        that stands still for most of a lease ends it.
        """

        def play(kind: str) -> None:
            fleet = self.fleet(kind)
            try:
                scenario(fleet)
            except AssertionError as failure:
                lost = fleet.lost_by_standstill()
                if not lost:
                    raise
                print(f"{fleet!r} is played once more, for {lost}: {failure}")
                fleet.close()
                scenario(self.fleet(kind))

        together(["redis", "sqlite"], play)

    def redis_server(self) -> RedisServer:
        """A private server, which serves."""
        server = RedisServer(self.directory())
        self._made.callback(server.kill)
        return server.start()

    def close(self) -> None:
        """Ends and removes what was made.

        Raises:
            AssertionError: a worker had a fault of its own to tell, whatever it has lived through.
        """
        self._made.close()
        for fleet in self._fleets:
            assert "Traceback" not in fleet.complaints(), fleet.complaints()


def _remove_keys(url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)
