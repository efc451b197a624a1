"""`tidings callbacks`: lists failing callbacks and dead letters, shows attempts, and replays callbacks."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cli import callback_resends, choices, chosen_number, guard, process, queue_pages
from cli.commands import queue
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from cli.queue_changes import QueueChanges
from cli.settings import QueueSettings
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
    parser.add_argument("events", nargs="*", metavar="EVENT", help="to show, or to replay (default: dead letters)")
    chosen_number.add_option(parser)
    parser.add_argument(
        "--since", type=choices.word, metavar="TIME", help="of resend: 2026-01-31T10:00:00Z, 90m or 2h ago"
    )
    parser.add_argument("--until", type=choices.word, metavar="TIME", help="of resend: like --since")
    parser.add_argument(
        "--recipient", type=choices.recipient, metavar="NUMBER", help="of resend: digits, or a group's id"
    )
    parser.add_argument("--kind", type=choices.word, metavar="KIND", help="of resend: status_change, inbound_message …")
    parser.add_argument("--state", choices=(FAILING, GIVEN_UP, DONE), default="", help="of resend (default: any)")
    parser.add_argument("--json", action="store_true", help="of list: one JSON object")


def run(options: argparse.Namespace) -> int:
    """Read the database (list, show, replays), or send requests to the Coreapps that own the shards."""
    _check(options)
    return int(process.run_loop(_run(options, QueueSettings.read(os.environ))))


def _check(options: argparse.Namespace) -> None:
    """Raise `CommandFailure` for what the action would ignore."""
    if options.action == "show" and not options.events:
        raise guard.CommandFailure("name the event ids to show: `tidings callbacks list` prints them")
    if options.events and options.action not in ("show", "replay"):
        raise guard.CommandFailure(f"{options.events[0]}: event ids do not apply to {options.action}")
    if options.json and options.action != "list":
        raise guard.CommandFailure("--json applies to list only")
    for name in ("since", "until", "recipient", "kind", "state"):
        if getattr(options, name) and options.action != "resend":
            raise guard.CommandFailure(f"--{name} applies to resend only")


async def _run(options: argparse.Namespace, settings: QueueSettings) -> int:
    database = Database(settings.business, "business")
    try:
        number = ""
        if options.number is not None:
            number = await chosen_number.find(database, settings.account, options.number)
        changes = QueueChanges(database, CoreappClient.of(settings), heartbeat_timeout=settings.lease_seconds)
        if options.action == "list" and options.json:
            return await _list_objects(database, number)
        if options.action == "list":
            return await _list(database, number)
        if options.action == "replays":
            return await _list_replays(database)
        if options.action == "show":
            return await _show(database, options.events)
        if options.action == "replay" and options.events:
            return await _replay(database, changes, options.events)
        if options.action == "replay":
            return await _replay_dead(database, changes, number)
        await callback_resends.resend(database, changes, number or settings.account, _chosen(options), _print_progress)
        return 0
    finally:
        await database.close()


async def _list(database: Database, number: str) -> int:
    """Print failed callbacks and dead letters. number: of the business; empty for any"""
    failing = await _print_pages(database, callbacks.list_failing, number, _next_attempt)
    dead = await _print_pages(database, callbacks.list_dead, number, lambda _: "given up")
    print(f"{failing} to be retried, {counted(dead, 'dead letter')}")
    return 0


async def _list_objects(database: Database, number: str) -> int:
    """Print failed callbacks and dead letters as one JSON object. number: of the business; empty for any"""
    async with database.reading() as connection:
        failing, dead = [
            await queue.CALLBACKS.read(connection, RowFilter(statuses=(status,), number=number))
            for status in (FAILING, DEAD)
        ]
    now = time.time()
    entries = [queue_pages.callback_object(row, now) for row in (*failing, *dead)]
    print(json.dumps({"callbacks": entries}, indent=1))
    return 0


async def _list_replays(database: Database) -> int:
    last = (0, 0)
    while True:
        async with database.reading() as connection:
            page = await callback_replays.list_after(connection, last)
        for replay in page:
            print(f"{choices.utc(replay.at)}  {replay.event_id}  {replay.by}")
        if not page:
            break
        last = (page[-1].at, page[-1].seq)
    if last == (0, 0):
        print("no replays", file=sys.stderr)
    return 0


async def _print_pages(database: Database, read: Any, number: str, describe: Callable[[Callback], str]) -> int:
    after = count = 0
    while True:
        async with database.reading() as connection:
            page = await read(connection, after=after)
        for row in page:
            if number in ("", row.account):
                line = f"{row.event_id}  {row.kind}  {row.subject}  {counted(row.attempt, 'attempt')}, {describe(row)}"
                print(f"{line}  {row.last_error}")
                count += 1
        if not page:
            return count
        after = page[-1].seq


def _next_attempt(row: Callback) -> str:
    return f"again at {choices.utc(row.due_at)}"


async def _replay_dead(database: Database, changes: QueueChanges, number: str) -> int:
    """Replay all dead letters. number: of the business; empty for any"""
    async with database.reading() as connection:
        rows = await queue.CALLBACKS.read(connection, RowFilter(statuses=(DEAD,), number=number))
    _print_pending(await changes.replay(queue.by_shard(queue.CALLBACKS, rows)))
    return 0


async def _replay(database: Database, changes: QueueChanges, events: Sequence[str]) -> int:
    """Replay the callbacks with these event ids. Returns 1 if one is unknown. Raises `CommandFailure`."""
    chosen: dict[int, list[int]] = {}
    unknown = []
    async with database.reading() as connection:
        for event in events:
            found = [*await _find_queued(connection, event), *await _find_ended(connection, event)]
            for shard, seqs in found:
                chosen.setdefault(shard, []).extend(seqs)
            if not found:
                unknown.append(event)
    _print_pending(await changes.replay(chosen))
    for event in unknown:
        print(f"{event}  unknown, or not tried yet", file=sys.stderr)
    return int(bool(unknown))


async def _find_queued(connection: Connection, event: str) -> Iterable[tuple[int, Sequence[int]]]:
    """Return the `seq`s, with their shards, of failed callbacks and dead letters with this event id."""
    is_own = choices.is_own(event)
    named = RowFilter(
        statuses=(FAILING, DEAD),
        seqs=() if is_own else (choices.parse_seq(event),),
        events=(event,) if is_own else (),
    )
    return queue.by_shard(queue.CALLBACKS, await queue.CALLBACKS.read(connection, named)).items()


async def _find_ended(connection: Connection, event: str) -> Iterable[tuple[int, Sequence[int]]]:
    """Return the `seq`s, with their shards, of accepted callbacks with this event id."""
    found: list[tuple[int, Sequence[int]]] = []
    for number in await numbers.list_numbers(connection):
        named = CallbackFilter(id=event, state=DONE)
        page = await callback_views.list_to_resend(connection, number.number, named, block=number.shard_block)
        found += page.seqs.items()
    return found


def _chosen(options: argparse.Namespace) -> CallbackFilter:
    """Return the callbacks to post again that the options select. Raises `CommandFailure`."""
    now = time.time()
    return CallbackFilter(
        recipient=options.recipient or "",
        kind=options.kind or "",
        state=options.state,
        since=choices.parse_time(options.since, "--since", now),
        until=choices.parse_time(options.until, "--until", now) or int(now * 1000),
    )


def _print_progress(total: int, reached: int | None) -> None:
    back = f" back to {choices.utc(reached)}" if reached is not None else ""
    _print_pending(total, back)


def _print_pending(count: int, back: str = "") -> None:
    print(f"{counted(count, 'callback is', 'callbacks are')} pending again{back}", flush=True)


async def _show(database: Database, events: Sequence[str]) -> int:
    """Print the attempts at the callbacks with these event ids. Returns 1 if one is unknown."""
    unknown = 0
    for event in events:
        async with database.reading() as connection:
            found = [
                record
                for number in await numbers.list_numbers(connection)
                for record in await _find(connection, number, event)
            ]
        unknown += not found
        print("\n".join(line for record in found for line in _lines(record)) or f"{event}  unknown")
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
    yield f"{words}, {counted(entry.attempt, 'attempt')}{again}"
    for one in record.attempts:
        yield f"  {choices.utc(one.at)}  attempt {one.attempt}  {one.took} ms  {one.error or f'HTTP {one.status}'}"
