"""Reads of many mailboxes at once: how many run together, and that each page arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from network.routing.delivery_queue import DeliveryQueue
from network.routing.reader import PageReader
from tidings.aio.clock import SystemClock
from tidings.storage.network.mailbox import Envelope

DEVICES = 5000


class CountingMailbox:
    """Empty mailboxes whose reads wait until they are let through."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.open = asyncio.Event()

    async def has_any(self, recipient: str) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return False


class Pages:
    """Owner of the queues, which receives their pages."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.all_read = asyncio.Event()

    def page_read(self, queue: DeliveryQueue, attachment: int, page: Sequence[Envelope] | None) -> None:
        assert page == ()
        self.read.append(queue.number)
        if len(self.read) == DEVICES:
            self.all_read.set()


def started(mailbox: Any, pages: Pages) -> PageReader:
    """Return a reader that has started to read the mailboxes of all devices."""
    reader = PageReader(mailbox, SystemClock(), pages.page_read)
    for index in range(DEVICES):
        reader.start(DeliveryQueue(str(index), 10))
    return reader


async def test_a_thousand_mailboxes_are_read_at_once_and_the_others_in_order() -> None:
    mailbox, pages = CountingMailbox(), Pages()
    reader = started(mailbox, pages)
    await asyncio.sleep(0)
    assert mailbox.running == 1000
    mailbox.open.set()
    await asyncio.wait_for(pages.all_read.wait(), 60)
    assert mailbox.most <= 1000
    assert pages.read == [str(index) for index in range(DEVICES)]
    await reader.close()


async def test_a_stopped_reader_starts_no_more_reads() -> None:
    mailbox, pages = CountingMailbox(), Pages()
    reader = started(mailbox, pages)
    await asyncio.sleep(0)
    await reader.close()
    mailbox.open.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert mailbox.running == 0
    assert pages.read == []
