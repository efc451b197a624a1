"""Change of how many shards a number has: no process works for one during it, and one process moves the rows.

owners give up their shards ──▶ one process takes all of them ──▶ rows are moved, page by page ──▶ the new layout

Each step is one transaction and leaves completed work unchanged. The process that makes the change may crash between
any two steps: another process takes all shards once it has been silent for as long as any owner may, and starts again.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Collection

from prometheus_client import Counter, Gauge

from coreapp.settings import Settings
from tidings.aio import crashpoints
from tidings.storage.business import layout_changes, layouts, relocation, shards
from tidings.storage.business.layouts import Layout
from tidings.storage.business.relocation import MovedPage, Place
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire import addresses

log = logging.getLogger(__name__)

MOVED = Counter("tidings_layout_moved_rows_total", "Rows moved to another shard by a change of the number of shards")
SHARDS = Gauge("tidings_shards", "Number of shards: in use (`active`) and requested (`wanted`)", ["state"])
IN_PLACE = Gauge(
    "tidings_layout_rows_in_place",
    "Rows that the running change of the number of shards has moved; 0 without a change",
)


def place(about: str, count: int, first: int = 0) -> int:
    """Return the shard for rows about this recipient. Rows about a group, or about no recipient, belong to the first
    shard.

    first: first shard of the number
    """
    return first + (addresses.shard_of(about, count) if addresses.is_wa_id(about) else 0)


def show(layouts: Collection[Layout]) -> None:
    """Export the layouts of all numbers together, and the progress of changes made by any process."""
    SHARDS.labels("active").set(sum(layout.shards for layout in layouts))
    SHARDS.labels("wanted").set(sum(layout.wanted or layout.shards for layout in layouts))
    IN_PLACE.set(sum(layout.moved for layout in layouts if layout.is_changing))


class LayoutChange:
    """One process's part in a requested change."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._node = settings.node
        self._heartbeat_timeout = settings.lease_seconds

    async def attempt(self, is_leaving: Callable[[], bool], block: int = 0) -> bool:
        """Make the change, unless an owner still works for a shard or another process makes it. Returns whether it was
        made.

        block: shard block of the number
        is_leaving: checked after each page; once true, the rest is left to other processes
        """
        begin = functools.partial(
            layout_changes.begin, owner=self._node, heartbeat_timeout=self._heartbeat_timeout, block=block
        )
        lease = await self._database.commit(begin)
        if lease is None:
            return False
        self._database.suspect_connections()
        log.info("layout.begun", extra={"epoch": lease.epoch, "node": self._node})
        crashpoints.reach(crashpoints.AFTER_SHARDS_TAKEN)
        try:
            while not is_leaving():
                find = functools.partial(layouts.find, block=block)
                started, before = (
                    time.perf_counter(),
                    await self._database.query(find, retry_seconds=self._heartbeat_timeout),
                )
                await self._show()
                moved = await self._move(lease, before, is_leaving)
                if moved is None:
                    break
                finish = functools.partial(layout_changes.finish, lease=lease, before=before)
                now = await self._database.commit(finish)
                if now is not None:
                    await self._show()
                    crashpoints.reach(crashpoints.AFTER_NEW_LAYOUT)
                    _made(before, now, moved, time.perf_counter() - started)
                    return True
                # Another number of shards was requested during the change.
            await self._database.persist(
                functools.partial(shards.release, lease=lease), retry_seconds=self._heartbeat_timeout
            )
        except LeaseLost as lost:
            log.warning("layout.lost", extra={"epoch": lease.epoch, "detail": str(lost)})
        return False

    async def _show(self) -> None:
        show((await self._database.query(layouts.list_layouts, retry_seconds=self._heartbeat_timeout)).values())

    async def _move(self, lease: Lease, layout: Layout, is_leaving: Callable[[], bool]) -> int | None:
        """Move the rows of all kinds. Returns their number; None if this process had to leave before the last one."""
        moved = 0
        for kind in relocation.KINDS:
            page = MovedPage(None, 0)
            while True:
                move = functools.partial(
                    self._page,
                    lease=lease,
                    kind=kind,
                    place=functools.partial(place, count=layout.wanted, first=lease.first_shard),
                    after=page.last,
                )
                page = await self._database.persist(move, retry_seconds=self._heartbeat_timeout)
                moved += page.rows
                IN_PLACE.inc(page.rows)
                crashpoints.reach(crashpoints.AFTER_MOVED_PAGE)
                if is_leaving():
                    return None
                if page.last is None:
                    break
        return moved

    async def _page(self, connection: Connection, *, lease: Lease, kind: str, place: Place, after: object) -> MovedPage:
        # This also serves as the heartbeat, because a page takes little time.
        await shards.renew(connection, lease)
        page = await relocation.move_page(connection, kind, place, after=after, block=lease.block)
        if page.rows:
            await layouts.note_moved(connection, page.rows, lease.block)
        return page


def _made(before: Layout, now: Layout, moved: int, seconds: float) -> None:
    MOVED.inc(moved)
    fields = {"shards": now.shards, "before": before.shards, "layout": now.number, "rows": moved}
    log.info("layout.changed", extra={**fields, "seconds": round(seconds, 3)})
