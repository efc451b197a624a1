"""Marking of recipients' messages as read, with a receipt to their sender."""

from __future__ import annotations

from typing import Protocol

import msgspec

from coreapp.errors import RequestRefused
from coreapp.sending.read_receipts import MAX_REFS, ReadReceipt, ReadReceipts
from tidings.storage.business import messages, service_windows
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import codes, core, device, ids


class GroupMarks(Protocol):
    """Marking of group messages."""

    async def mark(self, question: core.MarkRead) -> None: ...


class ReadMarks:
    """Read marks of one account. An acknowledged mark is on disk, and reaches the sender after any crash."""

    def __init__(self, database: Database, receipts: ReadReceipts, groups: GroupMarks, *, account: str) -> None:
        self._database = database
        self._receipts = receipts
        self._groups = groups
        self._account = account

    async def mark(self, question: core.MarkRead) -> None:
        """Mark a message and the unread ones before it. Webhooks that we create in the form of messages need no mark.

        Raises `RequestRefused` with 1006 if no such message was received, and if a queue is full.
        """
        if ids.is_notice(question.id):
            return
        async with self._database.reading() as connection:
            found = await messages.list_progress(connection, self._account, [question.id])
            if not found or found[0].status not in (Status.RECEIVED, Status.MARKED_READ):
                raise RequestRefused(codes.NOT_FOUND, "unknown message")
            peer = found[0].peer
            unread = await service_windows.list_unread(connection, self._account, peer, question.id, limit=MAX_REFS)
        if not unread:
            await self._groups.mark(question)
            return
        fresh = [message_id for message_id in unread if not self._receipts.is_marked(message_id)]
        if fresh:
            receipt = ReadReceipt(peer, device.READ, msgspec.json.encode(fresh))
            self._receipts.send([receipt], fresh, question.request_id, read_messages={peer: fresh})
        await self._receipts.committed(unread)
