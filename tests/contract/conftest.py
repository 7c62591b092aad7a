"""The fixtures that run a test once for every lease backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, MemoryHarness, RedisHarness, SQLiteHarness


@pytest.fixture(params=["memory", "sqlite", "redis"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Makes a new, empty store; whoever calls it closes it."""
    if request.param == "memory":
        return MemoryHarness
    if request.param == "sqlite":
        return lambda: SQLiteHarness(tmp_path)
    url = request.getfixturevalue("redis_url")
    return lambda: RedisHarness(url)


@pytest.fixture
def store(make_store: Callable[[], Harness]) -> Iterator[Harness]:
    """A new, empty store."""
    harness = make_store()
    yield harness
    harness.close()
