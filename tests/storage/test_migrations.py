"""A migration resumes after a kill at any point, and every row of every release survives it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage import migration_steps, revisions, schema
from tidings.storage.database import Database
from tidings.storage.handset import inbox
from tidings.wire import device

# Columns that a release has moved.
_MOVED = {"sessions": {"had_kyber"}}
Row = tuple[str, dict[str, Any]]

SYNTHETIC = {
    "0001": """
        op.create_table("people", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(40)),
                        mysql_engine="InnoDB")
        op.bulk_insert(sa.table("people", sa.column("id"), sa.column("name")),
                       [{"id": 1, "name": "Ann B"}, {"id": 2, "name": "Cem D"}])
    """,
    "0002": """
        op.create_table("copies", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(40)),
                        sa.Column("words", sa.Integer, nullable=False), mysql_engine="InnoDB")
        op.execute("INSERT INTO copies (id, name, words) SELECT id + 10, name, 0 FROM people")
        op.execute("UPDATE copies SET words = words + 1")
        op.create_index("copies_by_name", "copies", ["name"])
        for row in op.get_bind().execute(sa.text("SELECT id, name FROM people ORDER BY id")).all():
            op.get_bind().execute(sa.text("INSERT INTO people (id, name) VALUES (:id, :name)"),
                                  {"id": row.id + 20, "name": row.name.split()[0]})
        op.execute("UPDATE copies SET words = words + 1")
        op.rename_table("copies", "words")
        op.execute("UPDATE words SET words = words * 10")
        with op.batch_alter_table("words") as batch:
            batch.alter_column("name", new_column_name="full_name", existing_type=sa.String(40))
        op.drop_index("copies_by_name", "words")
        op.execute("DELETE FROM people WHERE id = 1")
    """,
    "0003": """
        op.execute("UPDATE words SET words = words + 1")
        op.execute("INSERT INTO people (id, name) SELECT 99, full_name FROM words WHERE id = 12")
    """,
    "0004": """
        op.execute("UPDATE words SET words = words + 1")
        op.drop_table("people")
        op.execute("UPDATE words SET words = words + 1")
    """,
}


class Killed(BaseException):
    """Error that stands for the death of the process."""


@pytest.fixture
def synthetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the project's migrations by some that copy data, rename and drop."""
    folder = tmp_path / "migrations"
    (folder / "business").mkdir(parents=True)
    for name in ("env.py", "script.py.mako"):
        shutil.copyfile(revisions.MIGRATIONS / name, folder / name)
    before = None
    for revision, body in SYNTHETIC.items():
        text = f"import sqlalchemy as sa\nfrom alembic import op\nrevision = {revision!r}\ndown_revision = {before!r}\n"
        text += "def upgrade():\n" + textwrap.indent(textwrap.dedent(body), "    ")
        (folder / "business" / f"{revision}_synthetic.py").write_text(text)
        before = revision
    monkeypatch.setattr(revisions, "MIGRATIONS", folder)
    return list(SYNTHETIC)


@contextlib.contextmanager
def killed_after(database: Database, count: int) -> Iterator[None]:
    """End the process and its connection after `count` executed statements."""
    left = itertools.count(count - 1, -1)

    def executed(connection: sa.Connection, cursor: Any, *_: Any) -> None:
        if next(left) == 0:
            connection.invalidate()
            raise Killed

    sa.event.listen(database.engine.sync_engine, "after_cursor_execute", executed)
    try:
        yield
    finally:
        sa.event.remove(database.engine.sync_engine, "after_cursor_execute", executed)


async def upgrade_killed_at_each_statement(database: Database, to: str) -> int:
    """Upgrade with kills: after the first statement, after the second of the next run, and so on. Returns their
    number."""
    for count in itertools.count(1):
        try:
            with killed_after(database, count):
                await schema.upgrade(database, to)
        except (Killed, sa.exc.PendingRollbackError):
            # Alembic's cleanup finds no connection.
            continue
        return count - 1
    raise AssertionError


async def describe(database: Database) -> list[tuple[Any, ...]]:
    """Return the text of every table and index, and the revision."""
    revision = await schema.revision(database)
    async with database.reading() as connection:
        if connection.dialect.name == "sqlite":
            rows = await connection.execute(sa.text("SELECT name, sql FROM sqlite_master ORDER BY name"))
            found = [tuple(row) for row in rows]
        else:
            names = [row[0] for row in await connection.execute(sa.text("SHOW TABLES"))]
            found = [tuple((await connection.execute(sa.text(f"SHOW CREATE TABLE `{name}`"))).one()) for name in names]
        return [*found, (revision,)]


def _value(column: sa.Column[Any], number: int) -> Any:
    kind = column.type
    if isinstance(kind, sa.Boolean) or "TINYINT" in str(kind).upper():
        return number % 2
    if isinstance(kind, sa.Integer):
        return number
    if isinstance(kind, sa.String):
        return f"no{number:03d}"
    return number.to_bytes(8)


async def fill(database: Database, number: int) -> list[Row]:
    """Insert one more row into each table and return the rows."""

    def run(connection: sa.Connection) -> list[Row]:
        found = sa.MetaData()
        found.reflect(connection)
        rows = []
        for table in found.sorted_tables:
            if not table.name.startswith(revisions.version_table(database.family)):
                row = {column.name: _value(column, number) for column in table.columns}
                connection.execute(table.insert().values(row))
                rows.append((table.name, row))
        return rows

    async with database.engine.begin() as connection:
        return await connection.run_sync(run)


async def count(database: Database, row: Row) -> int:
    """Return how many rows have these values in these columns."""
    name, values = row
    values = {key: value for key, value in values.items() if key not in _MOVED.get(name, ())}
    table = sa.table(name, *(sa.column(column) for column in values))
    matching = (
        sa.select(sa.func.count()).select_from(table).where(*(table.c[key] == value for key, value in values.items()))
    )
    async with database.reading() as connection:
        return int((await connection.execute(matching)).scalar_one())


@pytest.mark.parametrize("family", revisions.FAMILIES)
async def test_every_migration_resumes_after_a_kill_at_any_statement_without_loss(
    make: Any, family: str, is_long: bool
) -> None:
    """Kill every migration with `--long` (`make test-upgrade`); without it the newest of a family, with rows of the
    release before.
    """
    undisturbed, killed = await make(family), await make(family)
    await schema.upgrade(undisturbed)
    rows: list[Row] = []
    every = revisions.program(family).revisions
    if not is_long:
        *_, before, newest = every
        await schema.upgrade(killed, before)
        rows += await fill(killed, 0)
        every = (newest,)
    for number, revision in enumerate(every, start=1):
        assert await upgrade_killed_at_each_statement(killed, revision) > 3
        assert await schema.revision(killed) == revision
        rows += await fill(killed, number)
    assert await describe(killed) == await describe(undisturbed)
    assert [row for row in rows if await count(killed, row) != 1] == []


async def test_envelopes_stored_before_slots_existed_get_the_slots_of_their_senders(make: Any) -> None:
    database = await make("network")
    await schema.upgrade(database, "0006")
    group = "15550000000-1767225600"
    written = [
        (f"1555012{number:04}", kind, of)
        for number in range(40)
        for kind, of in (("message", ""), ("read", group), ("retry", group), ("group", group), ("identity", ""))
    ]
    insert = sa.text(
        "INSERT INTO envelopes (seq, recipient, sender, id, kind, timestamp, expires_at, body, refs, trace, group_id) "
        "VALUES (:seq, '15550000001', :sender, :seq, :kind, 0, 0, '', '[]', '', :group_id)"
    )
    async with database.transaction() as connection:
        for seq, (sender, kind, of) in enumerate(written):
            await connection.execute(insert, {"seq": seq, "sender": sender, "kind": kind, "group_id": of})
    await schema.upgrade(database, "0007")
    async with database.reading() as connection:
        found = (await connection.execute(sa.text("SELECT slot FROM envelopes ORDER BY seq"))).scalars().all()
    assert found == [device.hash_slot_of(sender, kind, of) for sender, kind, of in written]
    assert len(set(found)) > 20


async def test_wrong_pins_counted_by_the_previous_release_stay_counted(make: Any) -> None:
    database, day, now = await make("network"), 24 * 3600 * 1000, int(time.time() * 1000)
    await schema.upgrade(database, "0011")
    insert = sa.text(
        "INSERT INTO registration_locks (number, pin_hash, active_at, daily_full_at, yearly_full_at)"
        " VALUES (:number, 'x', :now, 0, :full_at)"
    )
    async with database.transaction() as connection:
        for number, full_at in (("1", 0), ("2", now + 6 * 10 * day), ("3", now + 20 * 10 * day)):
            await connection.execute(insert, {"number": number, "now": now, "full_at": full_at})
    await schema.upgrade(database, "0012")
    async with database.reading() as connection:
        query = sa.text("SELECT yearly_full_at, familiar_yearly_full_at FROM registration_locks ORDER BY number")
        found = [tuple(row) for row in await connection.execute(query)]
    assert found[0] == (0, 0)
    # 6 wrong PINs, at 10 days each before and at 90 days now.
    assert (found[1][0] - now) / (90 * day) == pytest.approx(6, abs=0.01)
    # A node of the previous release refuses no PIN.
    assert (found[2][0] - now) / day == pytest.approx(590, abs=0.01)
    assert [row[1] for row in found] == [0, 0, 0]


async def test_positions_of_sent_messages_continue_behind_those_that_a_page_has_recorded(make: Any) -> None:
    database = await make("handset")
    await schema.upgrade(database, "0006")
    statements = (
        "INSERT INTO handset_progress (fleet, shown) VALUES ('page', 4), ('other', 5)",
        "INSERT INTO handset_devices (number, fleet, registration_id, identity, next_key_id, blocked)"
        " VALUES ('1', 'page', 1, 'x', 1, ''), ('2', 'other', 1, 'x', 1, '')",
        "INSERT INTO handset_chat_items (number, position, chat, id, author, kind, at, content, state, about, source,"
        " receipts) VALUES ('1', 1, '9', 'a', '1', 'text', 0, '', 'sent', '', 70, '{}'),"
        " ('1', 2, '9', 'b', '9', 'text', 0, '', 'seen', '', 90, '{}')",
    )
    async with database.transaction() as connection:
        for statement in statements:
            await connection.execute(sa.text(statement))
    await schema.upgrade(database, "0007")
    assert await _rows(database, "handset_progress") == [("other", 5, 0), ("page", 4, 70)]


async def test_messages_of_a_terminal_of_the_previous_release_count_as_read(make: Any) -> None:
    database = await make("handset")
    await schema.upgrade(database, "0007")
    insert = (
        "INSERT INTO handset_inbox (fleet, position, number, peer, id, kind, received_at, content, group_id)"
        " VALUES ('handset-1', {0}, '1', '9', 'm{0}', 'text', 0, '', '')"
    )
    async with database.transaction() as connection:
        await connection.execute(sa.text(insert.format(1)))
    await schema.upgrade(database, "0008")
    async with database.transaction() as connection:
        await connection.execute(sa.text(insert.format(2)))
        found = await inbox.list_messages(connection, "handset-1", 0, 10)
    assert [row.is_read for row in found] == [True, True]


async def test_copy_rename_and_drop_steps_run_once_despite_kills(make: Any, synthetic: list[str]) -> None:
    undisturbed, killed = await make("business"), await make("business")
    for revision in synthetic:
        await schema.upgrade(undisturbed, revision)
        await upgrade_killed_at_each_statement(killed, revision)
        for table in ("people", "words"):
            if (revision, table) not in {("0001", "words"), ("0004", "people")}:
                assert await _rows(killed, table) == await _rows(undisturbed, table)
    assert await describe(killed) == await describe(undisturbed)
    assert await _rows(killed, "words") == [(11, "Ann B", 23), (12, "Cem D", 23)]


async def test_several_migrations_of_one_run_resume_after_kills(make: Any, synthetic: list[str]) -> None:
    killed = await make("business")
    assert await upgrade_killed_at_each_statement(killed, "head") > 20
    assert await _rows(killed, "words") == [(11, "Ann B", 23), (12, "Cem D", 23)]


async def _rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    async with database.reading() as connection:
        return [tuple(row) for row in await connection.execute(sa.text(f"SELECT * FROM {table} ORDER BY 1"))]


_KILLED_PROCESS = """
import asyncio, os, signal, sys
import sqlalchemy as sa
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database

url, family, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
database = Database(DatabaseSettings(url), family)

def executing(connection, cursor, statement, *_):
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)

sa.event.listen(database.engine.sync_engine, "after_cursor_execute", executing)
asyncio.run(schema.upgrade(database))
"""


async def test_a_migration_of_a_killed_process_is_resumed_by_the_next(make: Any) -> None:
    killed, undisturbed = await make("network"), await make("network")
    await schema.upgrade(undisturbed)
    for statements in (12, 25):
        arguments = [sys.executable, "-c", _KILLED_PROCESS, killed.settings.url, "network", str(statements)]
        process = await asyncio.to_thread(subprocess.run, arguments, env=os.environ, timeout=60)
        assert process.returncode == -signal.SIGKILL
    before, after = await schema.upgrade(killed)
    assert before != after
    assert await describe(killed) == await describe(undisturbed)


async def test_one_of_two_concurrent_migrations_waits_for_the_other(make: Any) -> None:
    one = await make("handset")
    other = Database(one.settings, "handset")
    outcomes = await asyncio.gather(schema.upgrade(one), schema.upgrade(other))
    await other.close()
    head = revisions.program("handset").revision
    assert set(outcomes) == {(None, head), (head, head)}


async def test_waiting_too_long_for_another_migration_raises_lock_timeout(make: Any, database_engine: str) -> None:
    if database_engine == "sqlite":
        pytest.skip("SQLite's own lock")
    database = await make("network")

    alone = migration_steps.alone
    async with database.engine.connect() as one, database.engine.connect() as other:
        with contextlib.ExitStack() as held:
            await one.run_sync(lambda connection: held.enter_context(alone(connection, "network")))
            with pytest.raises(migration_steps.LockTimeout, match="network"):
                await other.run_sync(lambda connection: alone(connection, "network", timeout=0).__enter__())
            await one.run_sync(lambda _: held.close())
        await other.run_sync(lambda connection: alone(connection, "network", timeout=0).__enter__())


async def test_a_foreign_table_with_the_same_name_is_not_adopted(make: Any, database_engine: str) -> None:
    database = await make("handset")
    async with database.transaction() as connection:
        await connection.execute(sa.text("CREATE TABLE handset_sessions (theirs INT)"))
    for _ in range(3):
        with pytest.raises(sa.exc.DBAPIError, match="handset_sessions"):
            await schema.upgrade(database)
    async with database.transaction() as connection:
        await connection.execute(sa.text("DROP TABLE handset_sessions"))
    undisturbed = await make("handset")
    await schema.upgrade(undisturbed)
    await schema.upgrade(database)
    assert await describe(database) == await describe(undisturbed)


async def test_a_migration_started_by_another_release_is_left_to_it(make: Any, database_engine: str) -> None:
    if database_engine == "sqlite":
        pytest.skip("nothing of a migration stays")
    database = await make("network")
    with pytest.raises(Killed), killed_after(database, 20):
        await schema.upgrade(database)
    async with database.transaction() as connection:
        await connection.execute(sa.text("UPDATE schema_network_progress SET digest = 'other'"))
    with pytest.raises(migration_steps.ChangedMigration, match="that release"):
        await schema.upgrade(database)


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_a_cluster_without_get_lock_is_migrated_without_a_lock(
    database_factory: DatabaseFactory, caplog: pytest.LogCaptureFixture
) -> None:
    database = await database_factory("network")
    prohibited = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = 'a cluster prohibits GET_LOCK'"

    def refuse(connection: sa.Connection, cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return (prohibited, ()) if "GET_LOCK" in statement else (statement, parameters)

    sa.event.listen(database.engine.sync_engine, "before_cursor_execute", refuse, retval=True)
    before, after = await schema.upgrade(database)
    assert before == after
    assert [record.msg for record in caplog.records].count("schema.not_locked") == 1
