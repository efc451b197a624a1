"""A transaction is all or nothing, outages are waited out, and readers never block writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncConnection

from harness import database_server
from harness.mariadb import MariaDB
from tests.conftest import DatabaseFactory
from tests.coreapp.signals import soon
from tidings.installation.settings import DatabaseSettings
from tidings.storage import outages, types
from tidings.storage.business import messages
from tidings.storage.database import Database, insert_or_ignore, insert_or_update

things = sa.Table(
    "test_things",
    sa.MetaData(),
    sa.Column("name", types.key(20), primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", types.text(50), nullable=False),
    sa.Column("data", types.blob(), nullable=False),
    mysql_engine="InnoDB",
)


def row(name: str, value: str = "", *, part: int = 0, data: bytes = b"") -> dict[str, object]:
    return {"name": name, "part": part, "value": value, "data": data}


async def stored(database: Database) -> dict[str, str]:
    async with database.reading() as connection:
        rows = await connection.execute(sa.select(things.c.name, things.c.value).order_by(things.c.name))
        return {str(name): str(value) for name, value in rows}


async def create_things(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.run_sync(things.create)
        await connection.execute(
            sa.text("CREATE TABLE IF NOT EXISTS schema_business (version_num VARCHAR(32) PRIMARY KEY)")
        )


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    made = await database_factory("business")
    await create_things(made)
    return made


@pytest.fixture
def own_mariadb() -> Iterator[MariaDB]:
    """Server that the test may kill. Every commit is on disk."""
    server = database_server.make(flush_log=1, buffer_pool_mb=32)
    server.start()
    yield server
    server.remove()


@pytest.fixture
async def fragile(own_mariadb: MariaDB) -> AsyncIterator[Database]:
    """Database on the server that is killed."""
    with own_mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE fragile CHARACTER SET utf8mb4")
    made = Database(DatabaseSettings(own_mariadb.url("fragile")), "business")
    await create_things(made)
    yield made
    await made.close()


async def test_a_transaction_that_raises_is_rolled_back(database: Database) -> None:
    with pytest.raises(KeyError):
        async with database.transaction() as connection:
            await connection.execute(things.insert(), [row("a"), row("b")])
            raise KeyError
    assert await stored(database) == {}


async def test_a_cancelled_transaction_is_rolled_back_and_frees_its_connection(
    database: Database,
) -> None:
    inside = asyncio.Event()

    async def stuck() -> None:
        async with database.transaction() as connection:
            await connection.execute(things.insert(), [row("a")])
            inside.set()
            await asyncio.Event().wait()

    for _ in range(database.settings.pool_size + 2):
        inside.clear()
        task = asyncio.create_task(stuck())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
    assert await stored(database) == {}


@pytest.mark.parametrize("data", [b"", b"\x00\xff'\"\\%s?:x", bytes(range(256)) * 5000])
async def test_bytes_are_stored_unchanged(database: Database, data: bytes) -> None:
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("a", data=data), row("b", data=data)])
    async with database.reading() as connection:
        found = (await connection.execute(sa.select(things.c.data))).scalars().all()
        by_value = await connection.execute(sa.select(things.c.name).where(things.c.data == data))
    assert found == [data, data]
    assert len(by_value.all()) == 2


async def test_any_text_is_stored_unchanged_and_keys_are_case_sensitive(database: Database) -> None:
    text = "ü 你好 👋 'x' \\ % :name"
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("a", text), row("A", text.upper())])
    assert await stored(database) == {"a": text, "A": text.upper()}


async def test_insert_or_update_overwrites_only_the_named_columns(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("a", "old", data=b"old"), row("b", "old", data=b"old")])
        statement = insert_or_update(connection, things, ("value",))
        await connection.execute(statement, [row("b", "new", data=b"new"), row("c", "new", data=b"new")])
    async with database.reading() as connection:
        rows = await connection.execute(sa.select(things.c.name, things.c.value, things.c.data).order_by(things.c.name))
        assert [tuple(found) for found in rows] == [("a", "old", b"old"), ("b", "new", b"old"), ("c", "new", b"new")]


async def test_insert_or_ignore_keeps_existing_rows(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("a", "old")])
        await connection.execute(
            insert_or_ignore(connection, things), [row("a", "new"), row("b", "new"), row("b", "x")]
        )
    assert await stored(database) == {"a": "old", "b": "new"}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), max_size=6)),
        max_size=5,
    )
)
def test_upserts_behave_like_a_dictionary(
    upsert_loop: tuple[asyncio.Runner, Database], batches: list[tuple[bool, list[tuple[str, str]]]]
) -> None:
    runner, database = upsert_loop

    async def scenario() -> None:
        model: dict[str, str] = {}
        async with database.transaction() as connection:
            await connection.execute(things.delete())
        for update, pairs in batches:
            async with database.transaction() as connection:
                if update:
                    statement = insert_or_update(connection, things, ("value",))
                    model.update(pairs)
                else:
                    statement = insert_or_ignore(connection, things)
                    model = dict(reversed(pairs)) | model
                if pairs:
                    await connection.execute(statement, [row(name, value) for name, value in pairs])
            assert await stored(database) == model

    runner.run(scenario())


@pytest.fixture(params=["sqlite", "mariadb"])
def upsert_loop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, Database]]:
    """Event loop and database for a test that hypothesis calls many times."""
    if request.param == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('upsert')}/x.db"
    else:
        server: MariaDB = request.getfixturevalue("mariadb")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP DATABASE IF EXISTS test_upserts")
            cursor.execute("CREATE DATABASE test_upserts CHARACTER SET utf8mb4")
        url = server.url("test_upserts")
    database = Database(DatabaseSettings(url), "business")
    with asyncio.Runner() as runner:
        runner.run(create_things(database))
        yield runner, database
        runner.run(database.close())


async def test_a_reader_does_not_wait_for_a_writer_and_sees_only_committed_rows(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("a", "committed")])
    async with database.transaction() as writing:
        await writing.execute(things.update().values(value="in flight"))
        async with asyncio.timeout(30):
            assert await stored(database) == {"a": "committed"}
    assert await stored(database) == {"a": "in flight"}


async def test_an_open_reader_does_not_block_a_writer(database: Database) -> None:
    async with database.reading() as reading:
        await reading.execute(sa.select(things))
        async with asyncio.timeout(30), database.transaction() as connection:
            await connection.execute(things.insert(), [row("a", "written")])
    assert await stored(database) == {"a": "written"}


@pytest.mark.parametrize(
    "value",
    [
        0,
        -(2**63),
        "15550001234",
        "٣ñ中",
        "wamid.HBgL==",
        "it's; -- \\' OR 1=1 %s",
        "\0\n\r\x1a",
        "",
        b"",
        b"\0\xff'\\",
        None,
        1.5,
    ],
)
async def test_literal_values_are_returned_unchanged(database: Database, value: object) -> None:
    async with database.reading() as connection:
        given = sa.select(sa.literal(value), sa.literal("next"))
        assert (await connection.execute(given)).one() == (value, "next")


async def test_concurrent_writers_wait_instead_of_failing(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(things.insert(), [row("count", "0")])

    async def add_one(name: str) -> None:
        async def work(connection: AsyncConnection) -> None:
            locked = sa.select(things.c.value).where(things.c.name == "count").with_for_update()
            value = int((await connection.execute(locked)).scalar_one())
            # On a busy machine a commit may exceed the time limit of a transaction, which is then repeated.
            if (await connection.execute(sa.select(things).where(things.c.name == name))).first() is None:
                await connection.execute(things.insert(), [row(name)])
                await connection.execute(things.update().where(things.c.name == "count").values(value=str(value + 1)))

        await database.persist(work)

    await asyncio.gather(*(add_one(f"w{n}") for n in range(40)))
    assert (await stored(database))["count"] == "40"


async def test_the_commit_delay_runs_inside_the_transaction(database: Database) -> None:
    slow = Database(DatabaseSettings(database.settings.url, commit_delay=0.05), "business")
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with slow.transaction() as connection:
        await connection.execute(things.insert(), [row("a")])
    assert loop.time() - started >= 0.05
    await slow.close()


async def test_persist_raises_permanent_errors_at_once(database: Database) -> None:
    tries = 0

    async def work(connection: AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        await connection.execute(things.insert(), [row("a")])
        await connection.execute(things.insert(), [row("a")])

    with pytest.raises(sa.exc.IntegrityError) as caught:
        await database.persist(work)
    assert tries == 1
    assert not outages.is_outage(caught.value)
    assert await stored(database) == {}


async def test_a_deadlocked_transaction_is_retried_until_both_commit(own_mariadb: MariaDB, fragile: Database) -> None:
    async with fragile.transaction() as connection:
        await connection.execute(things.insert(), [row("a", "0"), row("b", "0")])
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    async def work(first: str, second: str) -> None:
        attempt = 0

        async def update(connection: AsyncConnection) -> None:
            nonlocal attempt, tries
            attempt += 1
            tries += 1
            for name in (first, second):
                found = sa.select(things.c.value).where(things.c.name == name).with_for_update()
                value = int((await connection.execute(found)).scalar_one())
                await connection.execute(things.update().where(things.c.name == name).values(value=str(value + 1)))
                if name == first and attempt == 1:
                    await both_hold_one.wait()

        await fragile.persist(update)

    await asyncio.gather(work("a", "b"), work("b", "a"))
    assert await stored(fragile) == {"a": "2", "b": "2"}
    assert tries == 3


async def test_persist_retries_through_a_server_kill_and_writes_every_row_once(
    own_mariadb: MariaDB, fragile: Database
) -> None:
    under_way = asyncio.Event()

    async def write(number: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            statement = insert_or_update(connection, things, ("value",))
            await connection.execute(statement, [row(f"n{number}", str(number))])

        await fragile.persist(work)
        if number == 30:
            under_way.set()

    async def write_all(worker: int) -> None:
        for number in range(worker, 400, 4):
            await write(number)

    writing = asyncio.gather(*(write_all(worker) for worker in range(4)))
    await under_way.wait()
    await asyncio.to_thread(own_mariadb.kill9)
    with pytest.raises(sa.exc.SQLAlchemyError) as caught:
        async with fragile.reading() as connection:
            await connection.execute(sa.select(things))
    assert outages.is_outage(caught.value)
    assert "127.0.0.1" in str(outages.describe(caught.value)) or "Lost" in str(outages.describe(caught.value))
    await asyncio.to_thread(own_mariadb.start)
    await writing
    assert await stored(fragile) == {f"n{number}": str(number) for number in range(400)}


async def test_a_commit_with_a_lost_response_is_retried_idempotently(
    own_mariadb: MariaDB, fragile: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def work(connection: AsyncConnection) -> str:
        nonlocal tries
        tries += 1
        await connection.execute(insert_or_ignore(connection, things), [row("a", f"try {tries}")])
        if tries == 1:
            # The transaction is committed without the program's knowledge, which then loses its connection.
            await connection.exec_driver_sql("COMMIT")
            await asyncio.to_thread(own_mariadb.kill9)
            await asyncio.to_thread(own_mariadb.start)
        return f"try {tries}"

    assert await fragile.persist(work) == "try 2"
    assert await stored(fragile) == {"a": "try 1"}


async def test_persist_raises_after_its_time_limit(own_mariadb: MariaDB, fragile: Database) -> None:
    own_mariadb.kill9()

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(things.insert(), [row("a")])

    with pytest.raises(sa.exc.DBAPIError) as caught:
        await fragile.persist(work, retry_seconds=0.3)
    assert outages.is_outage(caught.value)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_closed_in_a_transaction_is_an_outage_on_every_event_loop(
    mariadb: MariaDB, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def scenario() -> None:
        database = Database(DatabaseSettings(mariadb.url("information_schema"), pool_size=1), "business")
        tries = 0

        async def work(connection: AsyncConnection) -> int:
            nonlocal tries
            tries += 1
            if tries == 1:
                driver = (await connection.get_raw_connection()).driver_connection
                assert driver is not None
                driver._writer.transport.abort()
                await soon(driver._reader.at_eof)
            return int((await connection.execute(sa.text("SELECT 1"))).scalar_one())

        try:
            assert await database.persist(work, retry_seconds=10) == 1
            assert tries == 2
        finally:
            await database.close()

    run(scenario())


@pytest.mark.parametrize("strange", ["ü", "\U0001f600" * 64, "\ud7ff\uffff", "x" * 65, "\x7f" * 65])
async def test_an_impossible_key_is_looked_up_and_not_found(database_factory: DatabaseFactory, strange: str) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [messages.MessageRow("known", "1", 0, "2", "text", messages.Status.SENT, 1, "")])
    async with database.reading() as connection:
        for ids in ([strange], ["known", strange], [strange, strange, "known"]):
            found = await messages.list_progress(connection, "1", ids)
            assert [row.id for row in found] == [name for name in ids if name == "known"]


@pytest.mark.parametrize("database_engine", ["mariadb"])
async def test_an_impossible_key_is_refused_as_a_bad_row(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    for statement in (
        sa.insert(messages.table).values(
            id="ü", account="1", shard=0, peer="2", kind="text", status=1, created_at=1, request_id=""
        ),
        sa.update(messages.table).values(id="ü"),
    ):
        with pytest.raises(sa.exc.DBAPIError) as refused:
            async with database.transaction() as connection:
                await messages.add(
                    connection, [messages.MessageRow("known", "1", 0, "2", "text", messages.Status.SENT, 1, "")]
                )
                await connection.execute(statement)
        assert outages.refuses_row(refused.value)
