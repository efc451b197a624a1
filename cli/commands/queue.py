"""`tidings queue`: lists jobs and callbacks, posts callbacks again, and deletes queued rows."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import operator
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from cli import choices, chosen_number, guard, process, queue_pages
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from cli.queue_changes import Count, QueueChanges
from cli.settings import QueueSettings
from tidings.storage.business import audit_entries, callback_purges, callback_replays, quarantine, queue_views
from tidings.storage.business.queue_views import (
    CALLBACK_STATUSES,
    DEAD,
    FAILING,
    JOB_STATUSES,
    QUARANTINE_STATUSES,
    QUARANTINED,
    CallbackView,
    JobView,
    QuarantineView,
    RowFilter,
)
from tidings.storage.database import Connection, Database

LIMIT = 100
_PAGE = 1000

Row = TypeVar("Row", bound=CallbackView | JobView | QuarantineView)
# Row of a queue, which belongs to a shard.
Queued = TypeVar("Queued", bound=CallbackView | JobView)


@dataclasses.dataclass(frozen=True)
class _Queue(Generic[Row]):
    """One of the two queues, or the quarantine."""

    name: str
    list_page: Callable[..., Awaitable[Sequence[Row]]]  # function of `queue_views`
    key: Callable[[Row], Any]  # returns the key that identifies and orders rows
    make_object: Callable[[Row, float], dict[str, Any]]  # from a row and the time in Unix seconds
    make_line: Callable[[Row, float], str]  # from a row and the time in Unix seconds

    def counted(self, number: int) -> str:
        """Return a number of rows with their name."""
        return counted(number, self.name.removesuffix("s"), self.name)

    async def read(self, connection: Connection, choice: RowFilter, limit: int = 0) -> Sequence[Row]:
        """Return the first `limit` of the selected rows, or all of them if `limit` is 0."""
        rows: list[Row] = []
        after: dict[str, Any] = {}
        while page := await self.list_page(
            connection, choice, limit=min(_PAGE, limit - len(rows)) if limit > 0 else _PAGE, **after
        ):
            rows += page
            after = {"after": self.key(page[-1])}
        return rows


def by_shard(queue: _Queue[Queued], rows: Sequence[Queued]) -> dict[int, list[Any]]:
    """Return the keys of the rows, by shard."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row.shard, []).append(queue.key(row))
    return found


_JOBS: _Queue[JobView] = _Queue(
    "jobs", queue_views.list_jobs, operator.attrgetter("id"), queue_pages.job_object, queue_pages.job_line
)
CALLBACKS: _Queue[CallbackView] = _Queue(
    "callbacks",
    queue_views.list_callbacks,
    operator.attrgetter("seq"),
    queue_pages.callback_object,
    queue_pages.callback_line,
)
_QUARANTINE: _Queue[QuarantineView] = _Queue(
    "items",
    queue_views.list_quarantine,
    operator.attrgetter("kind", "id"),
    queue_pages.quarantine_object,
    queue_pages.quarantine_line,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action, the selection of rows and the output format."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("status", "jobs", "callbacks", "quarantine", "replay", "purge", "purge-jobs", "release", "audit"),
        default="status",
        help="count what is in the queues (default); list jobs; list callbacks; list items that ended a process or a "
        "shard; post what failed or was given up again, with the same event ids; delete callbacks unposted (without "
        "--status the dead ones); delete messages that were never sent, which get the status failed; let quarantined "
        "items be handled again; list who replayed and purged what",
    )
    choices.add_arguments(parser)
    parser.add_argument(
        "--limit", type=choices.count, default=LIMIT, metavar="N", help=f"rows to list; 0 for all ({LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--yes", action="store_true", help="purge without asking")


def run(options: argparse.Namespace) -> int:
    """Read the database. Replays and purges are requests to the Coreapp that owns the shard, if there is one."""
    return int(process.run_loop(_run(options, QueueSettings.read(os.environ))))


async def _run(options: argparse.Namespace, settings: QueueSettings) -> int:
    database = Database(settings.business, "business")
    try:
        if options.number:
            await chosen_number.require(database, settings.account, options.number.lstrip("+"), removing=True)
        if options.action in _CHANGES:
            changes = QueueChanges(database, CoreappClient.of(settings), heartbeat_timeout=settings.lease_seconds)
            return await _CHANGES[options.action](options, database, changes)
        async with database.reading() as connection:
            await _LISTS[options.action](options, connection)
    finally:
        await database.close()
    return 0


async def _show_depths(options: argparse.Namespace, connection: Connection) -> None:
    choices.refuse(options)
    found, now = await queue_views.depths(connection), time.time()
    if options.json:
        _print_object({"queues": [queue_pages.depth_object(depth, now) for depth in found]})
    else:
        _print_lines(queue_pages.depth_lines(found, now))


async def _list_jobs(options: argparse.Namespace, connection: Connection) -> None:
    await _list(options, connection, _JOBS, _choose_jobs(options))


async def _list_callbacks(options: argparse.Namespace, connection: Connection) -> None:
    await _list(options, connection, CALLBACKS, choices.read(options, of=CALLBACK_STATUSES, default=()))


async def _list_quarantine(options: argparse.Namespace, connection: Connection) -> None:
    await _list(options, connection, _QUARANTINE, choices.read(options, of=QUARANTINE_STATUSES, default=()))


async def _list(options: argparse.Namespace, connection: Connection, queue: _Queue[Row], choice: RowFilter) -> None:
    rows, now = await queue.read(connection, choice, options.limit), time.time()
    if options.json:
        _print_object({queue.name: [queue.make_object(row, now) for row in rows]})
        return
    more = " (there may be more: --limit 0 lists all)" if options.limit and len(rows) == options.limit else ""
    _print_lines([*(queue.make_line(row, now) for row in rows), f"{queue.counted(len(rows))}{more}"])


async def _list_audit(options: argparse.Namespace, connection: Connection) -> None:
    choices.refuse(options, but=("since", "until"))
    entries: list[queue_pages.AuditedRow] = []
    last = (0, 0)
    while page := await callback_replays.list_after(connection, last):
        entries += page
        last = (page[-1].at, page[-1].seq)
    for kind in (callback_purges.CALLBACKS, callback_purges.JOBS):
        last = (0, -1)
        while purges := await callback_purges.list_after(connection, last, queue=kind):
            entries += purges
            last = (purges[-1].at, purges[-1].shard)
    after = (0, "")
    while actions := await audit_entries.list_after(connection, after):
        entries += actions
        after = (actions[-1].at, actions[-1].id)
    since = choices.parse_time(options.since, "--since", time.time())
    until = choices.parse_time(options.until, "--until", time.time())
    chosen = [entry for entry in entries if entry.at >= since and (not until or entry.at < until)]
    chosen.sort(key=lambda entry: entry.at)
    if options.json:
        _print_object({"audit": [queue_pages.audit_object(entry) for entry in chosen]})
    else:
        _print_lines([queue_pages.audit_line(entry) for entry in chosen])
        if not chosen:
            print("no audit entries", file=sys.stderr)


_LISTS = {
    "status": _show_depths,
    "jobs": _list_jobs,
    "callbacks": _list_callbacks,
    "quarantine": _list_quarantine,
    "audit": _list_audit,
}


async def _replay(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = choices.read(options, of=(FAILING, DEAD), default=(FAILING, DEAD))
    async with database.reading() as connection:
        rows = await CALLBACKS.read(connection, choice)
    count = await changes.replay(by_shard(CALLBACKS, rows))
    due = "due now, with the same event id"
    _print_line(options, {"replayed": count}, counted(count, f"callback is {due}", f"callbacks are {due}s"))
    return 0


async def _purge(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = choices.read(options, of=CALLBACK_STATUSES, default=(DEAD,))
    rows = await _confirmed(options, database, CALLBACKS, choice, "They are deleted and never posted.")
    if rows:
        count = await changes.purge(by_shard(CALLBACKS, rows), choices.describe(choice), choice.statuses)
        done = counted(count.done, "callback is", "callbacks are")
        stay = counted(count.stay, "has changed, and stays", "have changed, and stay")
        _print_purged(options, count, f"{done} deleted", stay)
    return 0


async def _purge_jobs(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = _choose_jobs(options)
    if choice == RowFilter():
        raise guard.CommandFailure("select messages: --status new --status encrypted selects every unsent message")
    effect = "Unsent messages are deleted and reported as failed."
    rows = await _confirmed(options, database, _JOBS, choice, effect)
    if rows:
        count = await changes.purge_jobs(by_shard(_JOBS, rows), choices.describe(choice), choice.statuses)
        done = counted(count.done, "message is deleted and fails", "messages are deleted and fail")
        stay = counted(
            count.stay,
            "was sent, has changed or is not a message, and stays",
            "were sent, have changed or are not messages, and stay",
        )
        _print_purged(options, count, done, stay)
    return 0


async def _release(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = choices.read(options, of=(QUARANTINED,), default=(QUARANTINED,))
    async with database.reading() as connection:
        rows = await _QUARANTINE.read(connection, choice)
    items = [quarantine.name(row.kind, row.id) for row in rows]
    count = await database.persist(lambda connection: quarantine.release(connection, items))
    summary = counted(
        count,
        "item is handled again when its shard is next opened: restart the Coreapps",
        "items are handled again when their shards are next opened: restart the Coreapps",
    )
    _print_line(options, {"released": count}, summary)
    return 0


_CHANGES = {"replay": _replay, "purge": _purge, "purge-jobs": _purge_jobs, "release": _release}


async def _confirmed(
    options: argparse.Namespace, database: Database, queue: _Queue[Queued], choice: RowFilter, effect: str
) -> Sequence[Queued]:
    """Return the selected rows after the user has confirmed their deletion. Raises `CommandFailure` without
    confirmation.

    effect: sentence about the effect of the deletion.
    """
    async with database.reading() as connection:
        rows = await queue.read(connection, choice)
    if not rows:
        _print_line(options, {"purged": 0, "changed": 0}, f"no {queue.name} are {choices.describe(choice)}")
    elif not options.yes:
        _confirm(rows, choice, queue.counted(len(rows)), effect)
    return rows


def _confirm(rows: Sequence[CallbackView | JobView], choice: RowFilter, what: str, effect: str) -> None:
    """Ask the user to type the number of rows. Raises `CommandFailure` for another input, and without a terminal.

    what: number of rows with the name of the queue.
    effect: sentence about the effect of the deletion.
    """
    if not sys.stdin.isatty():
        raise guard.CommandFailure(f"{what} would be deleted: confirm with --yes")
    statuses = collections.Counter(row.status for row in rows)
    summary = ", ".join(f"{count} {status}" for status, count in statuses.items())
    oldest, newest = min(row.created_at for row in rows), max(row.created_at for row in rows)
    print(f"{choices.describe(choice)}: {summary}, from {choices.utc(oldest)} to {choices.utc(newest)}")
    print(effect)
    try:
        typed = input(f"Type {len(rows)} to delete {'it' if len(rows) == 1 else 'them'}: ")
    except EOFError:
        typed = ""
    if typed.strip() != str(len(rows)):
        raise guard.CommandFailure("nothing was deleted")


def _choose_jobs(options: argparse.Namespace) -> RowFilter:
    """Return the selection of jobs. Raises `CommandFailure` for options that apply only to callbacks."""
    if options.kind or options.event:
        raise guard.CommandFailure("--kind and --event apply to callbacks only")
    return choices.read(options, of=JOB_STATUSES, default=())


def _print_purged(options: argparse.Namespace, count: Count, done: str, stay: str) -> None:
    line = f"{done}; {stay}" if count.stay else done
    _print_line(options, {"purged": count.done, "changed": count.stay}, line)


def _print_line(options: argparse.Namespace, found: dict[str, Any], line: str) -> None:
    if options.json:
        _print_object(found)
    else:
        print(line)


def _print_object(found: dict[str, Any]) -> None:
    print(json.dumps(found, indent=1))


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)
