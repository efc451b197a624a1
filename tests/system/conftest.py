"""What tests on real processes share: an installation, and a business's webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from harness.installation import Installation
from tests.system.webhook import Webhook


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Not started; on SQLite, with two robots of each kind."""
    async with Installation(tmp_path, None, {"TIDINGS_ROBOTS_PER_KIND": "2"}) as prepared:
        yield prepared


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    """It and its URL."""
    sink = Webhook()
    app = web.Application()
    app.router.add_post("/", sink.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield sink, f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()
