"""Requests whose head never ends: the example of an attack on the Webapp and the network."""

from __future__ import annotations

import asyncio

import pytest

from tests.security.attack import Attack
from tests.security.figures import Form
from tests.security.scene import Target


@pytest.mark.parametrize("place", ["webapp", "network"])
async def test_unfinished_request_heads_use_few_resources(
    target: Target, attack: Attack, form: Form, place: str
) -> None:
    async with attack("heads that never end", on=place, others=(place,)):
        writers = []
        for number in range(form.count(short=50, long=200)):
            _, writer = await target.dial(place)
            writer.write(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX-%d: " % number)
            writers.append(writer)
        for _ in range(form.count(short=2, long=20)):
            for writer in writers:
                writer.write(b"a")
            await asyncio.sleep(0.5)
