"""Lists of messages and callbacks among many: 1,000,000 messages and 100,000 callbacks, with `--long` ten times that."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness import database_server
from harness.mariadb import MariaDB
from tests.load.scene import figures_of
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.business import callback_views, callbacks, message_views, shards
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.message_views import MessageFilter
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection, Database
from tidings.wire import ids

pytestmark = pytest.mark.whole_system

ME = "15550000000"
MESSAGES, CALLBACKS = 1_000_000, 100_000
LONG = 10
STEP = 10_000  # rows of one statement
START = 1_700_000_000_000  # Unix milliseconds of the first row
PEERS = 20_000
KINDS = ("text", "image", "template", "interactive", "audio", "document")
# One of 5,000 messages failed, and as many are of the rarest type.
RARE = 5_000
TURNS = 40
LIMIT_MS = 150.0


def peer(number: int) -> str:
    return f"1555{number % PEERS:07d}"


def message_id(number: int) -> str:
    return f"{ids.bound((START + number) / 1000)}{number % 1000:015d}"


def seq(number: int) -> int:
    return (START + 10 * number) * 1000 << 5


def _message(number: int) -> str:
    status = Status.FAILED if number % RARE == 7 else (Status.READ, Status.DELIVERED, Status.SENT)[number % 10 // 4]
    kind = "order" if number % RARE == 11 else KINDS[number % len(KINDS)]
    at = START + number
    return (
        f"('{message_id(number)}','{ME}',0,'{peer(number * 7919)}','{kind}',{int(status)},{at},'','',"
        f"{at + 20},{at + 90},{at + 3000})"
    )


def _callback(number: int) -> str:
    name = message_id(number)
    event = callbacks.status_event(name, peer(number * 7919), 3)
    kind = "inbound_message" if number % RARE == 13 else "status_change"
    return (
        f"('{ME}',{seq(number)},0,'{name}','{kind}',REPEAT('b',400),{START + 10 * number},'','{event}',"
        f"'{peer(number * 7919)}',1,{(START + 10 * number) << 20 | 15},200)"
    )


def fill(server: MariaDB, name: str, count_messages: int, count_callbacks: int) -> None:
    """Insert the rows, in the order of their keys."""
    with server.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute("SET unique_checks = 0")
        columns = "id, account, shard, peer, kind, status, created_at, request_id, category, sent_at, delivered_at, read_at"
        for start in range(0, count_messages, STEP):
            rows = ",".join(map(_message, range(start, min(start + STEP, count_messages))))
            cursor.execute(f"INSERT INTO messages ({columns}) VALUES {rows}")
        columns = (
            "account, seq, shard, subject, kind, body, created_at, request_id, event, recipient, attempt, tried, status"
        )
        for start in range(0, count_callbacks, STEP):
            rows = ",".join(map(_callback, range(start, min(start + STEP, count_callbacks))))
            cursor.execute(f"INSERT INTO callback_history ({columns}) VALUES {rows}")
        cursor.execute("ANALYZE TABLE messages, callback_history")


Lists = dict[str, Callable[[Connection, random.Random], Awaitable[Any]]]


def lists(count_messages: int, count_callbacks: int) -> Lists:
    """Return one function for each list, which reads a page at a random place."""

    def of_messages(choice: MessageFilter) -> Callable[[Connection, random.Random], Awaitable[Any]]:
        async def read(connection: Connection, rng: random.Random) -> Any:
            before = message_id(rng.randrange(count_messages // 2, count_messages)) if rng.random() < 0.5 else ""
            return await message_views.list_messages(connection, ME, choice, before=before)

        return read

    def of_callbacks(choice: CallbackFilter) -> Callable[[Connection, random.Random], Awaitable[Any]]:
        async def read(connection: Connection, rng: random.Random) -> Any:
            before = seq(rng.randrange(count_callbacks // 2, count_callbacks)) if rng.random() < 0.5 else None
            return await callback_views.list_callbacks(connection, ME, choice, before=before)

        return read

    async def one_message(connection: Connection, rng: random.Random) -> Any:
        return await message_views.read_timeline(connection, ME, message_id(rng.randrange(count_messages)))

    async def about(connection: Connection, rng: random.Random) -> Any:
        choice = CallbackFilter(id=message_id(rng.randrange(count_callbacks)))
        return await callback_views.list_callbacks(connection, ME, choice)

    async def by_event(connection: Connection, rng: random.Random) -> Any:
        number = rng.randrange(count_callbacks)
        event = callbacks.status_event(message_id(number), peer(number * 7919), 3)
        return await callback_views.list_callbacks(connection, ME, CallbackFilter(id=event))

    middle = START + count_messages // 2
    return {
        "messages": of_messages(MessageFilter()),
        "messages of a recipient": of_messages(MessageFilter(recipient=peer(7919))),
        "messages of a recipient, failed": of_messages(MessageFilter(recipient=peer(7919), status=Status.FAILED)),
        "messages of a type": of_messages(MessageFilter(kind="text")),
        "messages of a rare type": of_messages(MessageFilter(kind="order")),
        "messages, read": of_messages(MessageFilter(status=Status.READ)),
        "messages, failed": of_messages(MessageFilter(status=Status.FAILED)),
        "messages of a type, failed": of_messages(MessageFilter(kind="text", status=Status.FAILED)),
        "messages of a time": of_messages(MessageFilter(since=middle, until=middle + 60_000)),
        "one message": one_message,
        "callbacks": of_callbacks(CallbackFilter()),
        "callbacks of a recipient": of_callbacks(CallbackFilter(recipient=peer(7919))),
        "callbacks of a type": of_callbacks(CallbackFilter(kind="status_change")),
        "callbacks of a rare type": of_callbacks(CallbackFilter(kind="inbound_message")),
        "callbacks, done": of_callbacks(CallbackFilter(state="done")),
        "callbacks, given up": of_callbacks(CallbackFilter(state="given up")),
        "callbacks of a time": of_callbacks(CallbackFilter(since=START + 100_000, until=START + 160_000)),
        "callbacks about a message": about,
        "callback of an event id": by_event,
    }


async def test_p95_of_each_list_is_at_most_150_ms(is_long: bool) -> None:
    scale = LONG if is_long else 1
    count_messages, count_callbacks = MESSAGES * scale, CALLBACKS * scale
    server, figures, rng = database_server.make(flush_log=0, buffer_pool_mb=1024), figures_of("test_history_lists.py"), random.Random(1)
    server.start()
    slow: dict[str, float] = {}
    try:
        database = Database(DatabaseSettings(server.url("lists")), "business")
        await schema.create_database(database.settings)
        await schema.upgrade(database)
        async with database.transaction() as connection:
            await shards.create_shards(connection, 1)
        await asyncio.to_thread(fill, server, "lists", count_messages, count_callbacks)
        for name, read in lists(count_messages, count_callbacks).items():
            durations = []
            for _ in range(TURNS):
                started = time.perf_counter()
                async with database.reading() as connection:
                    await read(connection, rng)
                durations.append((time.perf_counter() - started) * 1000)
            p95 = sorted(durations)[round(TURNS * 0.95) - 1]
            figures.record(f"{count_messages:,} messages, {count_callbacks:,} callbacks", f"{name}, p95", p95, LIMIT_MS, "ms")
            if p95 > LIMIT_MS:
                slow[name] = p95
        await database.close()
    finally:
        server.remove()
    assert slow == {}
