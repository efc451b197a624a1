"""Marking of group messages as read, with a receipt to each author."""

from __future__ import annotations

from coreapp.sending import group_jobs
from coreapp.sending.read_receipts import MAX_REFS, ReadReceipt, ReadReceipts
from tidings.storage.business import group_messages
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.database import Database
from tidings.wire import core


class GroupReadMarks:
    """Group read marks of one account. An acknowledged mark is on disk, and reaches the authors after any crash."""

    def __init__(self, database: Database, receipts: ReadReceipts, *, account: str) -> None:
        self._database = database
        self._receipts = receipts
        self._account = account

    async def mark(self, question: core.MarkRead) -> None:
        """Mark a message and the unread ones before it in its group. Does nothing if it is not an unread group message.
        Raises `RequestRefused` when a queue is full.
        """
        unread = await self._database.query(
            lambda connection: group_messages.list_unread(connection, self._account, question.id, limit=MAX_REFS)
        )
        fresh = [message for message in unread if not self._receipts.is_marked(message.id)]
        if fresh:
            by_author: dict[tuple[str, str], list[str]] = {}
            for message in fresh:
                by_author.setdefault((message.group_id, message.author), []).append(message.id)
            receipts = [
                ReadReceipt(author, group_jobs.READ, group_jobs.pack_read(group_id, ids))
                for (group_id, author), ids in by_author.items()
            ]
            marked = [message.id for message in fresh]
            read = GroupChanges(self._account, read_messages=marked)
            self._receipts.send(receipts, marked, question.request_id, groups=read)
        await self._receipts.committed(message.id for message in unread)
