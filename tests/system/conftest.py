"""Fixtures for tests on real processes: an installation, and a business's webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.installation import Installation
from tests.system.webhook import Webhook, listening


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Installation that is not started; on SQLite, with two robots of each kind."""
    async with Installation(tmp_path, None, {"TIDINGS_ROBOTS_PER_KIND": "2"}) as prepared:
        yield prepared


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    """Yield a webhook and its URL."""
    async with listening() as found:
        yield found
