"""What the tests with real processes share: fleets of workers, gone at the test's end with all that they kept."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from fleet import Fleet


@pytest.fixture
def make_fleet(tmp_path: Path, redis_url: str) -> Iterator[Callable[[str], Fleet]]:
    """Makes a fleet on a new, empty store of a kind: ``redis`` or ``sqlite``."""
    fleets: list[Fleet] = []

    def make(kind: str) -> Fleet:
        directory = tmp_path / f"fleet-{len(fleets)}"
        if kind == "sqlite":
            fleet = Fleet(directory, f"sqlite:///{directory}/jobs.db")
        else:
            fleet = Fleet(directory, redis_url, f"test:{uuid.uuid4().hex}:")
        fleets.append(fleet)
        return fleet

    yield make
    for fleet in fleets:
        fleet.close()
    for fleet in fleets:
        if fleet.prefix is not None:
            _remove_keys(fleet.url, fleet.prefix)
    # Whatever a worker lives through, it has no fault of its own to tell.
    for fleet in fleets:
        assert "Traceback" not in fleet.complaints(), fleet.complaints()


def _remove_keys(url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)
