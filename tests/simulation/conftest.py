"""What the tests that let storms loose share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_log() -> Iterator[None]:
    """A storm says a great deal."""
    logger = logging.getLogger("anarchon")
    before = logger.disabled
    logger.disabled = True
    yield
    logger.disabled = before
