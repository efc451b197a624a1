"""Contact cache on disk."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import contacts
from tidings.storage.business.contacts import EarliestChecks, StoredContact

ME = "15550000000"


async def test_the_latest_check_counts_and_expired_checks_are_ignored(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await contacts.save(connection, [StoredContact(ME, "1", True, 100), StoredContact(ME, "2", False, 200)])
        await contacts.save(connection, [StoredContact(ME, "1", False, 300), StoredContact("other", "3", True, 300)])
        await contacts.save(connection, [])
    async with database.reading() as connection:
        found = await contacts.list_checked(connection, ME, ["1", "2", "3"], since=EarliestChecks(301, 200))
        assert sorted(found, key=lambda c: c.wa_id) == [
            StoredContact(ME, "1", False, 300),
            StoredContact(ME, "2", False, 200),
        ]
        assert await contacts.list_checked(connection, ME, ["2"], since=EarliestChecks(0, 201)) == []
        assert await contacts.list_checked(connection, ME, [], since=EarliestChecks(0, 0)) == []
        other = await contacts.list_checked(connection, "other", ["3"], since=EarliestChecks(300, 301))
        assert other == [StoredContact("other", "3", True, 300)]
        assert await contacts.list_checked(connection, "other", ["3"], since=EarliestChecks(301, 0)) == []


async def test_thousands_of_contacts_are_saved_listed_and_cleared_at_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    numbers = [f"{n}" for n in range(2500)]
    ever = EarliestChecks(0, 0)
    async with database.transaction() as connection:
        await contacts.save(connection, [StoredContact(ME, number, True, 1) for number in numbers])
        await contacts.save(connection, [StoredContact("other", "1", True, 1)])
        assert len(await contacts.list_checked(connection, ME, numbers, since=ever)) == 2500
        await contacts.clear(connection, ME)
        assert await contacts.list_checked(connection, ME, numbers, since=ever) == []
        assert len(await contacts.list_checked(connection, "other", ["1"], since=ever)) == 1


async def test_pages_list_each_recently_checked_contact_once_in_order(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await contacts.save(connection, [StoredContact(ME, f"{n}", n % 2 == 0, 100 + n) for n in range(1, 9)])
        await contacts.save(connection, [StoredContact("other", "11", True, 300)])
    found, after = [], ""
    async with database.reading() as connection:
        while page := await contacts.list_page(connection, ME, after=after, since=EarliestChecks(104, 105), limit=2):
            assert len(page) <= 2
            found += [contact.wa_id for contact in page]
            after = found[-1]
    assert found == ["4", "5", "6", "7", "8"]
