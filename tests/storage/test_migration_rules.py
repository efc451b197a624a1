"""A migration only adds, so that programs of the previous release still work. A migration that removes declares
it."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.storage.conftest import MakeDatabase
from tidings.storage import revisions, schema
from tidings.storage.database import Database

# First migration of each family that the rules apply to.
FIRST = {"business": "0027", "network": "0010", "handset": "0005"}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Tables of a family."""

    columns: Mapping[str, Mapping[str, Any]]  # by table and column name
    unique: Mapping[str, frozenset[tuple[str, ...]]]  # by table: names of columns that are unique together
    checks: Mapping[str, frozenset[str]]
    foreign_keys: Mapping[str, frozenset[str]]


async def read_shape(database: Database) -> Shape:
    """Return the tables as the database describes them, without those of the migrations themselves."""

    def run(connection: sa.Connection) -> Shape:
        inspector = sa.inspect(connection)
        names = [name for name in inspector.get_table_names() if not name.startswith("schema_")]
        return Shape(
            {name: {str(column["name"]): column for column in inspector.get_columns(name)} for name in names},
            {name: frozenset(_unique(inspector, name)) for name in names},
            {
                name: frozenset(str(check["sqltext"]) for check in inspector.get_check_constraints(name))
                for name in names
            },
            {name: frozenset(map(str, inspector.get_foreign_keys(name))) for name in names},
        )

    async with database.engine.connect() as connection:
        return await connection.run_sync(run)


def _unique(inspector: sa.Inspector, table: str) -> Iterator[tuple[str, ...]]:
    yield tuple(inspector.get_pk_constraint(table)["constrained_columns"])
    for index in inspector.get_indexes(table):
        if index["unique"]:
            yield tuple(str(name) for name in index["column_names"])
    for constraint in inspector.get_unique_constraints(table):
        yield tuple(constraint["column_names"])


def removals(before: Shape, after: Shape) -> Iterator[str]:
    """Yield the properties that a program of the previous release can no longer rely on."""
    for table, columns in before.columns.items():
        if table not in after.columns:
            yield f"table {table} is gone"
            continue
        for name, column in columns.items():
            if name not in after.columns[table]:
                yield f"column {table}.{name} is gone"
            else:
                yield from _tightened(f"column {table}.{name}", column, after.columns[table][name])
        for name, column in after.columns[table].items():
            if name not in columns and not column["nullable"] and column["default"] is None:
                yield f"new column {table}.{name} is neither nullable nor has a server default"
        for kind in ("unique", "checks", "foreign_keys"):
            if getattr(after, kind)[table] - getattr(before, kind)[table]:
                yield f"table {table} has a new constraint"


def _tightened(what: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["nullable"] and not after["nullable"]:
        yield f"{what} no longer takes NULL"
    if before["default"] is not None and after["default"] is None and not after["nullable"]:
        yield f"{what} has lost its default"
    longer = (
        type(before["type"]) is type(after["type"])
        and (getattr(after["type"], "length", None) or 0) >= (getattr(before["type"], "length", None) or 0)
        and str(before["type"].as_generic()).partition("(")[0] == str(after["type"].as_generic()).partition("(")[0]
        and isinstance(after["type"], sa.String | sa.LargeBinary)
    )
    if str(before["type"]) != str(after["type"]) and not longer:
        yield f"{what} has another type: {before['type']} before, {after['type']} after"


async def faults(database: Database, first: str) -> list[str]:
    """Migrate step by step from the migration `first` on, and list the violations of the rules."""
    program = revisions.program(database.family)
    if first not in program.revisions:
        return []
    found: list[str] = []
    start = program.revisions.index(first)
    await schema.upgrade(database, program.revisions[start - 1])
    before = await read_shape(database)
    for earlier, revision in itertools.pairwise(program.revisions[start - 1 :]):
        await schema.upgrade(database, revision)
        after = await read_shape(database)
        where = f"{database.family} {revision}"
        if program.oldest[revision] == revision:
            found.append(f"{where} declares no earlier program by COMPATIBLE_FROM: no upgrade rolls over it")
        elif program.oldest[revision] == program.oldest[earlier]:
            found += [f"{where}: {line}, and COMPATIBLE_FROM is no later" for line in removals(before, after)]
        before = after
    return found


@pytest.mark.parametrize("family", revisions.FAMILIES)
async def test_migrations_only_add_unless_they_declare_excluded_programs(make: MakeDatabase, family: str) -> None:
    assert await faults(await make(family), FIRST[family]) == []


BASE = """
    op.create_table("people", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(40)),
                    sa.Column("age", sa.Integer, nullable=False, server_default="0"), mysql_engine="InnoDB")
    op.create_table("others", sa.Column("id", sa.Integer, primary_key=True), mysql_engine="InnoDB")
"""


@pytest.fixture
async def judge(make: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function that checks a migration: `await judge(statements, compatible_from)` returns its violations.

    It is the third migration, after `BASE` and an empty one.
    """

    async def run(statements: str, compatible_from: str | None = "0001") -> list[str]:
        folder = tmp_path / "migrations"
        (folder / "business").mkdir(parents=True)
        for name in ("env.py", "script.py.mako"):
            shutil.copyfile(revisions.MIGRATIONS / name, folder / name)
        migrations = (("0001", BASE, None), ("0002", "pass", "0001"), ("0003", statements, compatible_from))
        before = None
        for revision, body, compatible in migrations:
            text = f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {revision!r}\n"
            text += f"down_revision = {before!r}\n" + (f"COMPATIBLE_FROM = {compatible!r}\n" if compatible else "")
            text += "def upgrade():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
            (folder / "business" / f"{revision}_synthetic.py").write_text(text)
            before = revision
        monkeypatch.setattr(revisions, "MIGRATIONS", folder)
        return await faults(await make("business"), "0003")

    return run


@pytest.mark.parametrize(
    "statements",
    [
        'op.create_table("more", sa.Column("id", sa.Integer, primary_key=True), mysql_engine="InnoDB")',
        'op.add_column("people", sa.Column("town", sa.String(40)))',
        'op.add_column("people", sa.Column("height", sa.Integer, nullable=False, server_default="0"))',
        'op.create_index("people_by_name", "people", ["name"])',
        """
        with op.batch_alter_table("people") as batch:
            batch.alter_column("name", type_=sa.String(80), existing_type=sa.String(40))
        """,
        'op.execute("UPDATE people SET age = 1")',
    ],
)
async def test_compatible_statements_pass(judge: Any, statements: str) -> None:
    assert await judge(statements) == []


REMOVALS = [
    ('op.drop_table("others")', "table others is gone"),
    ('op.rename_table("others", "rest")', "table others is gone"),
    (
        """
        with op.batch_alter_table("people") as batch:
            batch.drop_column("name")
        """,
        "column people.name is gone",
    ),
    (
        """
        with op.batch_alter_table("people") as batch:
            batch.alter_column("name", new_column_name="full_name", existing_type=sa.String(40))
        """,
        "column people.name is gone",
    ),
    ('op.execute("ALTER TABLE people DROP COLUMN name")', "column people.name is gone"),
    (
        """
        with op.batch_alter_table("people") as batch:
            batch.alter_column("name", type_=sa.String(20), existing_type=sa.String(40))
        """,
        "another type",
    ),
    (
        """
        with op.batch_alter_table("people") as batch:
            batch.alter_column("name", nullable=False, existing_type=sa.String(40))
        """,
        "no longer takes NULL",
    ),
    (
        """
        with op.batch_alter_table("people") as batch:
            batch.alter_column("age", server_default=None, existing_type=sa.Integer, existing_nullable=False)
        """,
        "has lost its default",
    ),
    (
        """
        with op.batch_alter_table("others") as batch:
            batch.add_column(sa.Column("name", sa.String(40), nullable=False, server_default=""))
            batch.alter_column("name", server_default=None, existing_type=sa.String(40), existing_nullable=False)
        """,
        "neither nullable nor has a server default",
    ),
    ('op.create_index("people_by_name", "people", ["name"], unique=True)', "new constraint"),
]


@pytest.mark.parametrize(("statements", "fault"), REMOVALS)
async def test_a_statement_that_breaks_the_previous_release_is_a_fault(judge: Any, statements: str, fault: str) -> None:
    (found,) = await judge(statements)
    assert fault in found


@pytest.mark.parametrize("statements", [statements for statements, _ in REMOVALS[:3]])
async def test_an_incompatible_statement_passes_with_a_declaration(judge: Any, statements: str) -> None:
    assert await judge(statements, "0002") == []


@pytest.mark.parametrize("compatible_from", [None, "0003"])
async def test_a_migration_that_excludes_every_earlier_program_is_a_fault(
    judge: Any, compatible_from: str | None
) -> None:
    (found,) = await judge("pass", compatible_from)
    assert found == "business 0003 declares no earlier program by COMPATIBLE_FROM: no upgrade rolls over it"
