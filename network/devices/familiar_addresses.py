"""Addresses from which the devices of locked numbers have logged in."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
from collections.abc import Callable, Collection

from tidings.storage.database import Connection, Database, pages
from tidings.storage.network import lock_addresses, locks
from tidings.storage.network.lock_addresses import LockAddress

DAY_MS = 24 * 3600 * 1000
# Milliseconds after a login in which its address is familiar, and in which further logins from it are not recorded.
FAMILIAR_MS, REFRESH_MS = 30 * DAY_MS, DAY_MS
# Familiar addresses of one number: the latest ones.
KEPT = 8
# Numbers per transaction, and seconds for each statement while the database is unreachable.
PAGE, RETRY_SECONDS = 1000, 5.0

# Returns the origins of a number's device.
OriginsOf = Callable[[str], Collection[str]]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class FamiliarAddresses:
    """Familiar addresses of all locked numbers, in the database, so that all nodes know them.

    An address is an origin: an IPv4 address or a /64 of IPv6. Only a keyed hash is stored.
    """

    database: Database
    key: str

    async def includes(self, connection: Connection, number: str, origin: str, now: int) -> bool:
        """Return whether an origin is familiar. now: Unix milliseconds."""
        found = (await lock_addresses.list_by_number(connection, [number])).get(number, ())
        digest = self._hash(number, origin)
        return any(
            hmac.compare_digest(row.address_hash, digest) and now < row.seen_at + FAMILIAR_MS for row in found[:KEPT]
        )

    async def record(self, numbers: Collection[str], origins_of: OriginsOf, now: int) -> int:
        """Record the origins from which devices have logged in, for locked numbers only. Return how many were written.

        An origin that was recorded within a day is not written again.

        origins_of(number): returns the present origins; none once another device has the number
        now: Unix milliseconds.
        """
        if not numbers or not await self.database.query(locks.exist, retry_seconds=RETRY_SECONDS):
            return 0
        total = 0
        for page in pages(list(numbers), PAGE):
            listing = functools.partial(self._list_due, numbers=page, origins_of=origins_of, now=now)
            due = await self.database.query(listing, retry_seconds=RETRY_SECONDS)
            if due:
                found = sorted({row.number for row in due})
                saving = functools.partial(self._save, numbers=found, origins_of=origins_of, now=now)
                total += await self.database.persist(saving, retry_seconds=RETRY_SECONDS)
        return total

    async def _save(self, connection: Connection, numbers: Collection[str], origins_of: OriginsOf, now: int) -> int:
        """Store due addresses, and delete all but the latest of their numbers. Return how many were stored.

        The locks cannot be replaced meanwhile by those of new owners.
        """
        rows = await self._list_due(connection, numbers, origins_of, now, lock=True)
        if not rows:
            return 0
        await lock_addresses.save(connection, rows)
        stored = await lock_addresses.list_by_number(connection, {row.number for row in rows})
        for kept in stored.values():
            for row in kept[KEPT:]:
                await lock_addresses.delete(connection, row)
        return len(rows)

    async def _list_due(
        self,
        connection: Connection,
        numbers: Collection[str],
        origins_of: OriginsOf,
        now: int,
        *,
        lock: bool = False,
    ) -> list[LockAddress]:
        locked = await locks.list_locked(connection, numbers, lock=lock)
        if not locked:
            return []
        stored = await lock_addresses.list_by_number(connection, locked)
        fresh = {
            (row.number, row.address_hash)
            for rows in stored.values()
            for row in rows[:KEPT]
            if now < row.seen_at + REFRESH_MS
        }
        rows = [
            LockAddress(number, self._hash(number, origin), now) for number in locked for origin in origins_of(number)
        ]
        due = [row for row in rows if (row.number, row.address_hash) not in fresh]
        # Nodes lock rows in the same order.
        return sorted(due, key=lambda row: (row.number, row.address_hash))

    def _hash(self, number: str, origin: str) -> bytes:
        return hmac.digest(self.key.encode(), f"address {number} {origin}".encode(), hashlib.sha256)
