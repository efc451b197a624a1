"""`tidings callbacks`: look at what the webhook did not take, and send again what was given up."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cli import guard, process
from cli.settings import CoreappSettings
from tidings.runtime import exposure, tls
from tidings.runtime.exposure import LinkCalls
from tidings.runtime.settings import DatabaseSettings
from tidings.storage.business import callback_replays, callbacks, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.connection import Connection, Disconnected, connect
from tidings.wire.requests import Requests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action, and the callbacks that it is for."""
    parser.add_argument(
        "action",
        choices=("list", "replay", "replays"),
        help="list the dead letters and what failed so far, make dead letters pending again, or list who did so when",
    )
    parser.add_argument("events", nargs="*", metavar="EVENT", help="event ids to replay (default: all)")


def run(options: argparse.Namespace) -> int:
    """Ask the database (list, replays) or the Coreapp that owns the shard (replay)."""
    found = CoreappSettings.read(os.environ)
    if options.action == "list":
        return asyncio.run(_list(found.business))
    if options.action == "replays":
        return asyncio.run(_list_replays(found.business))
    return int(process.run_loop(_replay(found, [_seq(event) for event in options.events])))


def _seq(event: str) -> int:
    try:
        return int(event.removeprefix("evt_"), 16)
    except ValueError as error:
        raise guard.Failure(f"{event!r} is no event id") from error


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
                print(f"{_utc(replay.at)}  {replay.event_id}  {replay.by}")
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
    return f"again at {_utc(row.due_at)}"


def _utc(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _who() -> str:
    """The user who runs this, as the machine knows them, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


async def _replay(found: CoreappSettings, seqs: list[int]) -> int:
    calls = exposure.link_calls(found.tls_files, found.plaintext)
    database = Database(found.business, "business")
    try:
        async with database.reading() as connection:
            owners = [owner for owner in await shards.list_owners(connection) if owner.address]
    finally:
        await database.close()
    if not owners:
        raise guard.Failure("no Coreapp owns a shard: start one first")
    total = 0
    for owner in owners:
        total += await _ask(owner.address, found.secrets.link_key, seqs, calls)
    print(f"{total} callbacks are pending again")
    return 0


async def _ask(address: str, key: str, seqs: list[int], calls: LinkCalls) -> int:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    asker, who = _Asker(), _who()
    try:
        connection = await connect(host, int(port), core.Answer, asker, tls=calls.context_for(host))
    except ssl.SSLError as error:
        raise guard.Failure(f"the Coreapp at {address}: {tls.describe(error)}") from error
    try:
        await asker.requests.ask(connection, lambda n: core.Hello(n, key), timeout=10)
        answer = await asker.requests.ask(connection, lambda n: core.ReplayCallbacks(n, seqs, who), timeout=30)
    except (Disconnected, TimeoutError) as error:
        raise guard.Failure(f"the Coreapp at {address} does not answer: {error}") from error
    finally:
        connection.close("done")
    if not isinstance(answer, core.Replayed):
        raise guard.Failure(f"the Coreapp at {address} answered {answer!r}")
    return answer.count


class _Asker:
    """Owner of the connection to one Coreapp."""

    def __init__(self) -> None:
        self.requests: Requests[Any] = Requests()

    def opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def received(self, connection: Connection, frame: Any) -> None:
        self.requests.answered(frame.n, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self.requests.lost(reason)
