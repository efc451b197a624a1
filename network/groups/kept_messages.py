"""Rows of group messages with copies in memory: deleted when all copies are decided, else copied into mailboxes."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
from collections.abc import Collection, Iterable, Sequence

from network.context import NetworkContext
from network.routing.reservations import Reservations
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.storage import outages
from tidings.storage.database import Connection
from tidings.storage.network import group_messages, mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

log = logging.getLogger(__name__)

# Rows deleted per transaction, seconds between two such transactions, and rows that may wait for deletion. One more row
# stays until the next start; then its message is sent to all recipients again, who acknowledge it as a duplicate.
REMOVED, SPACING, WAITING = 1000, 0.2, 100_000
# Messages that may or may not have been stored; one more is searched for at the next start.
MAX_SUSPECTS = 10_000
# Limits of one transaction: copies, bytes of their bodies, and messages that are read for it.
COPIES, BYTES, PAGE = 1000, 32 * 1024 * 1024, 100
# Seconds for which one transaction is retried. Each retry reserves further positions, which are released after them.
RETRY_SECONDS = 5.0


@dataclasses.dataclass(slots=True, eq=False)
class KeptMessages:
    """Rows of the messages that have copies in memory.

    A transaction that failed may still have committed. The next transaction searches for its messages and puts the
    copies of those that it finds into the mailboxes.
    """

    context: NetworkContext
    _suspects: set[int] = dataclasses.field(default_factory=set)
    _settling: asyncio.Task[None] | None = None
    _removals: Batcher[int, None] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._removals = Batcher(
            "group_messages_decided", self._remove, max_size=REMOVED, max_pending=WAITING, spacing=SPACING
        )
        self.context.router.live.on_decided = self._decided

    # Decided messages.

    def _decided(self, seq: int) -> None:
        try:
            self._removals.put(seq)
        except (BatcherFull, BatcherClosed):
            log.warning("group_message.left", extra={"seq": seq})

    async def _remove(self, seqs: Sequence[int]) -> Sequence[None]:
        await self.context.database.persist(
            lambda connection: group_messages.delete(connection, seqs), retry_seconds=math.inf
        )
        return [None] * len(seqs)

    async def close(self) -> None:
        """Delete decided messages. The next start handles the undecided and the uncertain ones."""
        if (settling := self._settling) is not None:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)
        await self._removals.close()

    # Uncertain messages.

    @property
    def suspects(self) -> Collection[int]:
        """Return the `seq` of each message of a transaction with an unknown outcome."""
        return frozenset(self._suspects)

    def suspect(self, seqs: Collection[int]) -> None:
        """Record that a transaction failed that was to store these messages."""
        self._suspects.update(seqs)
        while len(self._suspects) > MAX_SUSPECTS:
            log.warning("group_message.left", extra={"seq": self._suspects.pop()})
        if self._suspects and self._settling is None:
            self._settling = asyncio.get_running_loop().create_task(self._settle_soon(), name="settle group messages")

    def settled(self, seqs: Collection[int]) -> None:
        """Record that a transaction that settled these messages has committed."""
        self._suspects.difference_update(seqs)

    async def settle(self, connection: Connection, reservations: Reservations, seqs: Collection[int]) -> list[Envelope]:
        """Move the copies of stored messages into the mailboxes, and delete the messages; return the copies.

        Copies get new numbers, because later envelopes may have been delivered already.
        """
        if not seqs:
            return []
        found = await group_messages.list_listed(connection, sorted(seqs))
        rows = [
            make_copy(message, number, reservations.reserve(number, device.GROUP_HASH_SLOT))
            for message in found
            for number in message.copies
        ]
        await mailbox.insert(connection, rows)
        await group_messages.delete(connection, [message.seq for message in found])
        return rows

    async def _settle_soon(self) -> None:
        """Settle uncertain messages as soon as the database responds, unless another group message does so earlier."""
        try:
            while self._suspects:
                try:
                    await self._settle_some(sorted(self._suspects)[:PAGE])
                except Exception as error:
                    if not outages.is_outage(error):
                        raise
        except Exception:
            # The next uncertain message tries again, or the next start.
            log.exception("group_messages.unsettled")
        finally:
            self._settling = None

    async def _settle_some(self, seqs: Sequence[int]) -> None:
        with self.context.reservations() as reservations:
            work = functools.partial(self.settle, reservations=reservations, seqs=seqs)
            rows = await self.context.database.persist(work, retry_seconds=RETRY_SECONDS)
            for row in rows:
                self.context.mailbox_usages.add(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
            reservations.stored = {row.seq: row for row in rows}
        self.settled(seqs)

    # Messages left by the previous process.

    async def settle_all(self) -> int:
        """Move the copies of all stored messages into the mailboxes; return the number of messages.

        Called before any device attaches. Several processes may do it at the same time.
        """
        total = 0
        while count := await self.context.database.persist(self._settle_page):
            crashpoints.reach(crashpoints.AFTER_SETTLED_PAGE)
            total += count
        if total:
            log.info("group_messages.settled", extra={"count": total})
        return total

    async def _settle_page(self, connection: Connection) -> int:
        """Settle one page. Copies keep their numbers, so they stay before envelopes stored later, and expire as
        planned.
        """
        now = self.context.now()
        found = await group_messages.list_first(connection, PAGE)
        page = found[: count_fitting((len(message.copies), len(message.body)) for message in found)]
        await mailbox.insert(
            connection,
            [
                make_copy(message, number, seq)
                for message in page
                if message.expires_at > now
                for number, seq in message.copies.items()
            ],
        )
        await group_messages.delete(connection, [message.seq for message in page])
        return len(page)


def count_fitting(messages: Iterable[tuple[int, int]]) -> int:
    """Return how many of these messages fit into one transaction, at least one.

    messages: (copies, bytes of one copy) of each.
    """
    count = copies = size = 0
    for number, each in messages:
        copies += number
        size += number * each
        if count and (copies > COPIES or size > BYTES):
            break
        count += 1
    return count


def make_copy(message: StoredGroupMessage, recipient: str, seq: int) -> mailbox.Envelope:
    """Return the row of the copy for one recipient."""
    return mailbox.Envelope(
        seq,
        message.sender,
        message.id,
        message.timestamp,
        message.expires_at,
        message.body,
        message.refs,
        message.trace,
        message.group,
        recipient=recipient,
        kind=device.GROUP,
        slot=device.GROUP_HASH_SLOT,
    )
