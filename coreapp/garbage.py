"""Deleting what nobody asks for any more: when the business says so, and by itself where the settings want it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Counter

from coreapp import codes
from coreapp.errors import Refused
from coreapp.journal import Change, Journal
from coreapp.webhook import bodies
from tidings.runtime.clock import Clock
from tidings.runtime.service import Wakeup
from tidings.storage import idempotency, messages, shards
from tidings.storage.application_settings import ApplicationSettings
from tidings.storage.callbacks import Callback
from tidings.storage.database import Connection, Database
from tidings.storage.shards import Lease, LeaseLost

log = logging.getLogger(__name__)

MESSAGE, MEDIA, KEYS = "message", "media", "keys"

# Milliseconds that a message is kept: one that is read or failed, since nothing can become of it any more, and one that
# is delivered or was received, of which something can.
FINAL_MS = 24 * 3600 * 1000
SETTLED_MS = 30 * FINAL_MS
INTERVAL = 3600.0  # seconds between two passes by itself
PAGE = 1_000  # rows that one transaction looks at
PAUSE = 0.01  # seconds between two pages, for those who send meanwhile

DELETED = Counter("tidings_garbage_deleted_total", "Rows or files deleted", ["kind"])

Collector = Callable[[], Awaitable[int]]


class MessageCollector:
    """Deletes old messages of one shard, a page at a time. Their contents were never kept."""

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock

    async def __call__(self) -> int:
        """How many were deleted. Raises `LeaseLost`."""
        now = int(self._clock.now() * 1000)
        after, total = "", 0
        while True:
            page = await self._database.persist(functools.partial(self._page, after=after, now=now))
            total += page.deleted
            DELETED.labels(MESSAGE).inc(page.deleted)
            if page.is_last:
                return total
            after = page.last
            await asyncio.sleep(PAUSE)

    async def _page(self, connection: Connection, *, after: str, now: int) -> messages.Swept:
        await shards.fence(connection, self._lease)
        return await messages.sweep(
            connection,
            self._lease.shard,
            after=after,
            final_before=now - FINAL_MS,
            settled_before=now - SETTLED_MS,
            limit=PAGE,
        )


class KeyCollector:
    """Deletes idempotency keys that are out of date."""

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock

    async def __call__(self) -> int:
        """How many were deleted. Raises `LeaseLost`."""
        before = int(self._clock.now() * 1000) - idempotency.LIFETIME_MS
        total = 0
        while True:
            deleted = await self._database.persist(
                shards.fenced(self._lease, lambda connection: idempotency.delete_older(connection, before, PAGE))
            )
            total += deleted
            DELETED.labels(KEYS).inc(deleted)
            if deleted < PAGE:
                return total
            await asyncio.sleep(PAUSE)


class GarbageCollector:
    """A service. One pass runs at a time; what is asked for meanwhile is done after it, each kind once."""

    name = "garbage"

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        settings: Callable[[], ApplicationSettings],
        journal: Journal,
        clock: Clock,
        *,
        account: str,
        shard: int,
        node: str,
    ) -> None:
        """collectors: by kind: `message` and `media` run by themselves as the settings want, `keys` always.

        node: as the report calls this process.
        """
        self._collectors = collectors
        self._settings = settings
        self._journal = journal
        self._clock = clock
        self._account = account
        self._shard = shard
        self._node = node
        self._asked: dict[str, None] = {}
        self._look = Wakeup()

    def ask(self, kind: str) -> None:
        """Collect soon, and report to the webhook. Raises `Refused` for a kind that is not collected here."""
        if kind not in self._collectors or kind == KEYS:
            raise Refused(codes.SERVICE_NOT_READY, f"{kind} is not collected here")
        self._asked[kind] = None
        self._look.kick()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(self._kick_at(stop))
        try:
            while not stop.is_set():
                by_itself = not await self._look.wait(INTERVAL)
                if not stop.is_set():
                    await self.run_once(by_itself=by_itself)
        finally:
            stopping.cancel()

    async def run_once(self, *, by_itself: bool) -> None:
        """Do what was asked; by itself what the settings want, without a report."""
        wanted = self._settings().garbagecollector_enable
        enabled = ((MESSAGE, wanted.messages), (MEDIA, wanted.media), (KEYS, True))
        for kind in [kind for kind, on in enabled if on and by_itself]:
            if kind in self._collectors and kind not in self._asked:
                await self._collect(kind)
        while self._asked:
            kind = next(iter(self._asked))
            del self._asked[kind]
            await self._report(kind, await self._collect(kind))

    async def _collect(self, kind: str) -> int | None:
        try:
            deleted = await self._collectors[kind]()
        except LeaseLost:
            raise
        except Exception:
            log.exception("garbage.failed", extra={"kind": kind})
            return None
        if deleted:
            log.info("garbage.collected", extra={"kind": kind, "deleted": deleted})
        return deleted

    async def _report(self, kind: str, deleted: int | None) -> None:
        now = int(self._clock.now() * 1000)
        body = bodies.garbage_report(kind, deleted, self._node)
        await self._journal.write(
            Change(
                self._account,
                new_callbacks=(Callback(0, self._shard, self._account, f"services:{kind}", "service", body, now),),
            )
        )

    async def _kick_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._look.kick()
