"""Mailboxes, where envelopes wait: the little that the router needs of them, and their engine on SQL."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from tidings.runtime.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import group_messages, mailbox
from tidings.storage.network.mailbox import Envelope, Waiting
from tidings.wire import device

# Pages read at the same time; the other connections of the pool are for writers and for the directory.
READERS = 4


# Seconds between two looks for devices that have just logged in, which come by the thousand at times.
SPACING = 0.005


class MailboxStore(Protocol):
    """Durable mailboxes. Every call waits out an outage of what is behind it, however long."""

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        """Store and remove envelopes, all or nothing."""
        ...

    async def has_any(self, recipient: str) -> bool:
        """Does anything wait for this number?"""
        ...

    async def list_page(
        self, recipient: str, *, after: int, now: int, limit: int, slots: Sequence[int] | None
    ) -> Sequence[Envelope]:
        """What waits for this number above a `seq`, in order; of these slots, or of all. What has expired may be left
        out."""
        ...

    async def last_seq(self) -> int:
        """The highest `seq` that is stored, or kept with a message to a group."""
        ...

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[Waiting]]:
        """What waits for each of these, by sender, without the network's own notices."""
        ...


class SqlMailbox:
    """Mailboxes in a table, for one network process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._readers = asyncio.Semaphore(READERS)
        self._any: Batcher[str, bool] = Batcher("mailbox.any", self._have_any, max_size=1000, spacing=SPACING)

    async def change(self, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
        async def work(connection: Connection) -> None:
            await mailbox.insert(connection, stored)
            await mailbox.delete(connection, removed)

        await self._database.persist(work, patience=math.inf)

    async def has_any(self, recipient: str) -> bool:
        return await self._any.submit(recipient)

    async def list_page(
        self, recipient: str, *, after: int, now: int, limit: int, slots: Sequence[int] | None
    ) -> Sequence[Envelope]:
        async def work(connection: Connection) -> Sequence[Envelope]:
            return await mailbox.list_page(connection, recipient, after=after, now=now, limit=limit, slots=slots)

        async with self._readers:
            return await self._database.query(work, patience=math.inf)

    async def last_seq(self) -> int:
        async def work(connection: Connection) -> int:
            return max(await mailbox.last_seq(connection), await group_messages.last_seq(connection))

        return await self._database.query(work)

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[Waiting]]:
        async def work(connection: Connection) -> Mapping[str, Sequence[Waiting]]:
            return await mailbox.list_waiting(connection, recipients, notices=device.NOTICES)

        async with self._readers:
            return await self._database.query(work, patience=math.inf)

    async def list_filled(self, recipients: Sequence[str]) -> set[str]:
        """Return those of the numbers that have anything in their mailboxes."""

        async def work(connection: Connection) -> set[str]:
            return await mailbox.list_recipients(connection, recipients)

        async with self._readers:
            return await self._database.query(work, patience=math.inf)

    async def _have_any(self, recipients: Sequence[str]) -> Sequence[bool]:
        async def work(connection: Connection) -> set[str]:
            return await mailbox.list_recipients(connection, list(set(recipients)))

        async with self._readers:
            found = await self._database.query(work, patience=math.inf)
        return [recipient in found for recipient in recipients]
