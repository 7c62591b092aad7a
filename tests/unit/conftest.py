"""What the tests of the running core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A world of its own, all threads of which must be gone at the end."""
    world = World()
    yield world
    world.close()
