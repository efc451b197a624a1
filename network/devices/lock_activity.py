"""Maintenance of registration locks: keeps locks of devices in use from expiring."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable, Set

from network.devices.locks import EXPIRES_MS
from tidings.aio.clock import Clock
from tidings.aio.service import wait_for
from tidings.storage import outages
from tidings.storage.database import Database
from tidings.storage.network import locks

log = logging.getLogger(__name__)

INTERVAL = 60.0  # seconds between two passes
# Milliseconds between two recorded activities of one device.
GRAIN_MS = 3600 * 1000
PAGE = 1000  # Locks per query.
PATIENCE = 5.0  # seconds for each statement while the database is away
# Milliseconds that expired locks are kept, in case a wrong clock expired them.
KEPT_MS = 30 * 24 * 3600 * 1000


@dataclasses.dataclass(slots=True, eq=False)
class LockActivity:
    """Service that records which locked devices are active, once a minute.

    A device is active while it is attached to this node, and when it authenticates by its token.
    """

    name = "lock-activity"

    database: Database
    clock: Clock
    # Returns the numbers that authenticated since its last call.
    take_seen: Callable[[], Set[str]]
    # Returns whether the device of a number is attached to this node.
    is_online: Callable[[str], bool]
    _delete_at: int = 0  # Unix milliseconds.
    # Numbers seen before a pass that failed.
    _unsaved: Set[str] = frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        is_last = False
        while not is_last:
            is_last = await wait_for(stop, INTERVAL)
            try:
                await self.run_once()
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("locks.not_noted", extra={"error": outages.brief(error)})

    async def run_once(self) -> int:
        """Record which locked devices were active; return their number."""
        now, total = int(self.clock.now() * 1000), 0
        seen = self._unsaved = self._unsaved | self.take_seen()
        after, until = (now - EXPIRES_MS, ""), now - GRAIN_MS
        while True:
            listing = functools.partial(locks.list_idle, after=after, until=until, limit=PAGE)
            page = await self.database.query(listing, patience=PATIENCE)
            active = [number for _, number in page if number in seen or self.is_online(number)]
            if active:
                noting = functools.partial(locks.note_active, numbers=active, now=now)
                await self.database.persist(noting, patience=PATIENCE)
            total += len(active)
            if len(page) < PAGE:
                break
            after = page[-1]
        self._unsaved = set()
        if now >= self._delete_at:
            before = now - EXPIRES_MS - KEPT_MS
            await self.database.persist(lambda c: locks.delete_expired(c, before), patience=PATIENCE)
            self._delete_at = now + GRAIN_MS
        return total
