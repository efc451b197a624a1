"""Replays and purges of many callbacks, which run in the background, report progress and can be stopped."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidings.aio import service
from tidings.storage import outages
from tidings.storage.business import callback_changes, callback_views, queue_views
from tidings.storage.business.callback_changes import CallbackChange
from tidings.storage.business.callback_views import DONE, FAILING, GIVEN_UP, PENDING, CallbackFilter
from tidings.storage.database import Connection, Database, pages
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
# Largest number of callbacks that one change selects.
MAX_SELECTED = 100_000
# Of one number at all Webapps: changes in progress, unless several start at the same moment; ended ones that are kept;
# changes that are read to count both.
MAX_RUNNING, _KEPT, _READ = 2, 20, 100
# Seconds that a Coreapp may refuse each page of callbacks for the moment.
MAX_REFUSED_SECONDS = 600.0
# Seconds between two reports of a change that waits, and for which a stop and an end are stored again if they fail.
_REPORT, _STORE = 2.0, 5.0
_REPORT_RETRY_SECONDS = 20.0  # seconds after which a report is given up while the database is unreachable


@dataclasses.dataclass(frozen=True, slots=True)
class SelectedCallbacks:
    """Callbacks that a change is about."""

    seqs: Mapping[tuple[int, str], Sequence[int]]  # callbacks by shard and state

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


@dataclasses.dataclass(eq=False, slots=True)
class BulkChange:
    """Change of many callbacks of one number that this Webapp carries out, with its progress."""

    about: CallbackChange  # the change as recorded at its start
    done: int = 0
    stay: int = 0  # callbacks left as they are, because they had changed
    waits: str = ""  # reason why a Coreapp refuses the next callbacks for now; empty for none
    stop: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class BulkChanges:
    """Carries out changes. Every Webapp sees their progress in a table, and stops them through it.

    Service that ends the changes of this Webapp at its stop.
    """

    name = "console-changes"

    def __init__(self, database: Database, link: OperatorLink, shards: NumberShards) -> None:
        self._database = database
        self._link = link
        self._shards = shards
        self._changes: dict[str, BulkChange] = {}  # changes by id
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await service.cancel(self._tasks)

    async def stop(self, account: str, change_id: str) -> None:
        """Stop a change of a number after the callbacks in progress, whichever Webapp carries it out."""
        stop = functools.partial(callback_changes.stop, account=account, change_id=change_id)
        await self._database.persist(stop, retry_seconds=_STORE)
        present = self._changes.get(change_id)
        if present is not None and present.about.account == account:
            present.stop.set()

    async def select(
        self, account: str, choice: CallbackFilter, action: str, *, below: int | None = None
    ) -> SelectedCallbacks:
        """Return the callbacks that a filter selects and that a change may be about, at most `MAX_SELECTED`.

        below: `seq` above the selected ones; None for no limit
        """
        found: dict[tuple[int, str], list[int]] = {}
        present = await self._shards.of(account)
        count, before, events = 0, below, set[str]()
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
            rows = callback_views.newest_to_resend(page.rows, events) if action == REPLAY else page.rows
            rows = [row for row in rows if row.state in STATES[action]][: MAX_SELECTED - count]
            for row in rows:
                shard = callback_views.shard_to_resend(row, present)
                found.setdefault((shard, row.state), []).append(row.seq)
            count, before = count + len(rows), page.older
            if before is None or count >= MAX_SELECTED:
                break
        return SelectedCallbacks(found)

    async def start(
        self, action: str, selected: SelectedCallbacks, *, account: str, user: str, choice: str
    ) -> CallbackChange:
        """Start to replay or purge callbacks. Raises `Overloaded`.

        user, choice: user and selection, for the audit
        """
        change_id = secrets.token_hex(8)
        by = f"{user} (console {change_id})"
        made = CallbackChange(change_id, account, action, choice, by, selected.total, int(time.time() * 1000))

        async def add(connection: Connection) -> bool:
            present = await callback_changes.list_latest(connection, account, limit=_READ)
            over = [change.id for change in present if change.is_over]
            if len(present) - len(over) >= MAX_RUNNING:
                return False
            await callback_changes.delete(connection, over[_KEPT - 1 :])
            await callback_changes.add(connection, made)
            return True

        if not await self._database.commit(add):
            raise Overloaded(f"{MAX_RUNNING} changes are in progress: wait for one, or stop it", retry_after=10)
        log.info(
            "console.callbacks_changed",
            extra={"action": action, "count": made.total, "choice": choice[:200], "by": made.by},
        )
        change = self._changes[change_id] = BulkChange(made)
        task = asyncio.create_task(self._carry_out(change, selected), name=f"console {action}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _carry_out(self, change: BulkChange, selected: SelectedCallbacks) -> None:
        work = self._purge if change.about.action == PURGE else self._replay
        problem = ""
        try:
            for (shard, state), seqs in selected.seqs.items():
                for page in pages(seqs, _PAGE):
                    await self._patiently(change, lambda: work(change, shard, state, page))  # noqa: B023
                    if change.stop.is_set():
                        return
        except APIError as error:
            problem = error.problems[0].details
        except asyncio.CancelledError:
            problem = "the Webapp was stopped"
            raise
        except Exception as error:
            log.exception("console.change_failed", extra={"change": change.about.id})
            problem = f"{type(error).__name__}: the log of the Webapp has the cause"
        finally:
            del self._changes[change.about.id]
            await self._end(change, problem)

    async def _end(self, change: BulkChange, problem: str) -> None:
        end = functools.partial(
            callback_changes.end, change_id=change.about.id, done=change.done, stay=change.stay, problem=problem
        )
        try:
            await self._database.persist(end, retry_seconds=_STORE)
        except Exception:
            # Other Webapps see it as ended when it has been silent long enough.
            log.warning("console.change_end_unrecorded", extra={"change": change.about.id}, exc_info=True)

    async def _patiently(self, change: BulkChange, work: Callable[[], Awaitable[float]]) -> None:
        """Carry out one step again until the Coreapp does not refuse it, or the change is stopped.

        work: returns the seconds to wait before the next step
        """
        deadline = time.monotonic() + MAX_REFUSED_SECONDS
        while True:
            try:
                seconds = await work()
            except (CoreappRefused, CoreappUnreachable) as error:
                if not error.retry_after or time.monotonic() + error.retry_after > deadline:
                    raise
                change.waits = error.problems[0].details
                await self._pause(change, error.retry_after)
                if change.stop.is_set():
                    return
            else:
                change.waits = ""
                await self._pause(change, seconds)
                return

    async def _pause(self, change: BulkChange, seconds: float) -> None:
        """Report the progress and wait, at most until the change is stopped, by whichever Webapp."""
        until = time.monotonic() + seconds
        while True:
            if not await self._report(change):
                change.stop.set()
            left = until - time.monotonic()
            if change.stop.is_set() or left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.stop.wait(), min(left, _REPORT))

    async def _report(self, change: BulkChange) -> bool:
        """Store the progress. Returns whether no Webapp has stopped the change.

        Returns True while the database is unreachable.
        """
        report = functools.partial(
            callback_changes.report, change_id=change.about.id, done=change.done, stay=change.stay, waits=change.waits
        )
        try:
            return await self._database.persist(report, retry_seconds=_REPORT_RETRY_SECONDS)
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("console.change_unreported", extra={"change": change.about.id})
            return True

    async def _purge(self, change: BulkChange, shard: int, state: str, seqs: Sequence[int]) -> float:
        statuses = [_STATUSES[state]]
        purged = await self._link.operate(
            shard,
            lambda n: core.PurgeCallbacks(n, list(seqs), change.about.by, change.about.choice, shard, statuses),
            core.Purged,
        )
        change.done += purged.count
        change.stay += len(seqs) - purged.count
        return 0.0

    async def _replay(self, change: BulkChange, shard: int, state: str, seqs: Sequence[int]) -> float:
        replayed = await self._link.call(
            shard,
            lambda n: core.ResendCallbacks(n, change.about.account, list(seqs), change.about.by, shard, state == DONE),
            core.Replayed,
        )
        change.done += replayed.count
        change.stay += len(seqs) - replayed.count
        # A shard replays this many per second.
        return replayed.count / core.REPLAYS_PER_SECOND
