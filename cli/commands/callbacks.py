"""`tidings callbacks`: lists failing callbacks and dead letters, and replays them."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cli import choices, coreapp_client, guard, process
from cli.coreapp_client import CoreappClient
from cli.settings import CoreappSettings
from tidings.runtime.settings import DatabaseSettings
from tidings.storage.business import callback_replays, callbacks, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database
from tidings.wire import core

PAGE = 1_000  # callbacks that a Coreapp replays per request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the event ids of the callbacks."""
    parser.add_argument(
        "action",
        choices=("list", "replay", "replays"),
        help="list the dead letters and what failed so far, make dead letters pending again, or list who did so when",
    )
    parser.add_argument("events", nargs="*", metavar="EVENT", help="event ids to replay (default: all)")


def run(options: argparse.Namespace) -> int:
    """Read the database (list, replays), or send requests to the Coreapps that own the shards (replay)."""
    found = CoreappSettings.read(os.environ)
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
    print(f"{failing} come again, {dead} dead letters")
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


async def _replay(found: CoreappSettings, events: Sequence[str]) -> int:
    """Replay the callbacks with these event ids; without ids, all dead letters. Raises `CommandFailure`."""
    seqs = [choices.parse_seq(event) for event in events if not choices.is_own(event)]
    own = [event for event in events if choices.is_own(event)]
    coreapps, who = CoreappClient.of(found), coreapp_client.who()
    database = Database(found.business, "business")
    try:
        async with database.reading() as connection:
            owners = [owner for owner in await shards.list_owners(connection) if owner.address]
            seqs += await callbacks.list_seqs(connection, own)
        dead = {} if events else await _list_dead(database)
    finally:
        await database.close()
    if not owners:
        raise guard.CommandFailure("no Coreapp owns a shard: start one first")
    total = await replay([(owner, seqs if events else dead.get(owner.shard, [])) for owner in owners], coreapps, who)
    print(f"{total} callbacks are pending again")
    return 0


async def _list_dead(database: Database) -> Mapping[int, list[int]]:
    """List the dead letters of each shard."""
    found: dict[int, list[int]] = {}
    after = 0
    while True:
        async with database.reading() as connection:
            page = await callbacks.list_dead(connection, after=after)
        for row in page:
            found.setdefault(row.shard, []).append(row.seq)
        if not page:
            return found
        after = page[-1].seq


class ShardCaller(Protocol):
    """Sends one request to a Coreapp, as `CoreappClient` does."""

    async def call(self, address: str, make: Callable[[int], Any]) -> Any: ...


async def replay(work: Sequence[tuple[Owner, Sequence[int]]], coreapps: ShardCaller, who: str) -> int:
    """Replay callbacks of shards, each once and 1,000 per request. Returns their number.

    Raises `CommandFailure` when an owner refuses, for example because its queue is full. The callbacks that were
    replayed before stay pending, and the error names their number.

    work: owners of shards with the callbacks to replay
    """
    total = 0
    for owner, seqs in work:
        for start in range(0, len(seqs), PAGE):
            make = functools.partial(
                core.ReplayCallbacks, seqs=list(seqs[start : start + PAGE]), by=who, shard=owner.shard
            )
            answer = await coreapps.call(owner.address, make)
            if not isinstance(answer, core.Replayed):
                refusal = f"the Coreapp at {owner.address} answered {answer!r}"
                raise guard.CommandFailure(f"{total} callbacks are pending again; {refusal}")
            total += answer.count
    return total
