"""`tidings callbacks`: lists failing callbacks and dead letters, and replays them."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from cli import choices, process
from cli.commands import queue
from cli.coreapp_client import CoreappClient
from cli.queue_changes import QueueChanges
from cli.settings import QueueSettings
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business import callback_replays, callbacks
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.queue_views import DEAD, FAILING, RowFilter
from tidings.storage.database import Database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the event ids of the callbacks."""
    parser.add_argument(
        "action",
        choices=("list", "replay", "replays"),
        help="list dead letters and failed callbacks, make dead letters pending again, or list past replays",
    )
    parser.add_argument("events", nargs="*", metavar="EVENT", help="event ids to replay (default: all)")


def run(options: argparse.Namespace) -> int:
    """Read the database (list, replays), or send requests to the Coreapps that own the shards (replay)."""
    found = QueueSettings.read(os.environ)
    if options.action == "list":
        return asyncio.run(_list(found.business))
    if options.action == "replays":
        return asyncio.run(_list_replays(found.business))
    return int(process.run_loop(_replay(found, options.events)))


async def _list(where: DatabaseSettings) -> int:
    database = Database(where, "business")
    try:
        failing = await _print_pages(database, callbacks.list_failing, _comes_again)
        dead = await _print_pages(database, callbacks.list_dead, lambda _: "given up")
    finally:
        await database.close()
    print(f"{failing} to be retried, {dead} dead letters")
    return 0


async def _list_replays(where: DatabaseSettings) -> int:
    database = Database(where, "business")
    try:
        last = (0, 0)
        while True:
            async with database.reading() as connection:
                page = await callback_replays.list_after(connection, last)
            for replay in page:
                print(f"{choices.utc(replay.at)}  {replay.event_id}  {replay.by}")
            if not page:
                return 0
            last = (page[-1].at, page[-1].seq)
    finally:
        await database.close()


async def _print_pages(database: Database, read: Any, fate: Callable[[Callback], str]) -> int:
    after = count = 0
    while True:
        async with database.reading() as connection:
            page = await read(connection, after=after)
        for row in page:
            told = f"{row.event_id}  {row.kind}  {row.subject}  {row.attempt} attempts, {fate(row)}"
            print(f"{told}  {row.last_error}")
        count += len(page)
        if not page:
            return count
        after = page[-1].seq


def _comes_again(row: Callback) -> str:
    return f"again at {choices.utc(row.due_at)}"


async def _replay(settings: QueueSettings, events: Sequence[str]) -> int:
    """Replay the callbacks with these event ids; without ids, all dead letters. Raises `CommandFailure`."""
    choice = RowFilter(
        statuses=(FAILING, DEAD) if events else (DEAD,),
        seqs=tuple(choices.parse_seq(event) for event in events if not choices.is_own(event)),
        events=tuple(event for event in events if choices.is_own(event)),
    )
    database = Database(settings.business, "business")
    try:
        changes = QueueChanges(database, CoreappClient.of(settings), heartbeat_timeout=settings.lease_seconds)
        async with database.reading() as connection:
            rows = await queue.CALLBACKS.read(connection, choice)
        total = await changes.replay(queue.by_shard(queue.CALLBACKS, rows))
    finally:
        await database.close()
    print(f"{total} callbacks are pending again")
    return 0
