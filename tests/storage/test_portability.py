"""Tables and statements use only what MariaDB, MySQL 8 and clusters have in common."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateIndex, CreateTable

from tests import statements
from tidings.storage import business, handset, network

TABLES: dict[str, sa.Table] = {}
for family in (business, network, handset):
    for found in pkgutil.iter_modules(family.__path__, f"{family.__name__}."):
        importlib.import_module(found.name)
    TABLES |= importlib.import_module(f"{family.__name__}.tables").metadata.tables

# Maximum bytes of an index key with the default page size, and of a row without what is stored off-page.
MAX_KEY, MAX_ROW = 3_072, 65_535


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_table_has_an_explicit_primary_key_and_is_portable_to_mysql(table: sa.Table) -> None:
    """Galera finds rows by their primary key, and assigns automatic numbers with gaps."""
    assert list(table.primary_key.columns), "Galera replicates no DELETE without one"
    assert table.autoincrement_column is None
    assert table.dialect_options["mysql"]["engine"] == "InnoDB"
    dialect = mysql.dialect()  # type: ignore[no-untyped-call]
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    elements: list[CreateTable | CreateIndex] = [CreateTable(table), *(CreateIndex(index) for index in indexes)]
    for element in elements:
        text = str(element.compile(dialect=dialect))
        assert not statements.portability_faults(text), text


def width(column: sa.Column[object]) -> int:
    """Return the maximum bytes of a column in a key."""
    kind = column.type.dialect_impl(mysql.dialect())  # type: ignore[no-untyped-call]
    length = getattr(kind, "length", None) or 8
    return length * (4 if getattr(kind, "charset", None) == "utf8mb4" else 1)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_no_key_exceeds_the_innodb_length_limit(table: sa.Table) -> None:
    keys = [list(table.primary_key.columns), *(list(index.columns) for index in table.indexes)]
    assert max(sum(map(width, columns)) for columns in keys) <= MAX_KEY


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT epoch FROM shards WHERE shard = 1 LOCK IN SHARE MODE",
        "SELECT id FROM jobs FOR UPDATE SKIP LOCKED",
        "LOCK TABLES jobs WRITE",
        "INSERT INTO jobs VALUES (1) RETURNING id",
        "CREATE OR REPLACE TABLE jobs (id INT)",
        "ALTER TABLE jobs ADD COLUMN IF NOT EXISTS n INT",
        "SELECT LAST_INSERT_ID()",
        "CREATE TABLE x (n INT PRIMARY KEY) ENGINE=MyISAM",
        "SET GLOBAL max_connections = 5",
        "INSERT INTO jobs VALUES (1) AS new ON DUPLICATE KEY UPDATE id = new.id",
    ],
)
def test_unportable_statements_are_reported(statement: str) -> None:
    assert statements.portability_faults(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE shards SET commits = commits + 1 WHERE shard = 0 AND epoch = 1",
        "INSERT INTO `jobs` (`id`) VALUES (%s) ON DUPLICATE KEY UPDATE `id` = VALUES(`id`)",
        "SELECT id FROM jobs FOR UPDATE",
        "CREATE TABLE IF NOT EXISTS x (n INT PRIMARY KEY) ENGINE=InnoDB CHARACTER SET ascii COLLATE ascii_bin",
        "DELETE FROM jobs WHERE id IN (1) LIMIT 5",
    ],
)
def test_portable_statements_are_not_reported(statement: str) -> None:
    assert not statements.portability_faults(statement)
