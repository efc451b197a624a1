"""Rows that MariaDB reads for a page of a list of the console: bounded, whatever the filter.

The limits are measured ones, rounded up.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import (
    callback_history,
    callback_replays,
    callback_views,
    callbacks,
    console_views,
    message_views,
    messages,
    shards,
)
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.message_views import MessageFilter
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.database import Connection, Database, pages
from tidings.wire import ids

pytestmark = pytest.mark.parametrize("database_engine", ["mariadb"], indirect=True)

ME = "15550000000"
ANN, BEN, NOBODY = "15550110001", "15550110002", "15550110003"
NOW = 1_700_000_000_000
KINDS = ("text", "image", "audio", "video", "document", "template", "location", "contacts")
MESSAGES, SEGMENTS, QUEUED, SHARDS = 24_000, 1_200, 12_000, 4
# Callbacks that a page examines, a tenth of those of the product.
EXAMINED = 500


async def reads(connection: Connection) -> int:
    """Return the number of rows that the server has read for this connection."""
    names = "Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_icp_attempts'"
    found = await connection.execute(sa.text(f"SHOW SESSION STATUS WHERE {names}"))
    return sum(int(value) for _, value in found)


async def cost(database: Database, page: Any) -> int:
    """Return the number of rows that the server reads for a page."""
    async with database.reading() as connection:
        first, second = await reads(connection), await reads(connection)
        await page(connection)
        return await reads(connection) - second - (second - first)


@pytest.fixture
async def filled_messages(database_factory: DatabaseFactory) -> Database:
    """Messages, most of one type and with one recipient. The last type, and accepted ones, are rare."""
    database = await database_factory("business")
    rows = []
    for n in range(MESSAGES):
        name = ids.bound(NOW / 1000 + n) + str(n).rjust(15, "0")
        kind = KINDS[0] if n % 3 else KINDS[n // 3 % 7]
        status = Status.READ if n % 4_000 else Status.ACCEPTED
        if n % 6_000 == 7:
            kind = KINDS[7]
        rows.append(MessageRow(name, ME, 0, BEN if n % 5_000 == 9 else ANN, kind, status, NOW + n * 1000, ""))
    for page in pages(rows, 2_000):
        async with database.transaction() as connection:
            await messages.add(connection, page)
    async with database.transaction() as connection:
        await connection.execute(sa.text("ANALYZE TABLE messages"))
    return database


async def test_a_page_of_messages_reads_at_most_20000_rows_whatever_the_filter(filled_messages: Database) -> None:
    statuses = (None, Status.READ, Status.ACCEPTED, Status.FAILED)
    spans = (("", ""), (ids.bound(NOW / 1000 + 9_000), ids.bound(NOW / 1000 + 15_000)))
    found = {}
    for peer, kind, status, (since, until), before in itertools.product(
        ("", ANN, BEN, NOBODY), ("", KINDS[0], KINDS[7], "order"), statuses, spans, ("", ids.bound(NOW / 1000 + 12_000))
    ):
        choice = MessageFilter(recipient=peer, kind=kind, status=status, since_id=since, until_id=until)

        async def page(connection: Connection, choice: MessageFilter = choice, before: str = before) -> None:
            await message_views.list_messages(connection, ME, choice, before=before)

        found[choice, before] = await cost(filled_messages, page)
    worst = max(found, key=lambda key: found[key])
    assert found[worst] <= 20_000, worst
    plain = max(rows for (choice, _), rows in found.items() if choice.status is None and not choice.recipient)
    assert plain <= 1_500
    of_peer = max(rows for (choice, _), rows in found.items() if choice.recipient)
    assert of_peer <= 2_500


@pytest.fixture
async def filled_callbacks(database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Ended callbacks in segments of 3 that are far apart, and waiting ones in several shards."""
    monkeypatch.setattr(callback_views, "SEARCHED", 300)
    monkeypatch.setattr(callback_views, "EXAMINED", EXAMINED)
    database = await database_factory("business")

    def made(n: int, at: int, shard: int = 0) -> Callback:
        peer = BEN if n % 900 == 1 else ANN
        kind = "contact_change" if n % 800 == 2 else "status_change"
        return Callback((at * 1000 << 5) + n % 32, shard, ME, f"m{n}", kind, b"body", at, recipient=peer)

    async with database.transaction() as connection:
        await shards.create_shards(connection, SHARDS)
    for start in range(0, SEGMENTS, 100):
        async with database.transaction() as connection:
            for n in range(start, start + 100):
                rows = [made(3 * n + i, NOW + n * 70_000 + i) for i in range(3)]
                ended = [EndedAttempt(row, 1, NOW, 1, 200, b"") for row in rows]
                await callback_history.add(connection, ended, lambda account, name, texts: texts)
    for start in range(0, QUEUED, 1_000):
        rows = [made(n, NOW + SEGMENTS * 70_000 + n * 10, n % SHARDS) for n in range(start, start + 1_000)]
        async with database.transaction() as connection:
            await callbacks.enqueue(connection, rows, [b"body"] * 1_000)
    return database


async def test_a_page_of_callbacks_reads_at_most_500_rows_besides_those_examined(filled_callbacks: Database) -> None:
    found = {}
    far = (NOW + 900 * 70_000) * 1000 << 5
    for state, kind, peer, name, since, before in itertools.product(
        ("", *callback_views.STATES),
        ("", "status_change", "contact_change"),
        ("", ANN, BEN, NOBODY),
        ("", "m1500", "unknown"),
        (0, NOW + 600 * 70_000),
        (None, far),
    ):
        choice = CallbackFilter(recipient=peer, id=name, kind=kind, state=state, since=since)

        async def page(connection: Connection, choice: CallbackFilter = choice, before: int | None = before) -> None:
            await callback_views.list_callbacks(connection, ME, choice, before=before)

        found[choice, before] = await cost(filled_callbacks, page)
    worst = max(found, key=lambda key: found[key])
    assert found[worst] <= EXAMINED + 500, worst
    plain = max(rows for (choice, _), rows in found.items() if choice == CallbackFilter(since=choice.since))
    assert plain <= 400
    ended = max(rows for (choice, _), rows in found.items() if choice.state == callback_views.DONE)
    assert ended <= 800


async def test_rare_ended_callbacks_are_found_over_pages_that_each_search_a_part(filled_callbacks: Database) -> None:
    before, seen, count = None, [], 0
    async with filled_callbacks.reading() as connection:
        while True:
            choice = CallbackFilter(recipient=BEN, state=callback_views.DONE)
            page = await callback_views.list_callbacks(connection, ME, choice, before=before)
            seen += [row.subject for row in page.rows]
            count += 1
            if page.older is None:
                break
            before = page.older
    assert seen == ["m2701", "m1801", "m901", "m1"]
    assert 4 <= count <= 6


async def test_the_audit_reads_at_most_5500_rows(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    for start in range(0, 30_000, 1_000):
        rows = [Replay(n, NOW + n // 200, n % SHARDS, "ann (console)") for n in range(start, start + 1_000)]
        async with database.transaction() as connection:
            await callback_replays.add(connection, rows)
    for of_number in ([0], [0, 1, 2, 3], [3], [99]):

        async def page(connection: Connection, of_number: Sequence[int] = of_number) -> None:
            await console_views.list_audit(connection, ME, of_number, limit=100)

        assert await cost(database, page) <= 5_500
