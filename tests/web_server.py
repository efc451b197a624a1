"""Web servers for tests: a webhook, a host of linked files, a collector of traces."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def serving(app: web.Application, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve an application on a free loopback port during the block. Yields its URL without a slash at the end."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        yield f"http{'s' if ssl_context else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
