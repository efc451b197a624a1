"""Web servers of a test: a webhook, whoever has the file of a link, a collector of traces."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def serving(app: web.Application, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """An application on a free port of loopback for the time of the block; its URL, without a slash at the end."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
        yield f"http{'s' if ssl_context else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
