"""Deletion of expired rows and files, on request of the business and periodically as the settings specify."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import Counter

from coreapp.context import ShardContext, ShardStore
from coreapp.errors import RequestRefused
from coreapp.history_retention import HistoryCollector
from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.webhook import bodies
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.storage.business import (
    audit_entries,
    callback_purges,
    callback_replays,
    callbacks,
    group_messages,
    idempotency,
    job_errors,
    messages,
    quarantine,
    service_windows,
    upstream_ids,
)
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import LeaseLost
from tidings.storage.database import Connection, pages
from tidings.wire import codes, ids

log = logging.getLogger(__name__)

MESSAGE, MEDIA = "message", "media"
# Deleted periodically only, whatever the settings are.
UNUSED_MEDIA, KEYS, UNREAD, GROUP_UNREAD, DEAD_CALLBACKS = "unused_media", "keys", "unread", "group_unread", "callbacks"
REPLAYS, PURGES, JOB_ERRORS, KEPT = "replays", "purges", "job_errors", "kept"
SUSPECTS, QUARANTINED, HISTORY, UPSTREAM_IDS = "suspects", "quarantined", "history", "upstream_ids"
LISTINGS, AUDITED = "listings", "audit_entries"
QUARANTINE_DAYS = 30  # days that quarantined deliveries are kept
# Kinds that every shard deletes. The other kinds scan tables that belong to all shards, including removed ones.
OF_EACH_SHARD = (DEAD_CALLBACKS,)
AUDIT_DAYS = 365  # days that the audit is kept

# Retention of messages in milliseconds: `FINAL_MS` for those that are read or failed, whose status cannot change;
# `SETTLED_MS` for those that are delivered or were received, whose status can.
DAY_MS = 24 * 3600 * 1000
FINAL_MS = DAY_MS
SETTLED_MS = 30 * DAY_MS
KEPT_SECONDS = 30 * 86_400  # retention of kept contents, as long as the network keeps an envelope
INTERVAL = 3600.0  # seconds between two periodic passes
FIRST = 60.0  # seconds to the first pass, so that a shard that is reopened every hour is cleaned too
PAGE = 1_000  # rows that one query reads
CHANGED = 50  # rows that one transaction deletes, or moves to another list; messages that are sent wait for it
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends

DELETED = Counter("tidings_garbage_deleted_total", "Rows or files deleted", ["kind"])

Collector = Callable[[], Awaitable[int]]
DeletePage = Callable[[Connection, int, int], Awaitable[int]]


async def collect_messages(store: ShardStore) -> int:
    """Delete all expired messages of the installation, `CHANGED` per transaction. Runs at the owner of the first shard.

    Returns their number. Raises `LeaseLost`.
    """
    now = await store.time_of_expiry()
    final, settled = now - FINAL_MS, now - SETTLED_MS
    after: str | None = ""
    total = 0
    while after is not None:
        find = functools.partial(
            messages.find_expired, after=after, final_before=final, settled_before=settled, limit=PAGE
        )
        found = await store.database.query(find)
        for expired in pages(found.ids, CHANGED):
            await store.persist(functools.partial(messages.delete, ids=expired))
            total += len(expired)
            DELETED.labels(MESSAGE).inc(len(expired))
            await asyncio.sleep(PAUSE)
        after = found.after
        await asyncio.sleep(PAUSE)
    return total


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class KeptCollector:
    """Deletes expired kept contents of the installation, one page per transaction. Runs at the owner of the first
    shard. Each pass continues where the last one ended.
    """

    store: ShardStore
    _after: str = dataclasses.field(default="", init=False)

    async def __call__(self) -> int:
        """Delete expired contents. Returns 0, because no row is deleted. Raises `LeaseLost`."""
        before = ids.bound(await self.store.time_of_expiry() / 1000 - KEPT_SECONDS)
        while True:
            delete = functools.partial(messages.delete_kept, after=self._after, before=before, limit=PAGE)
            last = await self.store.persist(delete)
            if last is None:
                break
            self._after = last
            await asyncio.sleep(PAUSE)
        self._after = max(self._after, before)
        return 0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class ListingCollector:
    """Moves messages that releases without lists stored or failed to their lists (`messages.Listing`), until two passes
    have moved none, because Coreapps of such a release may still run. Runs at the owner of the installation's first
    shard. Its reads take no lock.
    """

    store: ShardStore
    page: int = PAGE
    # Passes in a row that moved none.
    _idle: int = dataclasses.field(default=0, init=False)

    async def __call__(self) -> int:
        """Move messages. Returns 0, because no row is deleted. Raises `LeaseLost`."""
        if self._idle == 2:
            return 0
        moved = 0
        after: str | None = ""
        while after is not None:
            find = functools.partial(messages.find_misplaced, after=after, limit=self.page)
            found = await self.store.database.query(find)
            for listing, misplaced in found.ids.items():
                for part in pages(misplaced, CHANGED):
                    await self.store.persist(functools.partial(messages.move, listing=listing, ids=part))
                moved += len(misplaced)
            after = found.after
            await asyncio.sleep(PAUSE)
        if moved:
            log.info("messages.listed", extra={"moved": moved})
        self._idle = 0 if moved else self._idle + 1
        return 0


async def collect_old(
    store: ShardStore, count: Counter, delete: DeletePage, age_ms: int, *, page: int = CHANGED
) -> int:
    """Delete all rows of one kind that are older than an age, one page per transaction. Returns their number. Raises
    `LeaseLost`.

    count: counter of deleted rows of this kind
    delete: deletes at most `page` rows older than a time (Unix milliseconds) and returns their number
    """
    before, total = await store.time_of_expiry() - age_ms, 0
    while True:
        deleted = await store.persist(lambda connection: delete(connection, before, page))
        total += deleted
        count.inc(deleted)
        if deleted < page:
            return total
        await asyncio.sleep(PAUSE)


def old_rows(
    store: ShardStore, *, unread_days: int, dead_callback_days: int, page: int = CHANGED
) -> dict[str, Collector]:
    """Return the collectors of a shard's expired rows, by kind.

    unread_days: retention of unread marks, days
    dead_callback_days: retention of dead letters, days; 0 keeps them forever
    """
    account, shard = store.account, store.shard

    async def unread(connection: Connection, before: int, limit: int) -> int:
        return await service_windows.delete_unread_before(connection, account, before, limit)

    async def group_unread(connection: Connection, before: int, limit: int) -> int:
        return await group_messages.delete_unread_before(connection, account, before, limit)

    async def dead(connection: Connection, before: int, limit: int) -> int:
        return await callbacks.delete_dead_before(connection, shard, before, limit)

    kinds: dict[str, tuple[DeletePage, int]] = {
        REPLAYS: (callback_replays.delete_before, AUDIT_DAYS * DAY_MS),
        PURGES: (callback_purges.delete_before, AUDIT_DAYS * DAY_MS),
        AUDITED: (audit_entries.delete_before, AUDIT_DAYS * DAY_MS),
        JOB_ERRORS: (job_errors.delete_strays, DAY_MS),
        SUSPECTS: (quarantine.delete_strays, DAY_MS),
        QUARANTINED: (quarantine.delete_older, QUARANTINE_DAYS * DAY_MS),
        KEYS: (idempotency.delete_older, idempotency.LIFETIME_MS),
        UPSTREAM_IDS: (upstream_ids.delete_before, upstream_ids.LIFETIME_MS),
        UNREAD: (unread, unread_days * DAY_MS),
        GROUP_UNREAD: (group_unread, unread_days * DAY_MS),
    }
    if dead_callback_days:
        kinds[DEAD_CALLBACKS] = (dead, dead_callback_days * DAY_MS)
    return {
        kind: functools.partial(collect_old, store, DELETED.labels(kind), *rest, page=page)
        for kind, rest in kinds.items()
    }


def wire_retention(context: ShardContext, media: Collector, unused_media: Collector) -> RetentionService:
    """Return the service of a shard that deletes expired rows and files.

    media, unused_media: collectors of files
    """
    settings = context.settings
    collectors: dict[str, Collector] = {
        MESSAGE: functools.partial(collect_messages, context),
        MEDIA: media,
        UNUSED_MEDIA: unused_media,
        **old_rows(context, unread_days=settings.unread_days, dead_callback_days=settings.dead_callback_days),
        KEPT: KeptCollector(context),
        HISTORY: HistoryCollector(context, settings.history_hours),
    }
    if context.shard == 0:
        # Last, because it may take minutes.
        collectors[LISTINGS] = ListingCollector(context)
    if not context.lease.is_first:
        collectors = {kind: collectors[kind] for kind in OF_EACH_SHARD if kind in collectors}
    return RetentionService(
        collectors,
        lambda: context.config.settings,
        context.journal,
        clock=context.clock,
        account=context.account,
        shard=context.shard,
        node=settings.node,
    )


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class RetentionService:
    """Service that runs the collectors. One pass runs at a time; requests that arrive during a pass run after it, each
    kind once.
    """

    name = "garbage"

    # By kind. `message` and `media` run periodically if the settings enable them, `unused_media` only if `media` is not
    # enabled, all others always.
    collectors: Mapping[str, Collector]
    settings: Callable[[], ApplicationSettings]
    journal: Journal
    _: dataclasses.KW_ONLY
    clock: Clock
    account: str
    shard: int
    node: str  # name of this process in the report
    _requested: dict[str, None] = dataclasses.field(default_factory=dict, init=False)
    _wakeup: Wakeup = dataclasses.field(default_factory=Wakeup, init=False)

    def request(self, kind: str) -> None:
        """Collect soon and report the result to the webhook. Raises `RequestRefused` for a kind that is not collected
        here."""
        if kind not in self.collectors or kind not in (MESSAGE, MEDIA):
            raise RequestRefused(codes.NOT_READY, f"{kind} is not collected here")
        self._requested[kind] = None
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        interval = FIRST
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                by_itself = not await self._wakeup.wait(interval)
                await service.run_workers(stop, self.run_once(by_itself=by_itself))
                if by_itself:
                    interval = INTERVAL

    async def run_once(self, *, by_itself: bool) -> None:
        """Run the requested collections and report them. Periodic passes also run those that the settings enable,
        without a report.
        """
        if by_itself:
            wanted = self.settings().garbagecollector_enable
            chosen = {MESSAGE: wanted.messages, MEDIA: wanted.media, UNUSED_MEDIA: not wanted.media}
            for kind in self.collectors:
                if chosen.get(kind, True) and kind not in self._requested:
                    await self._collect(kind)
        while self._requested:
            kind = next(iter(self._requested))
            del self._requested[kind]
            await self._report(kind, await self._collect(kind))

    async def _collect(self, kind: str) -> int | None:
        try:
            deleted = await self.collectors[kind]()
        except LeaseLost:
            raise
        except Exception:
            log.exception("garbage.failed", extra={"kind": kind})
            return None
        if deleted:
            log.info("garbage.collected", extra={"kind": kind, "deleted": deleted})
        return deleted

    async def _report(self, kind: str, deleted: int | None) -> None:
        now = self.clock.now_ms()
        body = bodies.garbage_report(kind, deleted, self.node)
        await self.journal.write(
            Change(
                self.account,
                new_callbacks=(Callback(0, self.shard, self.account, f"services:{kind}", "service", body, now),),
            )
        )
