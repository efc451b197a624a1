"""Callbacks that have ended a process, in a webhook that takes several in one post."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from coreapp.quarantine import Quarantine
from coreapp.webhook import batches, retry
from coreapp.webhook.cloud import app_signature
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from tests.coreapp.signals import soon
from tests.coreapp.webhook.test_delivery_unexpected import Journal
from tests.manual_clock import ManualClock
from tidings.storage.business.callbacks import CLOUD_STATUS, Callback
from tidings.storage.business.quarantine import Suspect

NOW = 1_700_000_000.0
TARGET = CallbackTarget(
    "http://receiver.example/",
    1,
    retry.Policy(),
    [b"k" * 32],
    sign=app_signature.headers,
    batch=4,
    join=batches.join_entries,
)


class Recorder:
    """Poster that records the number of entries of each body."""

    def __init__(self) -> None:
        self.entries: list[int] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None = None) -> int:
        self.entries.append(len(json.loads(body)["entry"]))
        return 200

    def trust(self, authorities: bytes) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("suspects", "entries"), [((), [4]), ((3,), [3, 1]), ((1,), [1, 3]), ((9,), [4])])
async def test_a_suspect_is_posted_alone(suspects: Sequence[int], entries: Sequence[int]) -> None:
    async def load(after: int, limit: int) -> Sequence[Callback]:
        return []

    clock, poster = ManualClock(NOW), Recorder()
    queue = CallbackQueue(10, clock, load)
    await queue.start(0)
    body = b'{"object":"whatsapp_business_account","entry":[{"id":"1"}]}'
    numbers = range(1, 5)
    at = int(NOW * 1000)
    queue.offer(
        [Callback(n, 0, "15550000000", f"s{n}", CLOUD_STATUS, body, at, recipient=f"1555011000{n}") for n in numbers]
    )
    held = [Suspect("callback", str(seq), "", 1, "the process ended", 0) for seq in suspects]
    deliveries = Deliveries(
        queue,
        Journal(),  # type: ignore[arg-type]
        lambda: TARGET,
        poster=poster,  # type: ignore[arg-type]
        clock=clock,
        quarantine=Quarantine(suspects=held),
        is_cloud=True,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(deliveries.run(stop))
    await soon(lambda: not len(queue))
    stop.set()
    await task
    assert poster.entries == entries
    await queue.close()
