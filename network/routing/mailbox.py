"""Mailboxes in which envelopes wait."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tidings.aio.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import group_messages, mailbox
from tidings.storage.network.mailbox import Envelope, WaitingEnvelopes
from tidings.wire import device

Value = TypeVar("Value")

# Pages read at the same time; the other connections of the pool are for writes and the directory.
READERS = 4
# Seconds between two batches of checks for devices that have just logged in, sometimes thousands at once.
SPACING = 0.005


class SqlMailbox:
    """Mailboxes in a table. Calls wait until an outage of the database is over, without a time limit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._readers = asyncio.Semaphore(READERS)
        self._any: Batcher[str, bool] = Batcher("mailbox.any", self._have_any, max_size=1000, spacing=SPACING)

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        """Store and remove envelopes, all or nothing."""

        async def work(connection: Connection) -> None:
            await mailbox.insert(connection, stored)
            await mailbox.delete(connection, removed)

        await self._database.persist(work, retry_seconds=math.inf)

    async def has_any(self, recipient: str) -> bool:
        """Return whether any envelope waits for this number."""
        return await self._any.submit(recipient)

    async def list_page(
        self, recipient: str, *, after: int, now: int, limit: int, hash_slots: Sequence[int] | None
    ) -> Sequence[Envelope]:
        """Return waiting envelopes of this number above a `seq`, in order. Expired ones may be left out.

        now: Unix milliseconds.
        hash_slots: hash slots to read; `None` for all.
        """
        return await self._read(
            lambda c: mailbox.list_page(c, recipient, after=after, now=now, limit=limit, hash_slots=hash_slots)
        )

    async def last_seq(self) -> int:
        """Return the highest `seq` that is stored, also of messages to groups."""

        async def work(connection: Connection) -> int:
            return max(await mailbox.last_seq(connection), await group_messages.last_seq(connection))

        return await self._database.query(work)

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[WaitingEnvelopes]]:
        """Return the waiting envelopes of each recipient by sender, without the network's notices."""
        return await self._read(lambda c: mailbox.list_waiting(c, recipients, notices=device.NOTICES))

    async def list_filled(self, recipients: Sequence[str]) -> set[str]:
        """Return those of the numbers whose mailboxes hold envelopes."""
        return await self._read(lambda c: mailbox.list_recipients(c, recipients))

    async def list_first_filled(self, limit: int) -> set[str]:
        """Return the numbers whose mailboxes hold envelopes, at most `limit` of them."""
        return await self._read(lambda c: mailbox.list_filled(c, limit))

    async def _have_any(self, recipients: Sequence[str]) -> Sequence[bool]:
        found = await self.list_filled(list(set(recipients)))
        return [recipient in found for recipient in recipients]

    async def _read(self, work: Callable[[Connection], Awaitable[Value]]) -> Value:
        async with self._readers:
            return await self._database.query(work, retry_seconds=math.inf)
