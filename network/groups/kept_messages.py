"""Messages to groups that are kept for copies in memory: forgotten when all are decided, else put into mailboxes."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from network.groups.batch import make_copy
from network.routing.live_copies import LiveCopies
from network.routing.mailboxes import Mailboxes
from network.routing.notices import Notices, Reservations
from tidings.runtime import crashpoints
from tidings.runtime.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.runtime.clock import Clock
from tidings.storage.database import Connection, Database
from tidings.storage.network import group_messages, mailbox
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

log = logging.getLogger(__name__)

# Messages whose row is to go: in one transaction; seconds between two of these; and that may wait. One more stays until
# the next start, and then goes to everybody once more, who acknowledge it as one that they have.
REMOVED, SPACING, WAITING = 1000, 0.2, 100_000
# Messages of which it is not known whether they were kept; one more is looked for at the next start.
DOUBTFUL = 10_000
# What one transaction stores at most: copies, bytes of their bodies; and messages that are read for it.
COPIES, BYTES, PAGE = 1000, 32 * 1024 * 1024, 100


class KeptMessages:
    """The rows of messages of which copies are in memory.

    A transaction that failed may have been committed all the same. Its messages are looked for by the next one, and
    the copies of what is found go into the mailboxes.
    """

    def __init__(
        self, database: Database, mailboxes: Mailboxes, notices: Notices, *, live: LiveCopies, clock: Clock
    ) -> None:
        self._database = database
        self._mailboxes = mailboxes
        self._notices = notices
        self._clock = clock
        self._doubtful: set[int] = set()
        self._settling: asyncio.Task[None] | None = None
        self._removals: Batcher[int, None] = Batcher(
            "group_messages_decided", self._remove, max_size=REMOVED, max_pending=WAITING, spacing=SPACING
        )
        live.on_decided = self._decided

    # What is decided.

    def _decided(self, seq: int) -> None:
        try:
            self._removals.put(seq)
        except (BatcherFull, BatcherClosed):
            log.warning("group_message.left", extra={"seq": seq})

    async def _remove(self, seqs: Sequence[int]) -> Sequence[None]:
        await self._database.persist(lambda connection: group_messages.delete(connection, seqs), patience=math.inf)
        return [None] * len(seqs)

    async def close(self) -> None:
        """Forget what is decided; what is not, and what is doubtful, is for the next start."""
        if (settling := self._settling) is not None:
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)
        await self._removals.close()

    # What is doubtful.

    @property
    def doubtful(self) -> Collection[int]:
        """The `seq` of each message of which it is not known whether it was kept."""
        return frozenset(self._doubtful)

    def doubt(self, seqs: Collection[int]) -> None:
        """A transaction that was to keep these has failed."""
        self._doubtful.update(seqs)
        while len(self._doubtful) > DOUBTFUL:
            log.warning("group_message.left", extra={"seq": self._doubtful.pop()})
        if self._doubtful and self._settling is None:
            self._settling = asyncio.get_running_loop().create_task(self._settle_soon(), name="settle group messages")

    def settled(self, seqs: Collection[int]) -> None:
        """A transaction that has settled these is committed."""
        self._doubtful.difference_update(seqs)

    async def settle(self, connection: Connection, reservations: Reservations, seqs: Collection[int]) -> list[Envelope]:
        """Put the copies of those that were kept after all into the mailboxes, and keep them no longer; the copies.

        They get new places: what was taken since may be with the devices.
        """
        if not seqs:
            return []
        found = await group_messages.list_listed(connection, sorted(seqs))
        rows = [
            make_copy(message, number, reservations.reserve(number, device.GROUP_SLOT))
            for message in found
            for number in message.copies
        ]
        await mailbox.insert(connection, rows)
        await group_messages.delete(connection, [message.seq for message in found])
        return rows

    async def _settle_soon(self) -> None:
        """When the database answers, and nobody has sent anything to a group before."""
        try:
            while self._doubtful:
                seqs = sorted(self._doubtful)[:PAGE]
                with self._notices.reservations() as reservations:
                    work: Callable[[Connection], object]
                    work = functools.partial(self.settle, reservations=reservations, seqs=seqs)
                    rows = await self._database.persist(work, patience=math.inf)
                    for row in rows:
                        self._mailboxes.add(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
                    reservations.stored = {row.seq: row for row in rows}
                self.settled(seqs)
        except Exception:
            # The next doubt tries again, or the next start.
            log.exception("group_messages.unsettled")
        finally:
            self._settling = None

    # What was left by the process before.

    async def settle_all(self) -> int:
        """Put the copies of everything that is kept into the mailboxes, before any device is here; how many messages
        those were. Several processes may do it at the same time."""
        total = 0
        while count := await self._database.persist(self._settle_page):
            crashpoints.reach(crashpoints.AFTER_SETTLED_PAGE)
            total += count
        if total:
            log.info("group_messages.settled", extra={"count": total})
        return total

    async def _settle_page(self, connection: Connection) -> int:
        """Copies keep their numbers, so they stay before what was stored after them, and expire in their time."""
        now = int(self._clock.now() * 1000)
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
    """How many of these messages, each (copies, bytes of one), may be stored in one transaction; the first one may."""
    count = copies = size = 0
    for number, each in messages:
        copies += number
        size += number * each
        if count and (copies > COPIES or size > BYTES):
            break
        count += 1
    return count
