"""`tidings queue`: look into the job queue and the callback queue, post callbacks again, or delete what waits."""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from cli import choices, guard, process, queue_pages
from cli.links import Links
from cli.queue_changes import QueueChanges, by_shard
from cli.settings import QueueSettings
from tidings.storage.business import callback_purges, callback_replays, queue_views
from tidings.storage.business.callback_purges import Purge
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.queue_views import (
    CALLBACK_STATUSES,
    DEAD,
    FAILING,
    JOB_STATUSES,
    CallbackView,
    Choice,
    JobView,
)
from tidings.storage.database import Connection, Database

LIMIT = 100
_PAGE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action, what it is for, and how it is printed."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("status", "jobs", "callbacks", "replay", "purge", "purge-jobs", "audit"),
        default="status",
        help="count what is in the queues (default); list jobs; list callbacks; post what failed or was given "
        "up again, with the same event ids; delete callbacks unposted (without --status the dead ones); delete "
        "messages that were never sent, which get the status failed; list who replayed and purged what",
    )
    choices.add_arguments(parser)
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"rows to list; 0 for all ({LIMIT})")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--yes", action="store_true", help="purge without asking")


def run(options: argparse.Namespace) -> int:
    """Ask the database; replays and purges are done by the Coreapp that owns the shard, if one does."""
    return int(process.run_loop(_run(options, QueueSettings.read(os.environ))))


async def _run(options: argparse.Namespace, settings: QueueSettings) -> int:
    database = Database(settings.business, "business")
    try:
        if options.action in _CHANGES:
            changes = QueueChanges(database, Links.of(settings), silence=settings.lease_seconds)
            return await _CHANGES[options.action](options, database, changes)
        async with database.reading() as connection:
            await _LISTS[options.action](options, connection)
    finally:
        await database.close()
    return 0


async def _show_depths(options: argparse.Namespace, connection: Connection) -> None:
    found, now = await queue_views.depths(connection), time.time()
    if options.json:
        _print_object({"queues": [queue_pages.depth_object(depth, now) for depth in found]})
    else:
        _print_lines(queue_pages.depth_lines(found, now))


async def _list_jobs(options: argparse.Namespace, connection: Connection) -> None:
    now = time.time()
    rows = await _read_jobs(connection, _choose_jobs(options, now), options.limit)
    if options.json:
        _print_object({"jobs": [queue_pages.job_object(row, now) for row in rows]})
        return
    _print_lines([queue_pages.job_line(row, now) for row in rows])
    _print_lines([_count(rows, options.limit, "jobs")])


async def _list_callbacks(options: argparse.Namespace, connection: Connection) -> None:
    now = time.time()
    choice = choices.read(options, of=CALLBACK_STATUSES, default=(), now=now)
    rows = await _read_callbacks(connection, choice, options.limit)
    if options.json:
        _print_object({"callbacks": [queue_pages.callback_object(row, now) for row in rows]})
        return
    _print_lines([queue_pages.callback_line(row, now) for row in rows])
    _print_lines([_count(rows, options.limit, "callbacks")])


async def _list_audit(options: argparse.Namespace, connection: Connection) -> None:
    entries: list[Replay | Purge] = []
    last = (0, 0)
    while page := await callback_replays.list_after(connection, last):
        entries += page
        last = (page[-1].at, page[-1].seq)
    for kind in (callback_purges.CALLBACKS, callback_purges.JOBS):
        last = (0, -1)
        while purges := await callback_purges.list_after(connection, last, queue=kind):
            entries += purges
            last = (purges[-1].at, purges[-1].shard)
    since = choices.parse_time(options.since, "--since", time.time())
    until = choices.parse_time(options.until, "--until", time.time())
    chosen = [entry for entry in entries if entry.at >= since and (not until or entry.at < until)]
    chosen.sort(key=lambda entry: entry.at)
    if options.json:
        _print_object({"audit": [queue_pages.audit_object(entry) for entry in chosen]})
    else:
        _print_lines([queue_pages.audit_line(entry) for entry in chosen])


_LISTS = {"status": _show_depths, "jobs": _list_jobs, "callbacks": _list_callbacks, "audit": _list_audit}


async def _replay(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = choices.read(options, of=(FAILING, DEAD), default=(FAILING, DEAD), now=time.time())
    async with database.reading() as connection:
        rows = await _read_callbacks(connection, choice, 0)
    count = await changes.replay(by_shard(rows))
    _say(options, {"replayed": count}, f"{count} callbacks are due now, with the same event ids")
    return 0


async def _purge(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = choices.read(options, of=CALLBACK_STATUSES, default=(DEAD,), now=time.time())
    async with database.reading() as connection:
        rows = await _read_callbacks(connection, choice, 0)
    if not rows:
        _say(options, {"purged": 0, "changed": 0}, f"no callbacks are {choices.describe(choice)}")
        return 0
    if not options.yes:
        _confirm(rows, choice, "callbacks", "They are deleted, and never posted.")
    count = await changes.purge(by_shard(rows), choices.describe(choice), choice.statuses)
    stay = f"; {count.stay} have changed meanwhile, and stay" if count.stay else ""
    _say(options, {"purged": count.done, "changed": count.stay}, f"{count.done} callbacks are deleted{stay}")
    return 0


async def _purge_jobs(options: argparse.Namespace, database: Database, changes: QueueChanges) -> int:
    choice = _choose_jobs(options, time.time())
    if choice == Choice():
        raise guard.Failure("say which: --status new --status encrypted is every message that was not sent")
    async with database.reading() as connection:
        rows = await _read_jobs(connection, choice, 0)
    if not rows:
        _say(options, {"purged": 0, "changed": 0}, f"no jobs are {choices.describe(choice)}")
        return 0
    if not options.yes:
        _confirm(rows, choice, "jobs", "Those that were not sent yet are deleted, and reported as failed.")
    ids: dict[int, list[str]] = {}
    for row in rows:
        ids.setdefault(row.shard, []).append(row.id)
    count = await changes.purge_jobs(ids, choices.describe(choice), choice.statuses)
    stay = f"; {count.stay} were sent or have changed meanwhile, or are no messages, and stay" if count.stay else ""
    _say(options, {"purged": count.done, "changed": count.stay}, f"{count.done} messages are deleted and fail{stay}")
    return 0


_CHANGES = {"replay": _replay, "purge": _purge, "purge-jobs": _purge_jobs}


def _confirm(rows: Sequence[CallbackView | JobView], choice: Choice, what: str, effect: str) -> None:
    """Have the number of rows typed. what: they are; effect: of the deletion. Raises `Failure`."""
    if not sys.stdin.isatty():
        raise guard.Failure(f"{len(rows)} {what} would be deleted: ask for it with --yes")
    statuses = collections.Counter(row.status for row in rows)
    told = ", ".join(f"{count} {status}" for status, count in statuses.items())
    oldest, newest = min(row.created_at for row in rows), max(row.created_at for row in rows)
    print(f"{choices.describe(choice)}: {told}, from {choices.utc(oldest)} to {choices.utc(newest)}")
    print(effect)
    try:
        typed = input(f"Type {len(rows)} to delete them: ")
    except EOFError:
        typed = ""
    if typed.strip() != str(len(rows)):
        raise guard.Failure("nothing was deleted")


def _choose_jobs(options: argparse.Namespace, now: float) -> Choice:
    """now: Unix seconds. Raises `Failure`."""
    if options.kind or options.event:
        raise guard.Failure("--kind and --event are of callbacks")
    return choices.read(options, of=JOB_STATUSES, default=(), now=now)


async def _read_jobs(connection: Connection, choice: Choice, limit: int) -> list[JobView]:
    rows: list[JobView] = []
    while page := await queue_views.list_jobs(
        connection, choice, after=rows[-1].id if rows else "", limit=_left(limit, len(rows))
    ):
        rows += page
    return rows


async def _read_callbacks(connection: Connection, choice: Choice, limit: int) -> list[CallbackView]:
    rows: list[CallbackView] = []
    while page := await queue_views.list_callbacks(
        connection, choice, after=rows[-1].seq if rows else 0, limit=_left(limit, len(rows))
    ):
        rows += page
    return rows


def _left(limit: int, have: int) -> int:
    """Rows to read next. limit: of all, 0 for none."""
    return min(_PAGE, limit - have) if limit > 0 else _PAGE


def _count(rows: Sequence[Any], limit: int, what: str) -> str:
    more = " (there may be more: --limit 0 lists all)" if limit and len(rows) == limit else ""
    return f"{len(rows)} {what}{more}"


def _say(options: argparse.Namespace, found: dict[str, Any], line: str) -> None:
    if options.json:
        _print_object(found)
    else:
        print(line)


def _print_object(found: dict[str, Any]) -> None:
    print(json.dumps(found, indent=1))


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)
