"""The contact cache on disk."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import contacts
from tidings.storage.business.contacts import Contact

ME = "15550000000"


async def test_the_latest_check_counts_and_old_ones_are_left_out(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await contacts.save(connection, [Contact(ME, "1", True, 100), Contact(ME, "2", False, 200)])
        await contacts.save(connection, [Contact(ME, "1", False, 300), Contact("other", "3", True, 300)])
        await contacts.save(connection, [])
    async with database.reading() as connection:
        found = await contacts.list_checked(connection, ME, ["1", "2", "3"], valid_since=301, invalid_since=200)
        assert sorted(found, key=lambda c: c.wa_id) == [Contact(ME, "1", False, 300), Contact(ME, "2", False, 200)]
        assert await contacts.list_checked(connection, ME, ["2"], valid_since=0, invalid_since=201) == []
        assert await contacts.list_checked(connection, ME, [], valid_since=0, invalid_since=0) == []
        other = await contacts.list_checked(connection, "other", ["3"], valid_since=300, invalid_since=301)
        assert other == [Contact("other", "3", True, 300)]
        assert await contacts.list_checked(connection, "other", ["3"], valid_since=301, invalid_since=0) == []


async def test_thousands_at_once_and_forgetting_them(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    numbers = [f"{n}" for n in range(2500)]
    ever = {"valid_since": 0, "invalid_since": 0}
    async with database.transaction() as connection:
        await contacts.save(connection, [Contact(ME, number, True, 1) for number in numbers])
        await contacts.save(connection, [Contact("other", "1", True, 1)])
        assert len(await contacts.list_checked(connection, ME, numbers, **ever)) == 2500
        await contacts.clear(connection, ME)
        assert await contacts.list_checked(connection, ME, numbers, **ever) == []
        assert len(await contacts.list_checked(connection, "other", ["1"], **ever)) == 1
