"""Removal of expired envelopes, with notices to their senders."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from prometheus_client import Counter

from network.context import NetworkContext
from network.routing.reservations import Notice
from tidings.aio.service import wait_for
from tidings.storage import outages
from tidings.storage.database import Connection
from tidings.storage.network import challenges, groups, mailbox
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

log = logging.getLogger(__name__)

EXPIRED = Counter("tidings_network_expired_total", "Envelopes that expired before delivery")

BATCH = 200  # Expired envelopes per transaction.
CODES_KEPT_MS = 24 * 3600 * 1000  # Milliseconds that a registration code is kept after it was issued.
# Milliseconds between two deletions of old registration codes, and of records of group messages past their retention.
DELETION_MS = 3600 * 1000
_KINDS = frozenset((device.PREKEY, device.MESSAGE))


@dataclasses.dataclass(slots=True, eq=False)
class Expiry:
    """Service that removes expired envelopes.

    An envelope in flight to a device is kept until the device acknowledges it or detaches. The notice to the sender is
    stored in the transaction that removes the envelope.
    """

    name = "expiry"

    context: NetworkContext
    _delete_at: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, self.context.settings.expiry_interval):
            try:
                await self.run_once()
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("expiry.failed", extra={"error": repr(error)[:200]})

    async def run_once(self) -> int:
        """Remove everything that has expired; return the number of removed envelopes."""
        database, now, ttl = self.context.database, self.context.now(), self.context.settings.message_ttl
        if now >= self._delete_at:
            await database.persist(lambda c: groups.drop_sends(c, now - ttl * 1000), retry_seconds=20)
            await database.persist(
                lambda c: challenges.delete_old(c, issued_before=now - CODES_KEPT_MS, full_before=now), retry_seconds=20
            )
            self._delete_at = now + DELETION_MS
        if not await database.query(lambda c: mailbox.has_expired(c, now), retry_seconds=20):
            return 0
        total = 0
        after = (0, 0)
        while True:
            seen, removed = await self._remove_batch(now, after)
            total += removed
            if len(seen) < BATCH:
                break
            after = seen[-1].expires_at, seen[-1].seq
        if total:
            EXPIRED.inc(total)
            log.info("envelopes.expired", extra={"count": total})
        return total

    async def _remove_batch(self, now: int, after: tuple[int, int]) -> tuple[Sequence[Envelope], int]:
        router, other_nodes = self.context.router, self.context.directory.other_nodes
        with self.context.reservations() as reservations:

            async def work(connection: Connection) -> tuple[Sequence[Envelope], Sequence[Envelope]]:
                rows = await mailbox.list_expired(connection, now=now, after=after, limit=BATCH)
                elsewhere = await other_nodes.attached_elsewhere(sorted({row.recipient for row in rows}))
                in_flight = {number: router.in_flight(number) for number in {row.recipient for row in rows}}
                gone = [
                    row
                    for row in rows
                    if row.recipient not in elsewhere
                    and row.seq not in in_flight[row.recipient]
                    and not router.is_removing(row.seq)
                ]
                await reservations.store(
                    connection,
                    [Notice(device.EXPIRED, row.recipient, row.sender, [row.id]) for row in gone if row.kind in _KINDS],
                )
                await mailbox.delete(connection, [row.seq for row in gone])
                return rows, gone

            seen, removed = await self.context.database.persist(work, retry_seconds=20)
        for row in removed:
            if row.kind not in device.NOTICES:
                self.context.mailbox_usages.remove(row.recipient, row.sender, mailbox.size_of(row.body, row.refs))
        return seen, len(removed)
