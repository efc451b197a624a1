"""A webhook receiver and a media host whose responses never end: what they cost the Coreapp, and those who send."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from harness import measure
from tests.hostile_responses import ALL, HostileHost
from tests.security import scene
from tests.security.attack import BESIDE_OTHERS, Attack, Strike
from tests.security.figures import Figures, Form
from tests.security.scene import READERS, Target

# Seconds. Of `POST /v1/messages`, for 99 of 100.
P99 = 0.2
# Percent of a core, for all downloads.
DOWNLOADS = 10.0
# Links that are sent in a second; each is tried three times.
LINKS = 8
OTHERS = ("messages",)
SHORT_POSTS, SHORT_LINKS = ("interim responses",), ("chunks of one byte",)


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Target]:
    """An installation whose backlog of callbacks is nobody else's."""
    async with scene.running(tmp_path) as target:
        yield target


async def epochs(target: Target) -> float:
    """Grows with each lease that is lost and claimed again."""
    return await target.metric("coreapp", "tidings_shard_epoch")


def note_p99(strike: Strike, form: Form) -> None:
    took = strike.waited["messages"].took
    limit = P99 if form.long else P99 * BESIDE_OTHERS
    strike.figure("p99 of POST /v1/messages", measure.percentiles(took)["p99"], limit, "s")


async def test_a_webhook_receiver_delays_no_message_and_costs_no_lease(
    own: Target, figures: Figures, form: Form
) -> None:
    attack = Attack(own, figures, form)
    for name in ALL if form.long else SHORT_POSTS:
        before = await epochs(own)
        with HostileHost(ALL[name]) as host:
            await own.business.set_webhook(host.url)
            async with attack(f"webhook: {name}", on="coreapp", others=OTHERS, cpu=None, delay=None) as strike:
                await strike.last(form.pick(short=3.0, long=18.0))
            strike.figure("connections made", host.connections, 1, at_least=True)
            strike.figure("bytes sent a connection", host.sent / host.connections, None)
        note_p99(strike, form)
        strike.figure("leases lost", await epochs(own) - before, 0)


async def test_a_media_host_costs_a_tenth_of_a_core_and_delays_no_message(
    own: Target, figures: Figures, form: Form
) -> None:
    attack, names = Attack(own, figures, form), itertools.count()

    async def send_links(url: str) -> None:
        while True:
            for reader in READERS[10:][:LINKS]:
                image = {"to": reader, "type": "image", "image": {"link": f"{url}{next(names)}.png"}}
                await own.business.must("POST", "/v1/messages", image)
            await asyncio.sleep(1.0)

    await own.business.check_contacts(READERS[10:])
    for name in ALL if form.long else SHORT_LINKS:
        before = await epochs(own)
        with HostileHost(ALL[name]) as host:
            strike = await _beside(send_links(host.url), attack, f"media: {name}", form)
            strike.figure("connections made", host.connections, 1, at_least=True)
        note_p99(strike, form)
        strike.figure("leases lost", await epochs(own) - before, 0)


async def _beside(work: Coroutine[Any, Any, None], attack: Attack, name: str, form: Form) -> Strike:
    async with attack(name, on="coreapp", others=OTHERS, cpu=DOWNLOADS, delay=None) as strike:
        working = asyncio.create_task(work)
        await strike.last(form.pick(short=3.0, long=18.0))
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    return strike
