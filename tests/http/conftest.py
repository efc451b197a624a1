"""Server over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.support import Server, serve


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serve() as server:
        yield server
