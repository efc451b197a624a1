"""Filter of used idempotency keys in memory, which saves database queries for fresh keys.

A process that owns every shard is the only one that commits keys of messages, because each commit is fenced by a lease.
Once it has read the table under these leases, the filter contains all used keys, and a key that the filter does not
contain is certainly fresh. For any other key the database is queried (docs/decisions/0055).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from prometheus_client import Gauge

from tidings.aio import service
from tidings.aio.bloom_filter import RotatingFilter
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.storage import outages
from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import LIFETIME_MS, MESSAGES, IdempotencyKey
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database

log = logging.getLogger(__name__)

PAGE = 500  # keys that are read at a time
# Seconds of pause per second of reading: reading 7,000,000 keys takes minutes and at most a fifth of a core.
PAUSE_SHARE = 4.0
RETRY_SECONDS = 1.0  # seconds until a failed read is repeated
RETRY_SECONDS = 4.0  # seconds that one page waits for an unreachable database

COMPLETE = Gauge(
    "tidings_idempotency_filter_complete", "1 while a fresh idempotency key is recognized without the database"
)

# Waits until all changes that were put into one shard's journal so far are on disk.
Settle = Callable[[], Awaitable[None]]


class UsedKeys:
    """Service with the filter of used keys of one account's messages, for all shards of this process.

    Any change of the leases empties the filter, and the table is read again. While another process owns a shard, there
    is no filter and no memory is used.
    """

    name = "used-keys"

    def __init__(self, database: Database, clock: Clock, *, account: str, is_first: bool = True) -> None:
        """Create the service.

        is_first: whether this is the installation's first number, whose filter the metric is about
        """
        self._is_first = is_first
        self._database = database
        self._clock = clock
        self._account = account
        self._shards: Mapping[Lease, Settle] = {}
        # `None` while another process may commit keys.
        self._filter: RotatingFilter | None = None
        # Set while the filter contains every key in the table.
        self.complete = asyncio.Event()
        self._changed = Wakeup()

    @property
    def memory(self) -> int:
        """Bytes that are allocated for the filter."""
        return self._filter.memory if self._filter is not None else 0

    def follow(self, shards: Mapping[Lease, Settle]) -> None:
        """Set the shards that this process serves from now on."""
        if shards.keys() == self._shards.keys():
            return
        self._shards = dict(shards)
        self.complete.clear()
        self._report(0)
        self._filter = None
        if _are_all(shards):
            self._filter = RotatingFilter(LIFETIME_MS / 1000, self._clock.now())
            self._changed.wake()

    def is_fresh(self, key: IdempotencyKey) -> bool:
        """Return whether the key is certainly unused; false when the database has to be queried."""
        found = self._filter
        return found is not None and self.complete.is_set() and key.shared not in found and key.own not in found

    def add(self, form: bytes) -> None:
        """Add a key in its stored form. Must be called before its commit, whose outcome may remain unknown."""
        if self._filter is not None:
            self._filter.add(form, self._clock.now())

    async def run(self, stop: asyncio.Event) -> None:
        with self._changed.woken_by(stop):
            while not stop.is_set():
                await self._changed.wait(None if await self.run_once(stop) else RETRY_SECONDS)

    async def run_once(self, stop: asyncio.Event | None = None) -> bool:
        """Read the table if the filter is incomplete. Returns false if the attempt must be repeated.

        stop: ends the reading after the current page when it is set; `None` to read to the end
        """
        stop = stop or asyncio.Event()
        found = self._filter
        if found is None or self.complete.is_set():
            return True
        # Keys that were committed, or put into a journal, before the filter was made are only in the table.
        settled = await asyncio.gather(*(settle() for settle in self._shards.values()), return_exceptions=True)
        if any(isinstance(result, BaseException) for result in settled):
            # The journal has failed, so its shard is about to be closed.
            return False
        loop = asyncio.get_running_loop()
        started, count, after = loop.time(), 0, b""
        while found is self._filter:
            started_at = loop.time()
            try:
                page = await self._database.query(
                    functools.partial(
                        idempotency.list_forms, account=self._account, resource=MESSAGES, after=after, limit=PAGE
                    ),
                    retry_seconds=RETRY_SECONDS,
                )
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("used_keys.unreachable", extra={"error": repr(error)})
                return False
            self._add_all(found, page)
            count += len(page)
            if len(page) < PAGE:
                break
            after = page[-1]
            if await service.wait_for(stop, (loop.time() - started_at) * PAUSE_SHARE):
                return True
        if found is self._filter:
            self.complete.set()
            self._report(1)
            log.info("used_keys.read", extra={"count": count, "seconds": round(loop.time() - started, 3)})
        return True

    def _report(self, complete: int) -> None:
        if self._is_first:
            COMPLETE.set(complete)

    def _add_all(self, found: RotatingFilter, forms: Iterable[bytes]) -> None:
        now = self._clock.now()
        for form in forms:
            found.add(form, now)


def _are_all(leases: Iterable[Lease]) -> bool:
    """Return whether these are the leases of all shards of one layout."""
    layouts = {(lease.layout, lease.shards) for lease in leases}
    return len(layouts) == 1 and {lease.partition for lease in leases} == set(range(next(iter(layouts))[1]))
