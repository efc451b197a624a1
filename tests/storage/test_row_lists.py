"""Rows that are selected by several columns are found by an index, however many they are."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tidings.storage
from harness import database_server
from tests import statements
from tests.conftest import DatabaseFactory
from tidings.storage import types
from tidings.storage.database import Connection
from tidings.storage.row_lists import any_row_of, row_list

ROWS = 5000

keys = sa.Table(
    "listed_keys",
    sa.MetaData(),
    sa.Column("number", types.key(20), primary_key=True),
    sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("hash", types.fixed_bytes(4), primary_key=True),
    sa.Column("body", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)
_LISTED = any_row_of("rows", keys.c.number, keys.c.key_id, keys.c.hash)
_SELECT = sa.select(keys.c.key_id).where(_LISTED, keys.c.body != b"").order_by(keys.c.key_id)
_DELETE = keys.delete().where(_LISTED)


def row(number: int) -> tuple[str, int, bytes]:
    return f"1555{number % 10}", number, number.to_bytes(4)


@pytest.fixture
async def connection(database_factory: DatabaseFactory) -> AsyncIterator[Connection]:
    """Connection in a transaction that sees `ROWS` rows."""
    database = await database_factory("business")
    async with database.transaction() as connection:
        await connection.run_sync(keys.metadata.create_all)
        made = [
            {"number": n, "key_id": id_, "hash": hash_, "body": b"x" * 200} for n, id_, hash_ in map(row, range(ROWS))
        ]
        await connection.execute(keys.insert(), made)
    async with database.transaction() as connection:
        if connection.dialect.name != "sqlite":
            (await connection.exec_driver_sql("ANALYZE TABLE listed_keys")).all()
        yield connection


async def explain(connection: Connection, statement: sa.Executable, rows: Sequence[Any]) -> list[Any]:
    """Execute a statement and return the database's plan for it: rows of its `EXPLAIN`."""
    with statements.sent() as sent:
        await connection.execute(statement, {"rows": rows})
    ((text, parameters),) = sent
    # MySQL 9 has another default format, and MariaDB does not know this option.
    server = "EXPLAIN" if database_server.kind() == "mariadb" else "EXPLAIN FORMAT=TRADITIONAL"
    word = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else server
    return list((await connection.exec_driver_sql(f"{word} {text}", parameters)).mappings())


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("statement", [_SELECT, _DELETE], ids=["select", "delete"])
async def test_row_lists_use_an_index(connection: Connection, statement: sa.Executable, count: int) -> None:
    plan = await explain(connection, statement, row_list([row(number) for number in range(count)]))
    if connection.dialect.name == "sqlite":
        own = [step["detail"] for step in plan if "listed_keys" in step["detail"]]
        assert own
        assert all(detail.startswith("SEARCH") and "(number=? AND key_id=? AND hash=?)" in detail for detail in own)
    else:
        assert plan[0]["type"] in ("range", "const")
        assert plan[0]["key"] == "PRIMARY"
        assert int(plan[0]["rows"]) <= count


async def test_row_lists_select_exactly_the_listed_rows(connection: Connection) -> None:
    listed = [row(7), row(8), (*row(9)[:2], b"none"), ("1555", 10, row(10)[2])]
    assert (await connection.execute(_SELECT, {"rows": row_list(listed)})).scalars().all() == [7, 8]
    assert (await connection.execute(_SELECT, {"rows": row_list(listed[1:2])})).scalars().all() == [8]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_deletion_by_row_list_counts_each_row_once(connection: Connection, count: int) -> None:
    gone = await connection.execute(_DELETE, {"rows": row_list([row(number) for number in range(count)])})
    assert gone.rowcount == count
    left = await connection.execute(sa.select(sa.func.count()).select_from(keys))
    assert left.scalar_one() == ROWS - count


def test_only_row_lists_compares_several_columns_with_a_list() -> None:
    """A plain comparison reads the whole table."""
    found = {
        path.name
        for path in Path(tidings.storage.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "tuple_"
    }
    assert found == {"row_lists.py"}
