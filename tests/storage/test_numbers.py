"""Numbers of an installation: their rows, shards and users, and their removal."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import sqlalchemy as sa

import tidings.storage.business
from tests.conftest import DatabaseFactory
from tidings.config.env import SettingsError
from tidings.storage.business import (
    accounts,
    changes,
    layout_changes,
    layouts,
    messages,
    number_removal,
    numbers,
    profiles,
    shards,
    users,
)
from tidings.storage.business.number_removal import PendingRows
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.business.users import User
from tidings.storage.database import Database

FIRST, SECOND = "15550000000", "15550000001"


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    found = await database_factory("business")
    async with found.transaction() as connection:
        await numbers.add_first(connection, FIRST)
        await shards.create_shards(connection, 2)
    return found


async def add(database: Database, number: str = SECOND, shard_count: int = 2) -> BusinessNumber:
    async with database.transaction() as connection:
        row = await numbers.add(connection, number)
        await shards.create_shards(connection, shard_count, row.shard_block)
    return row


async def claim(database: Database, shard: int, owner: str = "one") -> Lease:
    async with database.transaction() as connection:
        lease = await shards.claim(connection, shard, owner=owner, address="here:1", heartbeat_timeout=30.0)
    assert lease is not None
    return lease


async def states(database: Database) -> list[int]:
    async with database.reading() as connection:
        return [state.shard for state in await shards.list_states(connection)]


async def test_the_first_number_is_added_once(database: Database) -> None:
    async with database.transaction() as connection:
        first = await numbers.find_first(connection)
        await numbers.add_first(connection, SECOND)
        assert await numbers.list_numbers(connection) == [first]
    assert first is not None
    assert (first.number, first.state, first.first_shard) == (FIRST, "active", 0)


async def test_a_further_number_has_its_own_shards(database: Database) -> None:
    second = await add(database)
    async with database.reading() as connection:
        assert (await changes.list_versions(connection))["numbers"] == 1
    assert second.number == SECOND
    assert await states(database) == [0, 1, 32, 33]
    lease = await claim(database, 33)
    assert (lease.block, lease.partition, lease.shards, lease.is_first) == (1, 1, 2, False)
    assert (await claim(database, 32)).is_first


async def test_a_number_is_added_only_once(database: Database) -> None:
    await add(database)
    for number in (FIRST, SECOND):
        with pytest.raises(numbers.NumberExists):
            await add(database, number)
    assert await states(database) == [0, 1, 32, 33]


async def test_an_installation_has_at_most_100_numbers(database: Database) -> None:
    async with database.transaction() as connection:
        for place in range(1, 100):
            await numbers.add(connection, str(15550000000 + place))
    with pytest.raises(numbers.TooManyNumbers):
        await add(database, "15550000100")
    async with database.reading() as connection:
        assert [each.shard_block for each in await numbers.list_numbers(connection)] == list(range(100))


async def test_the_installation_is_named_by_its_first_number_only(database: Database) -> None:
    await add(database)
    await accounts.require_number(database, FIRST)
    with pytest.raises(SettingsError, match="is a further number of this installation: it names the first one, 15550"):
        await accounts.require_number(database, SECOND)
    with pytest.raises(SettingsError, match="this database is that of 15550000000"):
        await accounts.require_number(database, "15551111111")


async def test_users_of_two_numbers_may_have_the_same_name(database: Database) -> None:
    second = await add(database)
    login = users.login_name(second, "admin")
    assert login == "admin@15550000001"
    async with database.transaction() as connection:
        for user in (
            User("admin", FIRST, users.ADMIN, "$argon2id$one", False, 1),
            User(login, SECOND, users.ADMIN, "$argon2id$two", False, 1, name="admin"),
        ):
            assert await users.add_user(connection, user)
        assert [user.shown_name for user in await users.list_users(connection, SECOND)] == ["admin"]
        assert [user.username for user in await users.list_users(connection, FIRST)] == ["admin"]


async def test_a_change_of_the_shards_of_one_number_leaves_the_others_alone(database: Database) -> None:
    await add(database)
    kept, given_up = await claim(database, 0), await claim(database, 32)
    async with database.transaction() as connection:
        before = await layouts.request(connection, 4, 1)
        await shards.release(connection, given_up)
        lease = await layout_changes.begin(connection, owner="one", heartbeat_timeout=30.0, block=1)
    assert lease is not None
    assert (lease.shard, lease.shards) == (32, 2)
    async with database.transaction() as connection:
        assert await layout_changes.finish(connection, lease, before) is not None
    assert await states(database) == [0, 1, 32, 33, 34, 35]
    async with database.transaction() as connection:
        await shards.fence(connection, kept)
        assert (await layouts.find(connection)).shards == 2
        assert (await layouts.list_layouts(connection))[1].shards == 4
    with pytest.raises(LeaseLost):
        async with database.transaction() as connection:
            await shards.fence(connection, given_up)


async def test_registering_a_number_again_expels_only_owners_of_its_own_shards(database: Database) -> None:
    await add(database)
    of_first, own, other = await claim(database, 1), await claim(database, 32), await claim(database, 33)
    async with database.transaction() as connection:
        await shards.fence(connection, own)
        await shards.expel_others(connection, own)
    async with database.transaction() as connection:
        await shards.fence(connection, of_first)
    with pytest.raises(LeaseLost):
        async with database.transaction() as connection:
            await shards.fence(connection, other)


async def pending_job(database: Database) -> None:
    async with database.transaction() as connection:
        statement = "INSERT INTO jobs (id, shard, account, peer, state, kind, body, created_at) VALUES "
        await connection.execute(sa.text(f"{statement} ('m1', 33, '{SECOND}', '15557654321', 0, 'text', x'00', 1)"))


async def test_a_number_with_pending_jobs_is_removed_only_with_drop(database: Database) -> None:
    second = await add(database)
    lease = await claim(database, 33)
    await pending_job(database)
    async with database.transaction() as connection:
        assert await number_removal.begin(connection, second, drop=False) == PendingRows(1, 0)
    assert await states(database) == [0, 1, 32, 33]
    async with database.transaction() as connection:
        assert await number_removal.begin(connection, second, drop=True) == PendingRows(1, 0)
        assert [each.number for each in await numbers.list_served(connection)] == [FIRST]
    assert await states(database) == [0, 1]
    with pytest.raises(LeaseLost):
        async with database.transaction() as connection:
            await shards.fence(connection, lease)


async def test_a_removed_number_leaves_no_row_and_the_first_number_keeps_its_own(database: Database) -> None:
    second = await add(database)
    await pending_job(database)
    async with database.transaction() as connection:
        for number in (FIRST, SECOND):
            await profiles.set_about(connection, number, "we sell")
        for account, name in ((FIRST, "admin"), (SECOND, f"admin@{SECOND}")):
            await users.add_user(connection, User(name, account, users.ADMIN, "$argon2id$", False, 1, name="admin"))
        for place in range(1001):
            row = f"('m{place:04}', '{SECOND}', 32, '15557654321', 'text', 1, 1, 'r')"
            columns = "id, account, shard, peer, kind, status, created_at, request_id"
            await connection.execute(sa.text(f"INSERT INTO messages ({columns}) VALUES {row}"))
        await number_removal.begin(connection, second, drop=True)
    for table in number_removal.list_tables():
        after = None
        while True:
            async with database.transaction() as connection:
                after = await number_removal.delete_page(connection, SECOND, table, after)
            if after is None:
                break
    async with database.transaction() as connection:
        await numbers.delete(connection, SECOND)
    async with database.reading() as connection:
        for table in number_removal.list_tables():
            column = next(table.c[name] for name in ("account", "number", "owner") if name in table.c)
            count = sa.select(sa.func.count()).select_from(table).where(column == SECOND)
            assert (await connection.execute(count)).scalar_one() == 0, table.name
        assert await profiles.find_about(connection, FIRST) == "we sell"
        assert [user.username for user in await users.list_users(connection, FIRST)] == ["admin"]
        assert await messages.count_by_kind(connection) == {}


async def test_a_block_that_is_used_again_has_higher_epochs_than_before(database: Database) -> None:
    second = await add(database)
    before = await claim(database, 32)
    async with database.transaction() as connection:
        await number_removal.begin(connection, second, drop=False)
        await numbers.delete(connection, SECOND)
    await add(database, "15550000002")
    after = await claim(database, 32, "two")
    assert after.epoch > before.epoch > 1_700_000_000_000_000
    with pytest.raises(LeaseLost):
        async with database.transaction() as connection:
            await shards.fence(connection, before)


def test_the_removal_covers_every_table_with_rows_of_a_number() -> None:
    for module in pkgutil.iter_modules(tidings.storage.business.__path__):
        importlib.import_module(f"tidings.storage.business.{module.name}")
    tables = tidings.storage.business.tables.metadata.tables.values()
    of_numbers = {table.name for table in tables if {"account", "owner"} & set(table.c.keys())}
    covered = {table.name for table in number_removal.list_tables()}
    # The audit is kept for a year, whatever becomes of the number.
    assert of_numbers | {"accounts"} == covered | {"shards", "shard_leases", "audit_entries"}


async def test_numbers_of_one_waba_name_its_owner(database: Database) -> None:
    third, fourth = "15550000002", "15550000003"
    await add(database)
    async with database.transaction() as connection:
        assert (await numbers.add(connection, third, waba_of=SECOND)).waba_of == SECOND
        # The WABA of a number that shares one is that one.
        assert (await numbers.add(connection, fourth, waba_of=third)).waba_of == SECOND
        for number, owner in ((FIRST, FIRST), (SECOND, SECOND), (third, SECOND), (fourth, SECOND), ("1", "1")):
            assert await numbers.find_waba_owner(connection, number) == owner
        assert [each.number for each in await numbers.list_of_waba(connection, SECOND)] == [third, fourth]
        assert not await numbers.list_of_waba(connection, FIRST)


@pytest.mark.parametrize("is_removing", [False, True])
async def test_the_waba_of_an_unknown_or_removed_number_is_refused(database: Database, is_removing: bool) -> None:
    if is_removing:
        row = await add(database)
        async with database.transaction() as connection:
            await number_removal.begin(connection, row, drop=False)
    with pytest.raises(numbers.NoSuchWaba):
        async with database.transaction() as connection:
            await numbers.add(connection, "15550000002", waba_of=SECOND)
