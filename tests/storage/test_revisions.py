"""A program starts on tables of its revision, and on later ones whose migrations declare that it may."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from cli.doctor.database import TableRevisionCheck
from cli.doctor.findings import Level
from tests.storage.conftest import MakeDatabase
from tidings.storage import revisions, schema
from tidings.storage.database import Database

Release = Callable[..., None]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Function that replaces the program's migrations.

    `release("0002", "0003:0002")` gives it the business migrations 0001, 0002 and 0003, of which 0003 declares that it
    is compatible from 0002 on.
    """

    def become(*migrations: str) -> None:
        folder = tmp_path / "-".join(migrations).replace(":", "_") / "migrations"
        (folder / "business").mkdir(parents=True, exist_ok=True)
        for name in ("env.py", "script.py.mako"):
            shutil.copyfile(schema_folder / name, folder / name)
        before = None
        for migration in ("0001", *migrations):
            revision, _, compatible = migration.partition(":")
            lines = ["import sqlalchemy as sa", "from alembic import op"]
            lines += [f"revision = {revision!r}", f"down_revision = {before!r}"]
            lines += [f"COMPATIBLE_FROM = {compatible!r}"] if compatible else []
            lines += ["def upgrade():", f"    op.create_table('t{revision}', sa.Column('id', sa.Integer))"]
            (folder / "business" / f"{revision}.py").write_text("\n".join(lines))
            before = revision
        monkeypatch.setattr(revisions, "MIGRATIONS", folder)

    schema_folder = revisions.MIGRATIONS
    return become


@pytest.fixture
async def database(make: MakeDatabase) -> Database:
    """Empty database."""
    return await make("business")


async def test_an_older_program_starts_on_newer_compatible_tables_and_logs_it(
    database: Database, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    release("0002", "0003:0002", "0004:0002")
    await schema.upgrade(database)
    release("0002")
    with caplog.at_level(logging.WARNING):
        await schema.prepare(database, migrate=False)
    (line,) = [record for record in caplog.records if record.msg == "schema.newer_tables"]
    assert line.__dict__["tables"] == "0004"
    assert line.__dict__["program"] == "0002"


async def test_an_older_program_is_refused_after_a_migration_without_a_declaration(
    database: Database, release: Release
) -> None:
    release("0002", "0003")
    await schema.upgrade(database)
    release("0002")
    with pytest.raises(revisions.TablesTooNew, match=r"at revision 0003 and need programs from revision 0003 on.*0002"):
        await schema.prepare(database, migrate=False)


async def test_a_later_migration_cannot_readmit_an_excluded_program(database: Database, release: Release) -> None:
    release("0002", "0003", "0004:0002")
    await schema.upgrade(database)
    release("0002")
    with pytest.raises(revisions.TablesTooNew, match="from revision 0003 on"):
        await schema.check(database)
    release("0002", "0003")
    assert (await schema.check(database)).is_newer


async def test_a_contract_migration_refuses_only_releases_that_still_read(database: Database, release: Release) -> None:
    release("0002", "0003:0002", "0004:0003")
    await schema.upgrade(database)
    release("0002", "0003:0002")
    await schema.prepare(database, migrate=False)
    release("0002")
    with pytest.raises(revisions.TablesTooNew, match="from revision 0003 on"):
        await schema.prepare(database, migrate=False)


async def test_newer_tables_without_a_compatibility_record_are_refused(database: Database, release: Release) -> None:
    release("0002", "0003:0002")
    await schema.upgrade(database)
    async with database.transaction() as connection:
        await connection.execute(sa.text("DROP TABLE schema_business_programs"))
    release("0002")
    with pytest.raises(revisions.TablesTooNew, match="at revision 0003"):
        await schema.check(database)


async def test_a_newer_program_is_refused_until_the_tables_are_migrated(database: Database, release: Release) -> None:
    release("0002")
    await schema.upgrade(database)
    release("0002", "0003:0002")
    with pytest.raises(revisions.PendingMigrations, match="run `tidings migrate`"):
        await schema.prepare(database, migrate=False)
    assert await schema.upgrade(database) == ("0002", "0003")
    await schema.prepare(database, migrate=False)


async def test_an_embedded_start_of_an_older_program_keeps_newer_compatible_tables(
    database: Database, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    release("0002", "0003:0002")
    await schema.upgrade(database)
    release("0002")
    await schema.prepare(database, migrate=True)
    assert [record.msg for record in caplog.records].count("schema.newer_tables") == 1
    assert await schema.revision(database) == "0003"
    release("0002", "0003:0002")
    assert (await schema.check(database)).oldest == "0002"


async def test_an_embedded_start_of_an_excluded_program_is_refused(database: Database, release: Release) -> None:
    release("0002", "0003")
    await schema.upgrade(database)
    release("0002")
    with pytest.raises(revisions.TablesTooNew):
        await schema.prepare(database, migrate=True)
    assert await schema.revision(database) == "0003"


async def test_a_migration_excludes_older_programs_before_its_first_change(
    database: Database, release: Release
) -> None:
    release("0002")
    await schema.upgrade(database)
    release("0002", "0003")
    async with database.transaction() as connection:
        await connection.execute(sa.text("CREATE TABLE t0003 (theirs INTEGER)"))
    with pytest.raises(sa.exc.DBAPIError, match="t0003"):
        await schema.upgrade(database)
    release("0002")
    if (await schema.revision(database), database.settings.engine) == ("0002", "sqlite"):
        # The transaction was rolled back.
        await schema.check(database)
        return
    with pytest.raises(revisions.TablesTooNew, match="from revision 0003 on"):
        await schema.check(database)


async def test_a_missing_compatibility_record_is_written_by_migrate_only(database: Database, release: Release) -> None:
    release("0002")
    await schema.upgrade(database)
    async with database.transaction() as connection:
        await connection.execute(sa.text("DROP TABLE schema_business_programs"))
    await schema.prepare(database, migrate=False)
    assert (await schema.check(database)).oldest is None
    assert await schema.upgrade(database) == ("0002", "0002")
    assert (await schema.check(database)).oldest == "0002"


async def test_a_declaration_of_an_unknown_revision_is_refused(database: Database, release: Release) -> None:
    release("0002", "0003:0004")
    with pytest.raises(ValueError, match="0003 is compatible from '0004': no such revision"):
        await schema.upgrade(database)


async def test_the_doctor_reports_that_this_program_is_older_than_its_tables(
    database: Database, release: Release
) -> None:
    release("0002", "0003:0002")
    await schema.upgrade(database)
    (finding,) = await TableRevisionCheck(database).run()
    assert (finding.level, finding.text) == (Level.FINE, "at revision 0003, for programs from revision 0002 on")
    release("0002")
    (finding,) = await TableRevisionCheck(database).run()
    assert finding.level == Level.WARNING
    assert "0003" in finding.text
    assert "0002" in finding.text
    release("0002", "0003", "0004")
    await schema.upgrade(database)
    release("0002")
    (finding,) = await TableRevisionCheck(database).run()
    assert finding.level == Level.ERROR
    assert "from revision 0004 on" in finding.text
