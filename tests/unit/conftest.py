"""What the tests of the running core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from world import World

# The same examples in every run, and nothing kept between two; nor is it a fault of theirs that a machine is busy.
settings.register_profile(
    "the same everywhere", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("the same everywhere")


@pytest.fixture
def world() -> Iterator[World]:
    """A world of its own, all threads of which must be gone at the end."""
    world = World()
    yield world
    world.close()
