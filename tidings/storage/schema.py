"""The revision of a database's tables: upgrade it, check it, and see how durable the database's commits are."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

from tidings.runtime.settings import DatabaseSettings
from tidings.storage import engine, migration_steps
from tidings.storage.database import Database

log = logging.getLogger(__name__)

FAMILIES = ("business", "network", "handset")
# Scripts that Alembic runs: a folder beside this package, and no import of it, for they stand on it.
MIGRATIONS = Path(__file__).parents[2] / "migrations"


class PendingMigrations(Exception):
    """The tables are older (or newer) than this program: run `tidings migrate` first."""


def version_table(family: str) -> str:
    """The table that holds the revision of one family."""
    return f"schema_{family}"


def _config(
    family: str,
    connection: sa.Connection | None = None,
    on_version_apply: Sequence[Callable[..., None]] = (),
) -> alembic.config.Config:
    if family not in FAMILIES:
        raise ValueError(f"no family of tables {family!r}")
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(MIGRATIONS / family))
    config.attributes.update(
        connection=connection, version_table=version_table(family), on_version_apply=on_version_apply
    )
    return config


def _head(family: str) -> str | None:
    return _read_head(MIGRATIONS, family)


@functools.cache
def _read_head(directory: Path, family: str) -> str | None:
    """The newest revision; to find it takes reading every migration."""
    return alembic.script.ScriptDirectory.from_config(_config(family)).get_current_head()


async def create_database(settings: DatabaseSettings) -> None:
    """Make the MySQL schema that the address names, if it is not there; nothing to do for SQLite."""
    if settings.engine == "sqlite":
        return
    address = sa.make_url(settings.url)
    # `URL.set` takes `None` for "as it is".
    server = address.set(database="").render_as_string(hide_password=False)
    pool = engine.make(dataclasses.replace(settings, url=server), context=engine.make_context(settings))
    try:
        async with pool.begin() as connection:
            name = pool.dialect.identifier_preparer.quote_identifier(str(address.database))
            await connection.execute(sa.text(f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4"))
    finally:
        await pool.dispose()


async def upgrade(database: Database, to: str = "head") -> tuple[str | None, str | None]:
    """Bring the tables to this program's revision (or an earlier one); returns the revision before and after.

    On SQLite this is one transaction. On MySQL and MariaDB, whatever is killed meanwhile goes on at the next call. Of
    several processes at once, the others wait for the first.
    Raises `LockTimeout` and `ChangedMigration` of `migration_steps`.
    """
    family = database.family

    def run(connection: sa.Connection) -> tuple[str | None, str | None]:
        with migration_steps.alone(connection, family):
            before = _read_revision(connection, family)
            target = _head(family) if to == "head" else to
            if connection.dialect.name == "sqlite":
                if before != target:
                    alembic.command.upgrade(_config(family, connection), to)
                return before, _read_revision(connection, family)
            steps = migration_steps.Steps(connection, version_table(family))
            if before != target:
                _upgrade_in_steps(connection, family, to, steps, before)
            steps.forget()
            return before, _read_revision(connection, family)

    changed: tuple[str | None, str | None] = await _with_connection(database, run)
    return changed


def _upgrade_in_steps(
    connection: sa.Connection, family: str, to: str, steps: migration_steps.Steps, before: str | None
) -> None:
    alembic.command.ensure_version(_config(family, connection))

    def applied(*, heads: set[str], **_: Any) -> None:
        (revision,) = heads
        steps.begin(revision)

    with steps.recorded():
        steps.begin(before or "")
        alembic.command.upgrade(_config(family, connection, [applied]), to)


async def revision(database: Database) -> str | None:
    """The revision that the tables are at, `None` when there are none."""
    found: str | None = await _with_connection(database, lambda connection: _read_revision(connection, database.family))
    return found


def _read_revision(connection: sa.Connection, family: str) -> str | None:
    context = alembic.migration.MigrationContext.configure(connection, opts={"version_table": version_table(family)})
    return context.get_current_revision()


async def check(database: Database) -> None:
    """Raises `PendingMigrations` unless the tables are at this program's revision."""
    head = _head(database.family)
    current = await revision(database)
    if current != head:
        raise PendingMigrations(
            f"the {database.family} tables are at revision {current}, this program needs {head}: run `tidings migrate`"
        )


async def durability_warnings(database: Database) -> list[str]:
    """What in the database's settings weakens «a 2xx means it is on disk»; empty when nothing does."""
    warnings = []
    async with database.reading() as connection:
        if connection.dialect.name == "sqlite":
            level = (await connection.exec_driver_sql("PRAGMA synchronous")).scalar()
            if level is None or int(level) < 2:
                warnings.append(f"SQLite synchronous={level}: a power cut can lose committed messages (want FULL)")
            return warnings
        rows = await connection.execute(
            sa.text(
                "SHOW VARIABLES WHERE Variable_name IN "
                "('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'aurora_version')"
            )
        )
        found = {str(name): str(value) for name, value in rows}
    if found.get("innodb_flush_log_at_trx_commit") != "1":
        warnings.append(
            f"innodb_flush_log_at_trx_commit={found.get('innodb_flush_log_at_trx_commit')}: "
            "a crash of the machine can lose the last second of committed messages (want 1)"
        )
    if found.get("log_bin") == "ON" and found.get("sync_binlog") != "1":
        warnings.append(f"sync_binlog={found.get('sync_binlog')}: a replica can miss committed messages (want 1)")
    # Aurora's storage has no pages that could be torn, and says OFF.
    if found.get("innodb_doublewrite") in ("OFF", "DETECT_ONLY") and "aurora_version" not in found:
        warnings.append(f"innodb_doublewrite={found['innodb_doublewrite']}: a power cut can tear pages (want ON)")
    return warnings


async def prepare(database: Database, *, migrate: bool) -> None:
    """What a process does at start: check (or, embedded, upgrade) the tables and warn of weak durability."""
    if migrate:
        await create_database(database.settings)
        before, after = await upgrade(database)
        if before != after:
            log.info("schema.upgraded", extra={"family": database.family, "before": before, "after": after})
    else:
        await check(database)
    for warning in await durability_warnings(database):
        log.warning("database.weak_durability", extra={"family": database.family, "warning": warning})


async def _with_connection(database: Database, run: Callable[[sa.Connection], Any]) -> Any:
    async with database.engine.begin() as connection:
        return await connection.run_sync(run)
