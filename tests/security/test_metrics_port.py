"""The Coreapp's metrics port has no login: nothing that is done there delays other work."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.security.attack import SLOWER, Attack
from tests.security.figures import Form
from tests.security.scene import Target


async def test_idle_metrics_connections_use_few_resources_of_the_coreapp(
    target: Target, attack: Attack, form: Form
) -> None:
    began = time.perf_counter()
    assert (await _scrape(target)).startswith(b"HTTP/1.1 200")
    usual = time.perf_counter() - began
    async with attack("connections that ask nothing of the metrics", on="coreapp", others=("read",)) as strike:
        for _ in range(form.count(short=100, long=1000)):
            with contextlib.suppress(OSError):
                await target.dial("metrics")
        await strike.last(form.pick(short=0.5, long=10.0))
    target.hang_up()
    async with asyncio.timeout(20 + SLOWER * usual):
        while not (await _scrape(target)).startswith(b"HTTP/1.1 200"):  # until the last slot is free again
            pass


async def _scrape(target: Target) -> bytes:
    reader, writer = await target.dial("metrics")
    with contextlib.suppress(OSError):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return await reader.read()
    return b""
