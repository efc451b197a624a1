"""Pipelined statements are executed in order, all or none, with the same results as if sent one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from tests import statements
from tests.conftest import DatabaseFactory
from tidings.storage import types
from tidings.storage.database import Connection, Database, any_of, delete_listed, insert_or_ignore
from tidings.storage.rows import write, write_rows

table = sa.Table(
    "written",
    sa.MetaData(),
    sa.Column("id", types.key(20), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("body", types.blob()),
    mysql_engine="InnoDB",
)
sayings = sa.Table(
    "sayings",
    table.metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", types.text(50), nullable=False),
    mysql_engine="InnoDB",
)
_INSERT = table.insert()
_SAY = sayings.insert()
_CHANGE = table.update().where(table.c.id.in_(any_of("ids")), table.c.count < 100).values(count=sa.bindparam("new"))
_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))
_COUNT_UP = table.update().where(table.c.id == sa.bindparam("of")).values(count=table.c.count + 1)


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    made = await database_factory("business")
    async with made.transaction() as connection:
        await connection.run_sync(table.metadata.create_all)
    return made


def rows(*ids: str, body: bytes = b"") -> Sequence[dict[str, object]]:
    return [{"id": id, "count": number, "body": body} for number, id in enumerate(ids)]


async def counts(connection: Connection) -> dict[str, int]:
    found = await connection.execute(sa.select(table.c.id, table.c.count))
    return {row[0]: row[1] for row in found}


async def test_a_query_sees_everything_written_before_it(database: Database) -> None:
    async with database.transaction() as connection:
        await write_rows(connection, _INSERT, rows("a", "b", "it's"))
        await write(connection, _CHANGE, {"ids": ["b", "it's"], "new": 7})
        assert await counts(connection) == {"a": 0, "b": 7, "it's": 7}
        await write(connection, _COUNT_UP, {"of": "b"})
        await connection.execute(_COUNT_UP, {"of": "b"})
        await write(connection, _COUNT_UP, {"of": "b"})
        await delete_listed(connection, _DELETE, "ids", ["a", "gone"])
    async with database.reading() as connection:
        assert await counts(connection) == {"b": 10, "it's": 7}


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_transaction_takes_two_round_trips(database: Database) -> None:
    with statements.recorded("") as noted:
        async with database.transaction() as connection:
            await write_rows(connection, _INSERT, rows("a", "b"))
            await write_rows(connection, _COUNT_UP, [{"of": "a"}, {"of": "b"}])
            await write(connection, _CHANGE, {"ids": ["a"], "new": 5})
    (together,) = noted
    assert [line.split()[0] for line in together.split(";\n")] == ["INSERT", "UPDATE", "UPDATE"]
    assert "it's" not in together, "values are in no log"


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_failed_statement_rolls_back_the_transaction(database: Database, place: int) -> None:
    async with database.transaction() as connection:
        await write_rows(connection, _INSERT, rows("there"))
    good = [rows("a"), rows("b")]
    good.insert(place, rows("there"))
    with pytest.raises(sa.exc.IntegrityError):
        async with database.transaction() as connection:
            for some in good:
                await write_rows(connection, _INSERT, some)
    async with database.transaction() as connection:
        assert await counts(connection) == {"there": 0}
        await write_rows(connection, _INSERT, rows("after"))
    async with database.reading() as connection:
        assert await counts(connection) == {"there": 0, "after": 0}


async def test_a_check_receives_the_row_count_and_may_roll_back_the_transaction(database: Database) -> None:
    seen: list[int] = []

    async def check(_: Connection, changed: int) -> None:
        seen.append(changed)
        if changed != 2:
            raise LookupError

    async with database.transaction() as connection:
        await write_rows(connection, _INSERT, rows("a", "b", "c"))
        await write(connection, _CHANGE, {"ids": ["a", "b"], "new": 1}, check)
    with pytest.raises(LookupError):
        async with database.transaction() as connection:
            await write(connection, _CHANGE, {"ids": ["a", "none"], "new": 2}, check)
            await write(connection, _CHANGE, {"ids": ["b"], "new": 2})
    assert seen == [2, 1]
    async with database.reading() as connection:
        assert await counts(connection) == {"a": 1, "b": 1, "c": 2}


async def test_writes_over_the_packet_limit_are_split_into_several_statements(database: Database) -> None:
    many = [{"id": f"{n}", "count": n, "body": bytes([n]) * 300_000} for n in range(20)]
    async with database.transaction() as connection:
        await write_rows(connection, insert_or_ignore(connection, table), many)
        await write(connection, _CHANGE, {"ids": [f"{n}" for n in range(10)], "new": 50})
    async with database.reading() as connection:
        found = list(await connection.execute(sa.select(table.c.count, table.c.body)))
    # MySQL lacks the memory to sort bodies of this size.
    written = sorted(map(tuple, found), key=lambda row: row[1])
    assert written == [(max(n, 50) if n < 10 else n, bytes([n]) * 300_000) for n in range(20)]


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_connection_lost_during_the_responses_is_an_outage_and_is_replaced(database: Database) -> None:
    tried = 0

    async def work(connection: Connection) -> None:
        nonlocal tried
        tried += 1
        await write_rows(connection, _INSERT, rows("a"))
        if tried == 1:
            own = (await connection.execute(sa.text("SELECT CONNECTION_ID()"))).scalar_one()
            await write_rows(connection, _INSERT, rows("b"))
            await write(connection, sa.text("KILL :id"), {"id": own})
        await write_rows(connection, _INSERT, rows("c"))

    await database.persist(work, retry_seconds=10)
    assert tried == 2
    async with database.reading() as connection:
        assert await counts(connection) == {"a": 0, "c": 0}


async def test_text_with_special_characters_is_stored_unchanged(database: Database) -> None:
    said = ["%s", "%%(a)s", "a'b", 'a"b', "back\\slash", "ü", "\N{WAVING HAND SIGN}", "a\nb", ""]
    async with database.transaction() as connection:
        for number, one in enumerate(said):
            await write_rows(connection, _SAY, [{"id": number, "text": one}])
    async with database.reading() as connection:
        found = await connection.execute(sa.select(sayings.c.text).order_by(sayings.c.id))
        assert list(found.scalars()) == said
