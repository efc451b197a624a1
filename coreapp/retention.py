"""Deletion of expired rows and files, on request of the business and periodically as the settings specify."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Counter

from coreapp.errors import RequestRefused
from coreapp.journal import Change, Journal
from coreapp.webhook import bodies
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.storage.business import (
    callback_purges,
    callback_replays,
    callbacks,
    group_messages,
    idempotency,
    job_errors,
    messages,
    service_windows,
    shards,
)
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire import codes

log = logging.getLogger(__name__)

MESSAGE, MEDIA = "message", "media"
# Deleted periodically only, whatever the settings are.
UNUSED_MEDIA, KEYS, UNREAD, GROUP_UNREAD, DEAD_CALLBACKS = "unused_media", "keys", "unread", "group_unread", "callbacks"
REPLAYS, PURGES, JOB_ERRORS = "replays", "purges", "job_errors"
AUDIT_DAYS = 365  # days that the audit of replays and purges is kept

# Retention of messages in milliseconds: `FINAL_MS` for those that are read or failed, whose status cannot change;
# `SETTLED_MS` for those that are delivered or were received, whose status can.
DAY_MS = 24 * 3600 * 1000
FINAL_MS = DAY_MS
SETTLED_MS = 30 * DAY_MS
INTERVAL = 3600.0  # seconds between two periodic passes
FIRST = 60.0  # seconds to the first pass, so that a shard that is reopened every hour is cleaned too
PAGE = 1_000  # rows that one transaction reads
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends

DELETED = Counter("tidings_garbage_deleted_total", "Rows or files deleted", ["kind"])

Collector = Callable[[], Awaitable[int]]
DeletePage = Callable[[Connection, int, int], Awaitable[int]]


class MessageCollector:
    """Deletes expired messages of the installation, one page per transaction. Runs at the owner of the first shard."""

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock

    async def __call__(self) -> int:
        """Delete all expired messages. Returns their number. Raises `LeaseLost`."""
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
            after=after,
            final_before=now - FINAL_MS,
            settled_before=now - SETTLED_MS,
            limit=PAGE,
        )


class OldRows:
    """Deletes the rows of one kind that are older than an age, one page per transaction."""

    def __init__(
        self,
        kind: str,
        delete: DeletePage,
        age_ms: int,
        *,
        database: Database,
        lease: Lease,
        clock: Clock,
        page: int = PAGE,
    ) -> None:
        """Create the collector of one kind.

        delete: deletes at most `page` rows older than a time (Unix milliseconds) and returns their number
        """
        self._delete = delete
        self._age_ms = age_ms
        self._database = database
        self._lease = lease
        self._clock = clock
        self._page = page
        self._deleted = DELETED.labels(kind)

    async def __call__(self) -> int:
        """Delete all rows past their age. Returns their number. Raises `LeaseLost`."""
        before = int(self._clock.now() * 1000) - self._age_ms
        total = 0
        while True:
            deleted = await self._database.persist(
                shards.fenced(self._lease, lambda connection: self._delete(connection, before, self._page))
            )
            total += deleted
            self._deleted.inc(deleted)
            if deleted < self._page:
                return total
            await asyncio.sleep(PAUSE)


def old_rows(
    database: Database,
    lease: Lease,
    clock: Clock,
    *,
    account: str,
    unread_days: int,
    dead_callback_days: int,
    page: int = PAGE,
) -> dict[str, Collector]:
    """Return the collectors of a shard's expired rows, by kind.

    unread_days: retention of unread marks, days
    dead_callback_days: retention of dead letters, days; 0 keeps them forever
    """
    shard = lease.shard

    def collector(kind: str, delete: DeletePage, age_ms: int) -> Collector:
        return OldRows(kind, delete, age_ms, database=database, lease=lease, clock=clock, page=page)

    async def unread(connection: Connection, before: int, limit: int) -> int:
        return await service_windows.delete_unread_before(connection, account, before, limit)

    async def group_unread(connection: Connection, before: int, limit: int) -> int:
        return await group_messages.delete_unread_before(connection, account, before, limit)

    async def dead(connection: Connection, before: int, limit: int) -> int:
        return await callbacks.delete_dead_before(connection, shard, before, limit)

    made = {
        REPLAYS: collector(REPLAYS, callback_replays.delete_before, AUDIT_DAYS * DAY_MS),
        PURGES: collector(PURGES, callback_purges.delete_before, AUDIT_DAYS * DAY_MS),
        JOB_ERRORS: collector(JOB_ERRORS, job_errors.delete_strays, DAY_MS),
        KEYS: collector(KEYS, idempotency.delete_older, idempotency.LIFETIME_MS),
        UNREAD: collector(UNREAD, unread, unread_days * DAY_MS),
        GROUP_UNREAD: collector(GROUP_UNREAD, group_unread, unread_days * DAY_MS),
    }
    if dead_callback_days:
        made[DEAD_CALLBACKS] = collector(DEAD_CALLBACKS, dead, dead_callback_days * DAY_MS)
    return made


class RetentionService:
    """Service that runs the collectors. One pass runs at a time; requests that arrive during a pass run after it, each
    kind once.
    """

    name = "garbage"

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        settings: Callable[[], ApplicationSettings],
        journal: Journal,
        *,
        clock: Clock,
        account: str,
        shard: int,
        node: str,
    ) -> None:
        """Create the service of one shard.

        collectors: by kind. `message` and `media` run periodically if the settings enable them, `unused_media` only if
            `media` is not enabled, all others always.
        node: name of this process in the report
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
        """Collect soon and report the result to the webhook. Raises `RequestRefused` for a kind that is not collected
        here."""
        if kind not in self._collectors or kind not in (MESSAGE, MEDIA):
            raise RequestRefused(codes.NOT_READY, f"{kind} is not collected here")
        self._asked[kind] = None
        self._look.kick()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(self._kick_at(stop))
        try:
            interval = FIRST
            while not stop.is_set():
                by_itself = not await self._look.wait(interval)
                if not stop.is_set():
                    await self.run_once(by_itself=by_itself)
                if by_itself:
                    interval = INTERVAL
        finally:
            stopping.cancel()

    async def run_once(self, *, by_itself: bool) -> None:
        """Run the requested collections and report them. Periodic passes also run those that the settings enable,
        without a report.
        """
        wanted = self._settings().garbagecollector_enable
        chosen = {MESSAGE: wanted.messages, MEDIA: wanted.media, UNUSED_MEDIA: not wanted.media}
        for kind in self._collectors if by_itself else ():
            if chosen.get(kind, True) and kind not in self._asked:
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
