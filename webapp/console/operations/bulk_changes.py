"""Replays and purges of many callbacks, which run in the background, report progress and can be stopped."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import secrets
from collections.abc import Mapping, Sequence

from tidings.aio import service
from tidings.storage.business import console_views
from tidings.storage.business.console_views import CallbackChoice
from tidings.storage.database import Database, pages
from tidings.wire import core
from webapp.console.operations.operator_link import OperatorLink
from webapp.http.errors import APIError, Overloaded

log = logging.getLogger(__name__)

REPLAY, PURGE = "replay", "purge"
# Callbacks per request to a Coreapp, and rows per query of a selection.
_PAGE, _LISTED = 200, 500
# Largest number of callbacks that one change selects, changes in progress, and ended ones that are kept.
MAX_SELECTED, MAX_RUNNING, _KEPT = 100_000, 4, 20


@dataclasses.dataclass(eq=False)
class BulkChange:
    """Change of many callbacks of one number."""

    id: str
    account: str
    action: str  # `REPLAY` or `PURGE`
    choice: str  # description of the selection
    statuses: Sequence[str]  # callbacks that have another status by now stay as they are; empty for any status
    by: str
    total: int
    done: int = 0
    stay: int = 0  # callbacks left as they are, because they had changed
    problem: str = ""
    is_stopped: bool = False
    is_ended: bool = False


class BulkChanges:
    """Changes in progress, and the latest ones that have ended. Service that ends them at its stop."""

    name = "console-changes"

    def __init__(self, database: Database, link: OperatorLink) -> None:
        self._database = database
        self._link = link
        self._changes: collections.OrderedDict[str, BulkChange] = collections.OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await service.cancel(self._tasks)

    def find(self, account: str, change_id: str) -> BulkChange | None:
        """Return a change of a number; `None` when it is not known here."""
        found = self._changes.get(change_id)
        return found if found is not None and found.account == account else None

    def list(self, account: str) -> Sequence[BulkChange]:
        """Return the changes of a number, the latest first."""
        return [change for change in reversed(self._changes.values()) if change.account == account]

    async def select(self, choice: CallbackChoice) -> Mapping[int, Sequence[int]]:
        """Return the callbacks of a selection by shard, at most `MAX_SELECTED`."""
        found: dict[int, list[int]] = {}
        before, count = (1 << 63) - 1, 0
        while count < MAX_SELECTED:
            async with self._database.reading() as connection:
                page = await console_views.list_callbacks(connection, choice, before=before, limit=_LISTED)
            for row in page.rows:
                found.setdefault(row.shard, []).append(row.seq)
            count += len(page.rows)
            if page.older is None:
                break
            before = page.older
        return found

    def start(
        self,
        action: str,
        selected: Mapping[int, Sequence[int]],
        *,
        account: str,
        by: str,
        choice: str,
        statuses: Sequence[str] = (),
    ) -> BulkChange:
        """Start to replay or purge callbacks. Raises `Overloaded`.

        selected: `seq` of the callbacks, by shard
        by, choice: user and selection, for the audit
        statuses: as in `BulkChange`
        """
        if len(self._tasks) >= MAX_RUNNING:
            raise Overloaded(f"{MAX_RUNNING} changes are in progress: wait for one, or stop it")
        total = sum(map(len, selected.values()))
        change = BulkChange(secrets.token_hex(8), account, action, choice, statuses, by, total)
        self._changes[change.id] = change
        while len(self._changes) > _KEPT:
            self._changes.popitem(last=False)
        log.info(
            "console.callbacks_changed", extra={"action": action, "count": total, "choice": choice[:200], "by": by}
        )
        task = asyncio.create_task(self._carry_out(change, selected), name=f"console {action}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return change

    async def _carry_out(self, change: BulkChange, selected: Mapping[int, Sequence[int]]) -> None:
        try:
            for shard, seqs in selected.items():
                for page in pages(list(seqs), _PAGE):
                    if change.is_stopped:
                        return
                    await self._change_page(change, shard, page)
        except APIError as error:
            change.problem = error.problems[0].details
        finally:
            change.is_ended = True

    async def _change_page(self, change: BulkChange, shard: int, seqs: Sequence[int]) -> None:
        if change.action == PURGE:
            purged = await self._link.call(
                shard,
                lambda n: core.PurgeCallbacks(n, list(seqs), change.by, change.choice, shard, list(change.statuses)),
                core.Purged,
            )
            change.done += purged.count
            change.stay += len(seqs) - purged.count
            return
        replayed = await self._link.call(
            shard, lambda n: core.ReplayCallbacks(n, list(seqs), change.by, shard), core.Replayed
        )
        change.done += replayed.count
        change.stay += len(seqs) - replayed.count
        # A shard replays this many per second.
        await asyncio.sleep(replayed.count / core.REPLAYS_PER_SECOND)
