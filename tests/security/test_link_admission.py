"""The Coreapp's link before authentication, and its metrics port: every program on the machine can reach both."""

from __future__ import annotations

import asyncio
import contextlib

from tests.security.attack import Attack
from tests.security.figures import Form
from tests.security.scene import Target
from tidings.wire import core
from tidings.wire.connection import framed

MIB = 2**20
# Concurrent callers.
CALLERS = 20


async def test_unfinished_frames_on_the_link_use_little_memory(target: Target, attack: Attack, form: Form) -> None:
    beginning = (4 * MIB).to_bytes(4, "big") + bytes(2 * MIB)
    async with attack("frames on the link that never end", on="coreapp", others=("read",)) as strike:
        for _ in range(form.count(short=100, long=600)):
            _, writer = await target.dial("link")
            writer.write(beginning)
        await strike.last(form.pick(short=0.7, long=12.0))


async def test_repeated_wrong_link_keys_use_few_resources(target: Target, attack: Attack, form: Form) -> None:
    await _flood(target, attack, form, "link", framed(core.Hello(1, "wrong")))


async def test_a_flood_of_metrics_connections_uses_few_resources(target: Target, attack: Attack, form: Form) -> None:
    await _flood(target, attack, form, "metrics", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")


async def _flood(target: Target, attack: Attack, form: Form, place: str, words: bytes) -> None:
    async def call() -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    reader, writer = await target.dial(place, "127.0.0.1")
                    writer.write(words)
                    while await reader.read(65536):
                        pass

    async with attack(f"a flood of the {place}", on="coreapp", others=("read",)) as strike:
        callers = [asyncio.create_task(call()) for _ in range(CALLERS)]
        await strike.last(form.pick(short=1.0, long=20.0))
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
