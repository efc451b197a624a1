"""Addresses from which the devices of locked numbers have logged in."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
from collections.abc import Collection, Mapping

from tidings.storage.database import Connection, Database, pages
from tidings.storage.network import lock_addresses, locks
from tidings.storage.network.lock_addresses import LockAddress

DAY_MS = 24 * 3600 * 1000
# Milliseconds after a login in which its address is familiar, and in which further logins from it are not recorded.
FAMILIAR_MS, REFRESH_MS = 30 * DAY_MS, DAY_MS
# Familiar addresses of one number: the latest ones.
KEPT = 8
# Numbers per transaction, and seconds for each statement while the database is away.
PAGE, PATIENCE = 1000, 5.0


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

    async def record(self, seen: Mapping[str, Collection[str]], now: int) -> int:
        """Record the origins from which devices have logged in, for locked numbers only. Return how many were written.

        An origin that was recorded within a day is not written again.

        seen: origins by number. A number that is removed from it meanwhile is not recorded.
        now: Unix milliseconds.
        """
        if not seen or not await self.database.query(locks.exist, patience=PATIENCE):
            return 0
        total = 0
        for page in pages(list(seen), PAGE):
            listing = functools.partial(self._list_due, seen=seen, numbers=page, now=now)
            due = await self.database.query(listing, patience=PATIENCE)
            if due:
                numbers = sorted({row.number for row in due})
                saving = functools.partial(self._save, seen=seen, numbers=numbers, now=now)
                total += await self.database.persist(saving, patience=PATIENCE)
        return total

    async def _save(
        self, connection: Connection, seen: Mapping[str, Collection[str]], numbers: Collection[str], now: int
    ) -> int:
        """Store due addresses, and delete all but the latest of their numbers. Return how many were stored.

        The locks cannot be replaced meanwhile by those of new owners.
        """
        rows = await self._list_due(connection, seen, numbers, now, lock=True)
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
        seen: Mapping[str, Collection[str]],
        numbers: Collection[str],
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
            LockAddress(number, self._hash(number, origin), now) for number in locked for origin in seen.get(number, ())
        ]
        due = [row for row in rows if (row.number, row.address_hash) not in fresh]
        # Nodes lock rows in the same order.
        return sorted(due, key=lambda row: (row.number, row.address_hash))

    def _hash(self, number: str, origin: str) -> bytes:
        return hmac.digest(self.key.encode(), f"address {number} {origin}".encode(), hashlib.sha256)
