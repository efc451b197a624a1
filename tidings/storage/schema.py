"""Upgrade and check of a database's tables, and check of the durability of its commits."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import alembic.command
import sqlalchemy as sa

from tidings.installation.settings import DatabaseSettings
from tidings.storage import engine, migration_steps, revisions
from tidings.storage.database import Database

# Schema that exists on every server and that every user may open.
SCHEMA = "information_schema"


class StatementRefused(Exception):
    """The server cannot be reached, or refused a statement; `str()` is the reason."""


async def execute(settings: DatabaseSettings, statements: Sequence[str]) -> None:
    """Execute statements in order. Each takes effect at once and is not rolled back. Raises `StatementRefused`.

    settings: any database on the server; only the server and the user are used.
    """
    address = f"{settings.url.rpartition('/')[0]}/{SCHEMA}"
    there = dataclasses.replace(settings, url=address, pool_size=1)
    administrator = engine.make(there, context=engine.make_context(there))
    try:
        async with administrator.connect() as connection:
            for statement in statements:
                # The driver would interpret a percent sign as a parameter.
                await connection.exec_driver_sql(statement.replace("%", "%%"))
    except sa.exc.DBAPIError as error:
        # Without the statement, which may contain a password.
        raise StatementRefused(str(error.orig)) from None
    finally:
        await administrator.dispose()


log = logging.getLogger(__name__)


async def create_database(settings: DatabaseSettings) -> None:
    """Create the MySQL schema that the URL names if it does not exist. Does nothing for SQLite."""
    if settings.engine == "sqlite":
        return
    address = sa.make_url(settings.url)
    # `URL.set` takes None for "unchanged".
    server = address.set(database="").render_as_string(hide_password=False)
    pool = engine.make(dataclasses.replace(settings, url=server), context=engine.make_context(settings))
    try:
        async with pool.begin() as connection:
            name = pool.dialect.identifier_preparer.quote_identifier(str(address.database))
            await connection.execute(sa.text(f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4"))
    finally:
        await pool.dispose()


async def upgrade(database: Database, to: str = "head") -> tuple[str | None, str | None]:
    """Upgrade the tables to this program's revision, or to `to`. Returns the revisions before and after.

    Tables of a later program that suit this one stay unchanged. On SQLite the upgrade is one transaction. On MySQL and
    MariaDB, a killed upgrade resumes at the next call. Of several processes, one upgrades and the others wait for it.
    Raises `LockTimeout` and `ChangedMigration` of `migration_steps`, and `TablesTooNew` of `revisions`.
    """
    family = database.family

    def run(connection: sa.Connection) -> tuple[str | None, str | None]:
        with migration_steps.alone(connection, family):
            state = revisions.read(connection, family)
            state.require_not_too_new()
            before = state.tables
            if state.is_newer:
                _log_newer(state)
                return before, before
            target = state.program.revision if to == "head" else to
            # Recorded before the first change, so that no program starts that the changes exclude.
            revisions.record_oldest(connection, family, state.program.oldest[target])
            if connection.dialect.name == "sqlite":
                if before != target:
                    alembic.command.upgrade(revisions.config(family, connection), to)
                return before, revisions.read_revision(connection, family)
            steps = migration_steps.MigrationSteps(connection, revisions.version_table(family))
            if before != target:
                _upgrade_in_steps(connection, family, to, steps, before)
            steps.delete()
            return before, revisions.read_revision(connection, family)

    changed: tuple[str | None, str | None] = await _with_connection(database, run)
    return changed


def _upgrade_in_steps(
    connection: sa.Connection, family: str, to: str, steps: migration_steps.MigrationSteps, before: str | None
) -> None:
    alembic.command.ensure_version(revisions.config(family, connection))

    def applied(*, heads: set[str], **_: Any) -> None:
        (revision,) = heads
        steps.begin(revision)

    with steps.recorded():
        steps.begin(before or "")
        alembic.command.upgrade(revisions.config(family, connection, [applied]), to)


async def revision(database: Database) -> str | None:
    """Read the revision of the tables; None when there are no tables."""
    family = database.family
    found: str | None = await _with_connection(database, lambda connection: revisions.read_revision(connection, family))
    return found


async def check(database: Database) -> revisions.RevisionState:
    """Read the revision of the tables and raise `WrongRevision` unless this program may run on them."""
    state: revisions.RevisionState = await _with_connection(
        database, lambda connection: revisions.read(connection, database.family)
    )
    state.require()
    return state


async def durability_warnings(database: Database) -> list[str]:
    """List the database settings that weaken the promise "a 2xx response means that the data is on disk"."""
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
    # Aurora reports OFF, but its storage has no pages that could be torn.
    if found.get("innodb_doublewrite") in ("OFF", "DETECT_ONLY") and "aurora_version" not in found:
        warnings.append(f"innodb_doublewrite={found['innodb_doublewrite']}: a power cut can tear pages (want ON)")
    return warnings


async def prepare(database: Database, *, migrate: bool) -> None:
    """Check the tables at process start, or upgrade them if `migrate` is set, and log warnings of weak durability.

    Logs a warning when a later program has migrated the tables and this one may still run on them.
    """
    if migrate:
        await create_database(database.settings)
        before, after = await upgrade(database)
        if before != after:
            log.info("schema.upgraded", extra={"family": database.family, "before": before, "after": after})
    else:
        state = await check(database)
        if state.is_newer:
            _log_newer(state)
    for warning in await durability_warnings(database):
        log.warning("database.weak_durability", extra={"family": database.family, "warning": warning})


def _log_newer(state: revisions.RevisionState) -> None:
    log.warning(
        "schema.newer_tables",
        extra={
            "family": state.family,
            "tables": state.tables,
            "program": state.program.revision,
            "oldest": state.oldest,
        },
    )


async def _with_connection(database: Database, run: Callable[[sa.Connection], Any]) -> Any:
    async with database.engine.begin() as connection:
        return await connection.run_sync(run)
