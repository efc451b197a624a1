"""Migrations create exactly the tables of the code. A process warns when the database may lose committed data."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import alembic.autogenerate
import alembic.migration
import pytest
import sqlalchemy as sa

from harness import database_server
from harness.mariadb import MariaDB
from tests.conftest import DatabaseFactory
from tidings.installation.settings import DatabaseSettings
from tidings.storage import business, handset, network, revisions, schema
from tidings.storage.database import Database

# A module adds its tables to those of its family when it is imported.
TABLES = {}
for family in (business, network, handset):
    for found in pkgutil.iter_modules(family.__path__, f"{family.__name__}."):
        importlib.import_module(found.name)
    TABLES[family.__name__.rpartition(".")[2]] = importlib.import_module(f"{family.__name__}.tables").metadata


@pytest.fixture
async def empty(database_engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Database that does not exist yet."""
    if database_engine == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path}/empty.db"
    else:
        server: MariaDB = request.getfixturevalue("mariadb")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP DATABASE IF EXISTS `test-empty`")
        url = server.url("test-empty")
    database = Database(DatabaseSettings(url), "business")
    yield database
    await database.close()


async def test_a_start_without_tables_is_refused_until_they_are_migrated(empty: Database) -> None:
    await schema.create_database(empty.settings)
    await schema.create_database(empty.settings)
    with pytest.raises(revisions.PendingMigrations, match="tidings migrate"):
        await schema.prepare(empty, migrate=False)
    before, after = await schema.upgrade(empty)
    assert before is None
    assert after is not None
    await schema.prepare(empty, migrate=False)
    assert await schema.upgrade(empty) == (after, after)


async def test_an_embedded_start_creates_the_database_and_its_tables(empty: Database) -> None:
    await schema.prepare(empty, migrate=True)
    await schema.check(empty)


@pytest.mark.parametrize("family", revisions.FAMILIES)
async def test_migrations_create_exactly_the_tables_of_the_code(database_factory: DatabaseFactory, family: str) -> None:
    database = await database_factory(family)

    def differences(connection: sa.Connection) -> list[object]:
        options = {
            "version_table": revisions.version_table(family),
            "compare_type": True,
            # Variants for MySQL (character sets) are compared by their base type only.
            "include_name": lambda name, kind, _: not str(name).startswith(revisions.version_table(family)),
        }
        context = alembic.migration.MigrationContext.configure(connection, opts=options)
        return list(alembic.autogenerate.compare_metadata(context, TABLES[family]))

    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.parametrize("family", revisions.FAMILIES)
async def test_every_mariadb_table_is_transactional_and_compares_keys_by_bytes(
    mariadb: MariaDB, database_factory: DatabaseFactory, database_engine: str, family: str
) -> None:
    if database_engine != "mariadb":
        pytest.skip("about MariaDB")
    database = await database_factory(family)
    name = sa.make_url(database.settings.url).database
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema=%s AND engine<>'InnoDB'", name
        )
        assert cursor.fetchall() == ()
        cursor.execute(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE table_schema=%s "
            "AND collation_name IS NOT NULL AND collation_name NOT LIKE '%%\\_bin' AND column_name<>'version_num'",
            name,
        )
        assert cursor.fetchall() == ()


async def test_default_connection_settings_are_durable(tmp_path: Path) -> None:
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/x.db"), "business")
    assert await schema.durability_warnings(database) == []
    await database.close()


@pytest.fixture
def server_with(request: pytest.FixtureRequest) -> Iterator[MariaDB]:
    flush_log, options = request.param
    server = database_server.make(flush_log=flush_log, buffer_pool_mb=16, options=options)
    server.start()
    yield server
    server.remove()


@pytest.mark.parametrize(
    ("server_with", "words"),
    [
        ((1, ()), []),
        ((2, ()), ["innodb_flush_log_at_trx_commit=2"]),
        ((0, ("--innodb-doublewrite=OFF",)), ["innodb_flush_log_at_trx_commit=0", "innodb_doublewrite=OFF"]),
        ((1, ("--log-bin=binlog", "--sync-binlog=0")), ["sync_binlog=0"]),
    ],
    indirect=["server_with"],
)
async def test_server_settings_that_weaken_durability_are_reported(
    server_with: MariaDB, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(DatabaseSettings(server_with.url("tidings_business")), "business")
    with caplog.at_level(logging.WARNING):
        await schema.prepare(database, migrate=True)
    said = [record.__dict__["warning"] for record in caplog.records if record.msg == "database.weak_durability"]
    assert len(said) == len(words)
    for word, warning in zip(words, said, strict=True):
        assert word in warning
    await database.close()


async def test_an_unknown_table_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no family"):
        await schema.check(Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/nothing.db"), "nobody"))
