"""Lists among many rows: 1,000,000 messages and 100,000 callbacks, with `--long` ten times as many."""

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
from tidings.storage.business import callback_history, callback_views, callbacks, message_views, messages, shards
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.callbacks import Callback
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
        f"{at + 20},{at + 90},{at + 3000},{int(messages.listing_of(status))})"
    )


def _ended(number: int) -> EndedAttempt:
    name, at = message_id(number), START + 10 * number
    kind = "inbound_message" if number % RARE == 13 else "status_change"
    one = Callback(
        seq(number),
        0,
        ME,
        name,
        kind,
        b"b" * 330,
        at,
        event=callbacks.status_event(name, peer(number * 7919), 3),
        recipient=peer(number * 7919),
    )
    return EndedAttempt(one, 1, at, 15, 200, b"ok")


async def fill_history(database: Database, count: int) -> None:
    """Add ended callbacks as if 50 ended together, some up to a second later."""
    late = sorted(range(count), key=lambda number: number + number * 7919 % 100)
    for start in range(0, count, STEP):
        async with database.transaction() as connection:
            for first in range(start, min(start + STEP, count), 50):
                ended = [_ended(number) for number in late[first : first + 50]]
                await callback_history.add(connection, ended, lambda account, name, texts: texts)


def fill(server: MariaDB, name: str, count_messages: int) -> None:
    """Insert the messages, in the order of their keys."""
    with server.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute("SET unique_checks = 0")
        columns = (
            "id, account, shard, peer, kind, status, created_at, request_id, category, sent_at, delivered_at, read_at, "
            "listing"
        )
        for start in range(0, count_messages, STEP):
            rows = ",".join(map(_message, range(start, min(start + STEP, count_messages))))
            cursor.execute(f"INSERT INTO messages ({columns}) VALUES {rows}")
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
    of_a_time = MessageFilter(since_id=ids.bound(middle / 1000), until_id=ids.bound(middle / 1000 + 60))
    return {
        "messages": of_messages(MessageFilter()),
        "messages of a recipient": of_messages(MessageFilter(recipient=peer(7919))),
        "messages of a recipient, failed": of_messages(MessageFilter(recipient=peer(7919), status=Status.FAILED)),
        "messages of a type": of_messages(MessageFilter(kind="text")),
        "messages of a rare type": of_messages(MessageFilter(kind="order")),
        "messages, read": of_messages(MessageFilter(status=Status.READ)),
        "messages, marked as read": of_messages(MessageFilter(status=Status.MARKED_READ)),
        "messages, accepted": of_messages(MessageFilter(status=Status.ACCEPTED)),
        "messages, failed": of_messages(MessageFilter(status=Status.FAILED)),
        "messages of a type, failed": of_messages(MessageFilter(kind="text", status=Status.FAILED)),
        "messages of a time": of_messages(of_a_time),
        "one message": one_message,
        "callbacks": of_callbacks(CallbackFilter()),
        "callbacks of a recipient": of_callbacks(CallbackFilter(recipient=peer(7919))),
        "callbacks of a type": of_callbacks(CallbackFilter(kind="status_change")),
        "callbacks of a rare type": of_callbacks(CallbackFilter(kind="inbound_message")),
        "callbacks, done": of_callbacks(CallbackFilter(state="done")),
        "callbacks of an unknown recipient": of_callbacks(CallbackFilter(recipient="15559999999")),
        "callbacks, given up": of_callbacks(CallbackFilter(state="given up")),
        "callbacks of a time": of_callbacks(CallbackFilter(since=START + 100_000, until=START + 160_000)),
        "callbacks about a message": about,
        "callback of an event id": by_event,
    }


async def test_p95_of_each_list_is_at_most_150_ms(is_long: bool) -> None:
    scale = LONG if is_long else 1
    count_messages, count_callbacks = MESSAGES * scale, CALLBACKS * scale
    server = database_server.make(flush_log=0, buffer_pool_mb=1024)
    figures, rng = figures_of("test_history_lists.py"), random.Random(1)
    of = f"{count_messages:,} messages, {count_callbacks:,} callbacks"
    server.start()
    slow: dict[str, float] = {}
    try:
        database = Database(DatabaseSettings(server.url("lists")), "business")
        await schema.create_database(database.settings)
        await schema.upgrade(database)
        async with database.transaction() as connection:
            await shards.create_shards(connection, 1)
        await fill_history(database, count_callbacks)
        await asyncio.to_thread(fill, server, "lists", count_messages)
        for name, read in lists(count_messages, count_callbacks).items():
            durations = []
            for _ in range(TURNS):
                started = time.perf_counter()
                async with database.reading() as connection:
                    await read(connection, rng)
                durations.append((time.perf_counter() - started) * 1000)
            p95 = sorted(durations)[round(TURNS * 0.95) - 1]
            figures.record(of, f"{name}, p95", p95, LIMIT_MS, "ms")
            if p95 > LIMIT_MS:
                slow[name] = p95
        await database.close()
    finally:
        server.remove()
    assert slow == {}
