"""Writer of the mailboxes: envelopes are stored and removed in batches, in the order in which they were given."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from prometheus_client import Counter

from network.routing.delivery_queue import Transit
from network.routing.mailbox import SqlMailbox
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.storage import outages

log = logging.getLogger(__name__)

STORED = Counter("tidings_network_stored_total", "Envelopes written to the mailbox")
REMOVED = Counter("tidings_network_removed_total", "Envelopes removed from the mailbox after their acknowledgement")

BATCH = 500  # Inserts and removals per transaction.
MANY = 10_000  # Waiting changes among which it is worth the time to look for acknowledged envelopes.


@dataclasses.dataclass(slots=True, eq=False)
class Writer:
    """Batches, each one transaction, one in flight at a time.

    An envelope that is acknowledged before its batch starts is never written. While the database is unreachable
    everything waits: the router bounds the number of envelopes without an acknowledgement, and those that were
    acknowledged since are dropped when many wait. `removing` holds the `seq` of each removal that has not committed. A
    removal without room, or at the very end, is skipped: the device receives that envelope again after its next login
    and acknowledges it.
    """

    store: SqlMailbox
    # Called after the commit with the envelopes of the batch, written or not.
    stored: Callable[[Sequence[Transit]], None]
    # Called with an envelope whose row the database has refused for good.
    lost: Callable[[Transit], None]
    # Inserts that may wait, and as many removals.
    room: int
    removing: set[int] = dataclasses.field(default_factory=set)
    _closed: bool = False
    # Changes that wait when acknowledged envelopes are dropped next.
    _drop_at: int = dataclasses.field(init=False)
    _batcher: Batcher[Transit | int, None] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._drop_at = min(MANY, self.room)
        self._batcher = Batcher("mailbox", self._flush, max_size=BATCH, max_pending=2 * self.room, isolate=_is_final)

    def insert(self, transit: Transit) -> None:
        """Write one envelope."""
        if self._batcher.pending >= self._drop_at:
            self._drop_acknowledged()
        self._batcher.put(transit)

    def _drop_acknowledged(self) -> None:
        """Drop the envelopes that were acknowledged before they were written, unless a login waits for them."""
        for change in self._batcher.drop(lambda each: isinstance(each, Transit) and each.acked and not each.counted):
            assert isinstance(change, Transit)
            self.removing.discard(change.seq)
        left = self._batcher.pending
        self._drop_at = max(min(MANY, self.room), min(2 * left, left // 2 + self.room))

    def expect_removal(self, seq: int) -> None:
        """Record that this envelope will be removed as soon as it is written."""
        self.removing.add(seq)

    def remove(self, seq: int) -> None:
        """Remove one envelope."""
        if len(self.removing) < self.room and not self._closed:
            self._batcher.put(seq)
            self.removing.add(seq)
        else:
            self.removing.discard(seq)

    async def close(self) -> None:
        """Write pending changes and accept no more."""
        self._closed = True
        await self._batcher.close()

    async def _flush(self, changes: Sequence[Transit | int]) -> Sequence[None]:
        transits = [change for change in changes if isinstance(change, Transit)]
        removed = [change for change in changes if isinstance(change, int)]
        rows = [transit.row() for transit in transits if not transit.acked]
        if rows or removed:
            try:
                await self.store.change(rows, removed)
            except Exception as error:
                if len(changes) > 1 or not _is_final(error):
                    raise
                log.exception("mailbox.change_failed", extra={"change": _describe(changes[0])})
                self.removing.difference_update(removed)
                for transit in transits:
                    self.removing.discard(transit.seq)
                    self.lost(transit)
                return [None]
        self.removing.difference_update(removed)
        STORED.inc(len(rows))
        REMOVED.inc(len(removed))
        if rows:
            crashpoints.reach(crashpoints.AFTER_STORE_BEFORE_ACCEPTED)
        if transits:
            self.stored(transits)
        return [None] * len(changes)


def _is_final(error: Exception) -> bool:
    """Return whether a retry would fail the same way; the store waits out outages itself."""
    return not outages.is_outage(error)


def _describe(change: Transit | int) -> str:
    return f"removal of {change}" if isinstance(change, int) else f"{change.frame.sender} {change.frame.id}"
