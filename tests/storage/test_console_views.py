"""Lists of the console, on both databases."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.business import callbacks, console_views, messages, queue_views, webapp_nodes
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.console_views import CallbackChoice, MessageChoice
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Connection

ME = "15550000000"
ALL = MessageChoice(ME, "gBEG", "gBEH")


def message(number: int, **changes: object) -> MessageRow:
    row = MessageRow(f"gBEG{number:04}", ME, 0, "15550110001", "text", int(Status.SENT), 1000 + number, "")
    return dataclasses.replace(row, **changes)


def callback(seq: int, shard: int = 0, **changes: object) -> Callback:
    return dataclasses.replace(Callback(seq, shard, ME, f"m{seq}", "status_change", b"{}", 1000), **changes)


async def store(connection: Connection, rows: list[Callback], *, dead: bool = False) -> None:
    bodies = [row.body for row in rows]
    await callbacks.enqueue(connection, rows, bodies)
    await (callbacks.bury if dead else callbacks.reschedule)(connection, rows, bodies)


async def ids(connection: Connection, choice: MessageChoice, **options: int) -> tuple[list[int], str | None]:
    page = await console_views.list_messages(connection, choice, **options)
    return [int(row.id[4:]) for row in page.rows], page.older


async def test_messages_are_listed_by_id_newest_first(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        rows = [message(number) for number in range(5)]
        others = [message(7, account="15559990000"), message(8, id="ABGG0001")]
        await messages.add(connection, [*rows, *others])
        assert await ids(connection, ALL, limit=2) == ([4, 3], "gBEG0003")
        assert await ids(connection, dataclasses.replace(ALL, below="gBEG0003"), limit=2) == ([2, 1], "gBEG0001")
        assert await ids(connection, dataclasses.replace(ALL, below="gBEG0001"), limit=2) == ([0], None)
        assert await ids(connection, dataclasses.replace(ALL, above="gBEG0002"), limit=9) == ([4, 3], None)


async def test_a_filter_checks_a_bounded_number_of_messages(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        rows = [message(number) for number in range(20)]
        rows[1] = message(1, status=int(Status.FAILED))
        rows[18] = message(18, kind="image", kept=b"x")
        await messages.add(connection, rows)
        failed = dataclasses.replace(ALL, status=int(Status.FAILED))
        assert await ids(connection, failed, limit=5, scanned=10) == ([], "gBEG0010")
        rest = dataclasses.replace(failed, below="gBEG0010")
        assert await ids(connection, rest, limit=5, scanned=10) == ([1], "gBEG0000")
        assert await ids(connection, failed, limit=5, scanned=30) == ([1], None)
        images = await console_views.list_messages(connection, dataclasses.replace(ALL, kind="image"), limit=5)
        assert [(row.id, row.has_content) for row in images.rows] == [("gBEG0018", True)]
        found = await console_views.find_message(connection, ME, "gBEG0001")
        assert found is not None
        assert (found.status, found.has_content) == (Status.FAILED, False)
        assert await console_views.find_message(connection, "15559990000", "gBEG0001") is None


async def test_callbacks_of_all_shards_are_merged_by_age(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await store(connection, [callback(seq, shard=seq % 2) for seq in range(10, 20)])
        await store(connection, [callback(seq, shard=seq % 2, attempt=3) for seq in range(20, 24)], dead=True)
        await store(connection, [callback(30, shard=32), callback(31, account="15559990000")])
        choice = CallbackChoice(ME, [0, 1])
        seqs: list[int] = []
        before: int | None = 1 << 62
        while before is not None:
            page = await console_views.list_callbacks(connection, choice, before=before, limit=4)
            seqs += [row.seq for row in page.rows]
            before = page.older
        assert seqs == list(range(23, 9, -1))
        dead = dataclasses.replace(choice, status=queue_views.DEAD)
        page = await console_views.list_callbacks(connection, dead, before=1 << 62, limit=3)
        assert ([row.seq for row in page.rows], page.older) == ([23, 22, 21], 21)


async def test_a_filter_checks_a_bounded_number_of_callbacks_and_misses_none(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await store(connection, [callback(seq, shard=seq % 3 // 2, attempt=seq % 7 == 0) for seq in range(1, 200)])
        choice = CallbackChoice(ME, [0, 1], status=queue_views.FAILING)
        seqs: list[int] = []
        pages = 0
        before: int | None = 1 << 62
        while before is not None:
            page = await console_views.list_callbacks(connection, choice, before=before, limit=5, scanned=20)
            assert len(page.rows) <= 5
            seqs += [row.seq for row in page.rows]
            before, pages = page.older, pages + 1
        assert seqs == [seq for seq in range(199, 0, -1) if seq % 7 == 0]
        assert pages > 5
        one = dataclasses.replace(choice, status="", message="m77")
        page = await console_views.list_callbacks(connection, one, before=1 << 62, limit=5)
        assert [row.seq for row in page.rows] == [77]
        assert await console_views.find_callback(connection, "15559990000", 77) is None
        found = await console_views.find_callback(connection, ME, 77)
        assert found is not None
        assert found.status == queue_views.FAILING


async def test_lists_use_an_index(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    is_sqlite = database.engine.dialect.name == "sqlite"
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    async with database.reading() as connection:
        sa.event.listen(database.engine.sync_engine, "before_cursor_execute", note)
        try:
            await console_views.list_messages(connection, dataclasses.replace(ALL, status=9), limit=50)
            choice = CallbackChoice(ME, [0], status=queue_views.FAILING)
            await console_views.list_callbacks(connection, choice, before=1 << 62, limit=50)
        finally:
            sa.event.remove(database.engine.sync_engine, "before_cursor_execute", note)
        lists = [statement for statement in statements if "LIMIT" in statement]
        assert len(lists) == 4
        if is_sqlite:
            for statement in lists:
                count = statement.count("?")
                explain = sa.text("EXPLAIN QUERY PLAN " + statement.replace("?", "1"))
                plan = [row[-1] for row in await connection.execute(explain)]
                assert not any(line.startswith("SCAN") for line in plan), (plan, count)
                assert not any("TEMP B-TREE" in line for line in plan), plan


async def test_lost_webapps_are_listed_with_their_silence(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        for name in ("a", "b"):
            await webapp_nodes.renew(connection, WebappNode(name * 32, f"{name}:9090"), forget=3600)
        late = webapp_nodes.table.c.heartbeat_at - 60_000
        old = webapp_nodes.table.update().where(webapp_nodes.table.c.node == "b:9090").values(heartbeat_at=late)
        await connection.execute(old)
        found = await console_views.list_webapps(connection)
    assert [(row.node, row.is_live) for row in found] == [("a:9090", True), ("b:9090", False)]
    assert found[1].heartbeat_age >= 60


async def test_jobs_of_given_messages_are_found(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.reading() as connection:
        assert await queue_views.list_jobs_of(connection, ["gBEG1"]) == []
        assert await callbacks.list_any(connection, 0, [1]) == []
