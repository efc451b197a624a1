"""Many rows for one statement."""

from __future__ import annotations

import enum

import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage import types
from tidings.storage.database import insert_or_ignore
from tidings.storage.rows import write_rows

table = sa.Table(
    "written",
    sa.MetaData(),
    sa.Column("id", types.key(20), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("body", types.blob()),
)
_REMOVE = table.delete().where(table.c.id == sa.bindparam("id"))
_CHANGE = table.update().where(table.c.id == sa.bindparam("of")).values(count=sa.bindparam("new"))


async def test_rows_are_written_as_by_individual_statements(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [{"id": f"it's %s {n}", "count": n, "body": bytes([n]) if n else None} for n in range(3)]
    async with database.transaction() as connection:
        await connection.run_sync(table.metadata.create_all)
        await write_rows(connection, insert_or_ignore(connection, table), rows)
        # Parameters in another order of their names.
        await write_rows(connection, insert_or_ignore(connection, table), [{"body": b"", "count": 9, "id": "other"}])
        await write_rows(connection, insert_or_ignore(connection, table), [])
    async with database.transaction() as connection:
        await write_rows(connection, _CHANGE, [{"new": 7, "of": "it's %s 1"}, {"new": 8, "of": "it's %s 2"}])
        # Text outside ASCII matches no row of such a column, and is no error on any database.
        await write_rows(connection, _REMOVE, [{"id": "it's %s 0"}, {"id": "ü"}])
    async with database.reading() as connection:
        found = {row.id: (row.count, row.body) for row in await connection.execute(sa.select(table))}
    assert found == {"it's %s 1": (7, b"\x01"), "it's %s 2": (8, b"\x02"), "other": (9, b"")}


_texts = sa.Table(
    "texts",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", types.text(64), nullable=False),
)


async def test_each_character_is_stored_as_it_is_wherever_it_stands(database_factory: DatabaseFactory) -> None:
    characters = [*map(chr, range(1, 0x180)), "\u2028", "\u202e", "\ufffe", "\u0663", "\U0001d7d8", "\U0001f600"]
    characters += ["' OR '1'='1", "\\' --", "%s"]
    texts = ["", *(pattern.format(one) for one in characters for pattern in ("{}", "a{}", "{}'", "\\{}", "{} b"))]
    database = await database_factory("business")
    async with database.transaction() as connection:
        await connection.run_sync(_texts.metadata.create_all)
        rows = [{"id": index, "text": text} for index, text in enumerate(texts)]
        await write_rows(connection, insert_or_ignore(connection, _texts), rows)
    async with database.reading() as connection:
        found = await connection.execute(sa.select(_texts.c.text).order_by(_texts.c.id))
        assert [row.text for row in found] == texts


class Number(enum.IntEnum):
    FIRST = 1


async def test_members_of_enumerations_and_booleans_are_stored_as_numbers(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [
        {"id": "member", "count": Number.FIRST, "body": None},
        {"id": "true", "count": True, "body": None},
        {"id": "large", "count": 2**31 - 1, "body": None},
    ]
    async with database.transaction() as connection:
        await connection.run_sync(table.metadata.create_all)
        await write_rows(connection, insert_or_ignore(connection, table), rows)
    async with database.reading() as connection:
        found = {row.id: row.count for row in await connection.execute(sa.select(table))}
    assert found == {"member": 1, "true": 1, "large": 2**31 - 1}
