"""Replays and purges of many callbacks, which run in the background, report progress and can be stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidings.aio import service
from tidings.storage.business import callback_views, console_views, queue_views
from tidings.storage.business.callback_views import DONE, FAILING, GIVEN_UP, PENDING, CallbackFilter
from tidings.storage.database import Database, pages
from tidings.wire import core
from webapp.console.figures.processes import NumberShards
from webapp.console.operations.operator_link import OperatorLink
from webapp.http.errors import APIError, CoreappRefused, CoreappUnreachable, Overloaded

log = logging.getLogger(__name__)

REPLAY, PURGE = "replay", "purge"
# States that each change selects.
STATES = {REPLAY: (FAILING, GIVEN_UP, DONE), PURGE: (PENDING, FAILING, GIVEN_UP)}
# Statuses of the same callbacks for a purge.
_STATUSES = {PENDING: queue_views.PENDING, FAILING: queue_views.FAILING, GIVEN_UP: queue_views.DEAD}
# Callbacks per request to a Coreapp, and rows per query of a selection.
_PAGE, _LISTED = 200, 5_000
# Largest number of callbacks that one change selects; of one number: changes in progress, and ended ones that are kept.
MAX_SELECTED, MAX_RUNNING, _KEPT = 100_000, 2, 20
# Seconds that a Coreapp may refuse each page of callbacks for the moment.
PATIENCE = 600.0
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class SelectedCallbacks:
    """Callbacks that a change is about."""

    seqs: Mapping[tuple[int, str], Sequence[int]]  # by shard and state

    @property
    def total(self) -> int:
        return sum(map(len, self.seqs.values()))

    @property
    def highest(self) -> int:
        """Return the highest `seq`; 0 for an empty selection."""
        return max((max(seqs) for seqs in self.seqs.values()), default=0)

    @property
    def by_state(self) -> Mapping[str, int]:
        """Return the number of callbacks in each state that occurs."""
        counts: dict[str, int] = {}
        for (_, state), seqs in self.seqs.items():
            counts[state] = counts.get(state, 0) + len(seqs)
        return counts


@dataclasses.dataclass(eq=False)
class BulkChange:
    """Change of many callbacks of one number."""

    id: str
    account: str
    action: str  # `REPLAY` or `PURGE`
    choice: str  # description of the selection
    user: str
    total: int
    started_at: int  # Unix milliseconds
    done: int = 0
    stay: int = 0  # callbacks left as they are, because they had changed
    waits: str = ""  # why a Coreapp refuses the next callbacks for the moment
    problem: str = ""
    is_ended: bool = False
    is_here: bool = True  # whether this Webapp carries it out
    _stop: asyncio.Event = dataclasses.field(default_factory=asyncio.Event, init=False, repr=False)

    @property
    def by(self) -> str:
        """Return the name of the user in audits, by which every Webapp finds the change."""
        return self.user + _mark(self.id)

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop after the page of callbacks in progress."""
        self._stop.set()

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the change is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return


class BulkChanges:
    """Changes in progress, and the latest ones that have ended. Service that ends them at its stop."""

    name = "console-changes"

    def __init__(self, database: Database, link: OperatorLink, shards: NumberShards) -> None:
        self._database = database
        self._link = link
        self._shards = shards
        self._changes: dict[str, BulkChange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await service.cancel(self._tasks)

    def list(self, account: str) -> Sequence[BulkChange]:
        """Return the changes of a number that this Webapp carries out, the latest first."""
        return [change for change in reversed(self._changes.values()) if change.account == account]

    def find(self, account: str, change_id: str) -> BulkChange | None:
        """Return a change of a number that this Webapp carries out or has ended."""
        found = self._changes.get(change_id)
        return found if found is not None and found.account == account else None

    async def find_elsewhere(
        self, account: str, change_id: str, *, action: str, total: int, started_at: int
    ) -> BulkChange | None:
        """Return a change that another Webapp carries out, with its progress by the audit.

        action, total, started_at: as in `BulkChange`, from the address of its page
        """
        if not _ID.fullmatch(change_id) or not 0 < total <= MAX_SELECTED or action not in STATES:
            return None
        shards = await self._shards.of(account)
        async with self._database.reading() as connection:
            done = await console_views.count_changed(connection, shards, _mark(change_id), started_at)
        return BulkChange(
            change_id,
            account,
            action,
            "",
            "",
            total,
            started_at,
            min(done, total),
            is_ended=done >= total,
            is_here=False,
        )

    async def select(
        self, account: str, choice: CallbackFilter, action: str, *, below: int | None = None
    ) -> SelectedCallbacks:
        """Return the callbacks that a filter selects and that a change may be about, at most `MAX_SELECTED`.

        below: `seq` above the selected ones; None for no limit
        """
        found: dict[tuple[int, str], list[int]] = {}
        present = await self._shards.of(account)
        count, before = 0, below
        while present and (not choice.state or choice.state in STATES[action]):
            async with self._database.reading() as connection:
                page = await callback_views.list_callbacks(
                    connection,
                    account,
                    choice,
                    block=self._shards.block_of(account) or 0,
                    before=before,
                    limit=_LISTED,
                )
            rows = [row for row in page.rows if row.state in STATES[action]][: MAX_SELECTED - count]
            for row in rows:
                # Any shard posts accepted callbacks again. That of an earlier layout may be gone.
                shard = row.shard if row.shard in present else min(present)
                found.setdefault((shard, row.state), []).append(row.seq)
            count, before = count + len(rows), page.older
            if before is None or count >= MAX_SELECTED:
                break
        return SelectedCallbacks(found)

    def start(self, action: str, selected: SelectedCallbacks, *, account: str, user: str, choice: str) -> BulkChange:
        """Start to replay or purge callbacks. Raises `Overloaded`.

        user, choice: user and selection, for the audit
        """
        present = self.list(account)
        if sum(not change.is_ended for change in present) >= MAX_RUNNING:
            raise Overloaded(f"{MAX_RUNNING} changes are in progress: wait for one, or stop it", retry_after=10)
        for change in [change for change in present if change.is_ended][_KEPT - 1 :]:
            del self._changes[change.id]
        made = BulkChange(secrets.token_hex(8), account, action, choice, user, selected.total, int(time.time() * 1000))
        self._changes[made.id] = made
        log.info(
            "console.callbacks_changed",
            extra={"action": action, "count": made.total, "choice": choice[:200], "by": made.by},
        )
        task = asyncio.create_task(self._carry_out(made, selected), name=f"console {action}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _carry_out(self, change: BulkChange, selected: SelectedCallbacks) -> None:
        work = self._purge if change.action == PURGE else self._replay
        try:
            for (shard, state), seqs in selected.seqs.items():
                for page in pages(seqs, _PAGE):
                    if change.is_stopped:
                        return
                    await self._patiently(change, lambda: work(change, shard, state, page))  # noqa: B023
        except APIError as error:
            change.problem = error.problems[0].details
        except Exception as error:
            log.exception("console.change_failed", extra={"change": change.id})
            change.problem = f"{type(error).__name__}: the log of this Webapp has the cause"
        finally:
            change.is_ended = True

    async def _patiently(self, change: BulkChange, work: Callable[[], Awaitable[None]]) -> None:
        """Carry out one step again until the Coreapp does not refuse it, or the change is stopped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                await work()
            except (CoreappRefused, CoreappUnreachable) as error:
                if not error.retry_after or time.monotonic() + error.retry_after > deadline:
                    raise
                change.waits = error.problems[0].details
                await change.pause(error.retry_after)
                if change.is_stopped:
                    return
            else:
                change.waits = ""
                return

    async def _purge(self, change: BulkChange, shard: int, state: str, seqs: Sequence[int]) -> None:
        statuses = [_STATUSES[state]]
        purged = await self._link.operate(
            shard,
            lambda n: core.PurgeCallbacks(n, list(seqs), change.by, change.choice, shard, statuses),
            core.Purged,
        )
        change.done += purged.count
        change.stay += len(seqs) - purged.count

    async def _replay(self, change: BulkChange, shard: int, state: str, seqs: Sequence[int]) -> None:
        replayed = await self._link.call(
            shard,
            lambda n: core.ResendCallbacks(n, change.account, list(seqs), change.by, shard, state == DONE),
            core.Replayed,
        )
        change.done += replayed.count
        change.stay += len(seqs) - replayed.count
        # A shard replays this many per second.
        await change.pause(replayed.count / core.REPLAYS_PER_SECOND)


def _mark(change_id: str) -> str:
    return f" (console {change_id})"
