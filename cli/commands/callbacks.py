"""`tidings callbacks`: lists failing callbacks and dead letters, shows attempts, and replays callbacks."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cli import callback_resends, choices, chosen_number, process
from cli.commands import queue
from cli.coreapp_client import CoreappClient
from cli.queue_changes import QueueChanges
from cli.settings import QueueSettings
from tidings.installation.settings import DatabaseSettings
from tidings.storage.business import callback_replays, callback_views, callbacks, numbers
from tidings.storage.business.callback_views import DONE, FAILING, GIVEN_UP, CallbackFilter, CallbackRecord
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.queue_views import DEAD, RowFilter
from tidings.storage.database import Connection, Database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the event ids of the callbacks."""
    parser.add_argument(
        "action",
        choices=("list", "show", "replay", "resend", "replays"),
        help="list dead letters and failed callbacks; show the attempts at callbacks; make dead letters pending again; "
        "post all again that the options select, except those not tried yet; or list past replays",
    )
    parser.add_argument("events", nargs="*", metavar="EVENT", help="event ids to show or replay (default: all)")
    chosen_number.add_option(parser)
    parser.add_argument("--since", metavar="TIME", default="", help="of resend: 2026-01-31T10:00:00Z, or 90m, 2h ago")
    parser.add_argument("--until", metavar="TIME", default="", help="of resend: like --since")
    parser.add_argument(
        "--recipient", type=choices.recipient, metavar="NUMBER", default="", help="of resend: digits, or a group's id"
    )
    parser.add_argument("--kind", metavar="KIND", default="", help="of resend: status_change, inbound_message …")
    parser.add_argument("--state", choices=(FAILING, GIVEN_UP, DONE), default="", help="of resend (default: any)")


def run(options: argparse.Namespace) -> int:
    """Read the database (list, replays), or send requests to the Coreapps that own the shards (replay)."""
    found = QueueSettings.read(os.environ)
    if options.action == "list":
        return asyncio.run(_list(found.business))
    if options.action == "replays":
        return asyncio.run(_list_replays(found.business))
    if options.action == "show":
        return asyncio.run(_show(found.business, options.events))
    if options.action == "resend":
        return int(process.run_loop(_resend(found, options)))
    return int(process.run_loop(_replay(found, options.events)))


async def _list(where: DatabaseSettings) -> int:
    database = Database(where, "business")
    try:
        failing = await _print_pages(database, callbacks.list_failing, _next_attempt)
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


def _next_attempt(row: Callback) -> str:
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
            chosen = queue.by_shard(queue.CALLBACKS, rows)
            for event in events:
                for number in await numbers.list_numbers(connection):
                    named = CallbackFilter(id=event, state=DONE)
                    page = await callback_views.list_to_resend(
                        connection, number.number, named, block=number.shard_block
                    )
                    for shard, seqs in page.seqs.items():
                        chosen.setdefault(shard, []).extend(seqs)
        total = await changes.replay(chosen)
    finally:
        await database.close()
    print(f"{total} callbacks are pending again")
    return 0


async def _resend(settings: QueueSettings, options: argparse.Namespace) -> int:
    """Post all callbacks of a number again that the options select. Raises `CommandFailure`."""
    now = time.time()
    choice = CallbackFilter(
        recipient=options.recipient,
        kind=options.kind,
        state=options.state,
        since=choices.parse_time(options.since, "--since", now),
        until=choices.parse_time(options.until, "--until", now) or int(now * 1000),
    )
    database = Database(settings.business, "business")
    try:
        account = await chosen_number.find(database, settings.account, options.number)
        changes = QueueChanges(database, CoreappClient.of(settings), heartbeat_timeout=settings.lease_seconds)
        await callback_resends.resend(database, changes, account, choice, _print_progress)
    finally:
        await database.close()
    return 0


def _print_progress(total: int, reached: int | None) -> None:
    back = f" back to {choices.utc(reached)}" if reached is not None else ""
    print(f"{total} callbacks are pending again{back}", flush=True)


async def _show(where: DatabaseSettings, events: Sequence[str]) -> int:
    """Print the attempts at the callbacks with these event ids. Returns 1 if one is unknown."""
    database = Database(where, "business")
    unknown = 0
    try:
        for event in events:
            async with database.reading() as connection:
                found = [
                    record
                    for number in await numbers.list_numbers(connection)
                    for record in await _find(connection, number, event)
                ]
            unknown += not found
            print("\n".join(line for record in found for line in _lines(record)) or f"{event}  unknown")
    finally:
        await database.close()
    return int(unknown > 0)


async def _find(connection: Connection, number: BusinessNumber, event: str) -> Sequence[CallbackRecord]:
    named = CallbackFilter(id=event)
    page = await callback_views.list_callbacks(connection, number.number, named, block=number.shard_block)
    found = [await callback_views.read_callback(connection, number.number, row.seq) for row in page.rows]
    return [record for record in found if record is not None]


def _lines(record: CallbackRecord) -> Iterator[str]:
    entry = record.entry
    words = f"{entry.event_id}  {entry.kind}  {entry.message_id}  {entry.recipient or '-'}  {entry.state}"
    again = f", again at {choices.utc(entry.next_attempt)}" if entry.next_attempt else ""
    yield f"{words}, {entry.attempt} attempts{again}"
    for one in record.attempts:
        yield f"  {choices.utc(one.at)}  attempt {one.attempt}  {one.took} ms  {one.error or f'HTTP {one.status}'}"
