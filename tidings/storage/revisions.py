"""The revisions of the tables, and the programs that may run on each.

Each migration is a revision. A program has the revision of its newest migration. A migration may declare
`COMPATIBLE_FROM`, the oldest program that works on the tables after it; without it, only its own program does. The
oldest program that may run on the present tables is recorded beside them, since programs do not know migrations that
are newer than they are.
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
# Scripts that Alembic runs: a folder beside this package, and no import of it, for they stand on it.
MIGRATIONS = Path(__file__).parents[2] / "migrations"


class WrongRevision(Exception):
    """This program must not run on the present tables."""


class PendingMigrations(WrongRevision):
    """The tables are older than this program: run `tidings migrate` first."""


class TablesTooNew(WrongRevision):
    """The tables were migrated by a later program, and no longer suit this one: run a later one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The migrations of one family that this program has.

    revision: of the newest migration. revisions: of all, the oldest first. oldest: for each revision, that of the
    oldest program that may run on tables of it.
    """

    revision: str
    revisions: tuple[str, ...]
    oldest: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """The revision of one family's tables beside this program's.

    tables: `None` when there are none. oldest: the oldest program that may run on them; `None` when no release has
    recorded it yet.
    """

    family: str
    tables: str | None
    oldest: str | None
    program: Program

    @property
    def is_newer(self) -> bool:
        """Whether the tables were migrated by a later program than this one."""
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
        """Raise `TablesTooNew` when this program is older than those that may run on the tables, or migrate them."""
        if (self.oldest is None and not self.is_newer) or self.oldest in self.program.revisions:
            return
        allowed = f"programs from revision {self.oldest or self.tables} on"
        raise TablesTooNew(
            f"the {self.family} tables are at revision {self.tables} and need {allowed}, this one has "
            f"{self.program.revision}: start the release that migrated the tables, or a later one"
        )


def version_table(family: str) -> str:
    """The table that holds the revision of one family."""
    return f"schema_{family}"


def programs_table(family: str) -> str:
    """The table that holds the oldest program that may run on one family."""
    return f"{version_table(family)}_programs"


def config(
    family: str,
    connection: sa.Connection | None = None,
    on_version_apply: Sequence[Callable[..., None]] = (),
) -> alembic.config.Config:
    """Alembic's configuration for the migrations of one family."""
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
    """The migrations of one family that this program has."""
    return _read_program(MIGRATIONS, family)


@functools.cache
def _read_program(directory: Path, family: str) -> Program:
    """Cached, since every migration is read."""
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


def read(connection: sa.Connection, family: str) -> Standing:
    """The revision of the tables, and the programs that may run on them."""
    return Standing(family, read_revision(connection, family), _read_oldest(connection, family), program(family))


def read_revision(connection: sa.Connection, family: str) -> str | None:
    """The revision that the tables are at, `None` when there are none."""
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
    """One row. id: always 1."""
    return sa.Table(
        programs_table(family),
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("oldest", sa.String(32), nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="ascii",
        mysql_collate="ascii_bin",
    )
