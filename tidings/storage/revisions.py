"""Revisions of the tables, and the programs that may run on each of them.

Each migration is a revision. A program's revision is that of its newest migration. A migration may declare
`COMPATIBLE_FROM`, the oldest program that works on the tables after it. Without it, no older program may run on them.
The revision of the oldest program that may run on the present tables is recorded in the database, because programs do
not know migrations that are newer than they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import alembic.config
import alembic.migration
import alembic.script
import sqlalchemy as sa

FAMILIES = ("business", "network", "handset")
# Scripts that Alembic runs. Not imported as a package, because the migrations import this package.
MIGRATIONS = Path(__file__).parents[2] / "migrations"


class WrongRevision(Exception):
    """Program that must not run on the present tables."""


class PendingMigrations(WrongRevision):
    """Tables that are older than this program: run `tidings migrate` first."""


class TablesTooNew(WrongRevision):
    """Tables that a later release migrated and that this program cannot use: run that release or a later one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Migrations of one family that this program has."""

    # Of the newest migration.
    revision: str
    # Of all migrations, oldest first.
    revisions: tuple[str, ...]
    # Revision of the tables -> revision of the oldest program that may run on them.
    oldest: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class RevisionState:
    """Revision of one family's tables, compared with this program's."""

    family: str
    # None when there are no tables.
    tables: str | None
    # Oldest program that may run on the tables; None when no release has recorded it yet.
    oldest: str | None
    program: Program

    @property
    def is_newer(self) -> bool:
        """Return whether a later program than this one migrated the tables."""
        return self.tables is not None and self.tables not in self.program.revisions

    def require(self) -> None:
        """Raise `WrongRevision` unless this program may run on the tables."""
        self.require_not_too_new()
        if self.tables != self.program.revision and not self.is_newer:
            raise PendingMigrations(
                f"the {self.family} tables are at revision {self.tables}, this program needs {self.program.revision}: "
                "run `tidings migrate`"
            )

    def require_not_too_new(self) -> None:
        """Raise `TablesTooNew` when this program is too old to run on the tables or to migrate them."""
        if (self.oldest is None and not self.is_newer) or self.oldest in self.program.revisions:
            return
        allowed = f"programs from revision {self.oldest or self.tables} on"
        raise TablesTooNew(
            f"the {self.family} tables are at revision {self.tables} and need {allowed}, this one has "
            f"{self.program.revision}: start the release that migrated the tables, or a later one"
        )


def version_table(family: str) -> str:
    """Return the name of the table that holds the revision of one family."""
    return f"schema_{family}"


def programs_table(family: str) -> str:
    """Return the name of the table that holds the oldest program that may run on one family."""
    return f"{version_table(family)}_programs"


def config(
    family: str,
    connection: sa.Connection | None = None,
    on_version_apply: Sequence[Callable[..., None]] = (),
) -> alembic.config.Config:
    """Return Alembic's configuration for the migrations of one family."""
    if family not in FAMILIES:
        raise ValueError(f"no family of tables {family!r}")
    made = alembic.config.Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    made.set_main_option("path_separator", "os")
    made.set_main_option("version_locations", str(MIGRATIONS / family))
    made.attributes.update(
        connection=connection, version_table=version_table(family), on_version_apply=on_version_apply
    )
    return made


def program(family: str) -> Program:
    """Return the migrations of one family that this program has."""
    return _read_program(MIGRATIONS, family)


@functools.cache
def _read_program(directory: Path, family: str) -> Program:
    """Read all migrations of one family; cached, because every script is read."""
    scripts = alembic.script.ScriptDirectory.from_config(config(family))
    revisions: list[str] = []
    oldest: dict[str, str] = {}
    for script in reversed(list(scripts.walk_revisions())):
        declared = getattr(script.module, "COMPATIBLE_FROM", script.revision)
        if declared not in (*revisions, script.revision):
            raise ValueError(f"{family} migration {script.revision} is compatible from {declared!r}: no such revision")
        # A program that an earlier migration has excluded stays excluded.
        earlier = oldest[revisions[-1]] if revisions else declared
        revisions.append(script.revision)
        oldest[script.revision] = max(declared, earlier, key=revisions.index)
    return Program(revisions[-1], tuple(revisions), oldest)


def read(connection: sa.Connection, family: str) -> RevisionState:
    """Read the revision of the tables and the oldest program that may run on them."""
    return RevisionState(family, read_revision(connection, family), _read_oldest(connection, family), program(family))


def read_revision(connection: sa.Connection, family: str) -> str | None:
    """Read the revision of the tables; None when there are no tables."""
    context = alembic.migration.MigrationContext.configure(connection, opts={"version_table": version_table(family)})
    return context.get_current_revision()


def _read_oldest(connection: sa.Connection, family: str) -> str | None:
    table = _programs(family)
    if not sa.inspect(connection).has_table(table.name):
        return None
    return connection.execute(sa.select(table.c.oldest)).scalar()


def record_oldest(connection: sa.Connection, family: str, revision: str) -> None:
    """Record the oldest program that may run on the tables."""
    if _read_oldest(connection, family) == revision:
        return
    table = _programs(family)
    connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
    connection.execute(sa.delete(table))
    connection.execute(sa.insert(table).values(id=1, oldest=revision))


def _programs(family: str) -> sa.Table:
    """Return the table of the oldest program. It has one row, whose id is 1."""
    return sa.Table(
        programs_table(family),
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("oldest", sa.String(32), nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="ascii",
        mysql_collate="ascii_bin",
    )
