"""Cluster of three nodes for the tests of one module, and business tables on it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from harness import galera, packages
from harness.galera import Galera, Node
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database

# Function that makes tables: `await tables(node, …)` returns pools to the same new tables, one through each node.
Tables = Callable[..., Awaitable[list[Database]]]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Galera]:
    try:
        with galera.running(flush_log=0) as running:
            yield running
    except packages.PackageMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
async def tables() -> AsyncIterator[Tables]:
    opened: list[Database] = []

    async def make(*nodes: Node) -> list[Database]:
        name = f"business_{next(_numbers)}"
        made = [Database(DatabaseSettings(node.url(name)), "business", deadline=60.0) for node in nodes]
        opened.extend(made)
        await schema.create_database(made[0].settings)
        await schema.upgrade(made[0])
        return made

    yield make
    for database in opened:
        await database.close()


def keep_busy(node: Node, *, writing: Node) -> None:
    """Make `node` apply nothing of other nodes' commits for some seconds: it has a long transaction to apply.

    It still accepts, certifies and refuses its own clients' commits.
    """
    for server, statements in (
        (node, ("SET GLOBAL wsrep_slave_threads = 1",)),
        (
            writing,
            (
                "CREATE DATABASE IF NOT EXISTS work",
                "DROP TABLE IF EXISTS work.todo",
                "CREATE TABLE work.todo (n INT PRIMARY KEY, words CHAR(20) NOT NULL)",
                "INSERT INTO work.todo SELECT seq, REPEAT('x', 20) FROM work.seq_1_to_600000",
            ),
        ),
    ):
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@contextlib.contextmanager
def standing_still(node: Node) -> Iterator[None]:
    """Make `node` apply nothing within the block. It still serves reads."""
    with node.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield
        cursor.execute("UNLOCK TABLES")


def is_busy(node: Node) -> bool:
    """Return whether the node still has to apply that transaction."""
    with node.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM work.todo")
        row = cursor.fetchone()
    assert row is not None
    return bool(row[0] == 0)
