"""Identities of recipients and their acknowledgement, on both databases."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.business import identities
from tidings.storage.business.identities import StoredIdentity

ME, OTHER = "15550000000", "15550000001"


def identity(peer: str, mark: int = 1, *, account: str = ME, acknowledged: bool = True) -> StoredIdentity:
    return StoredIdentity(account, peer, bytes([mark]) * 8, 1_700_000_000_000 + mark, acknowledged)


async def test_a_later_identity_replaces_the_earlier_one(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await identities.save(connection, [])
        await identities.save(connection, [identity("1"), identity("2"), identity("1", account=OTHER)])
    async with database.transaction() as connection:
        await identities.save(connection, [identity("1", 200, acknowledged=False)])
    async with database.reading() as connection:
        found = await identities.list_identities(connection, ME, ["1", "2", "3"])
        others = await identities.list_identities(connection, OTHER, ["1"])
    assert sorted(found, key=lambda row: row.peer) == [identity("1", 200, acknowledged=False), identity("2")]
    assert others == [identity("1", account=OTHER)]


async def test_only_the_current_hash_can_be_acknowledged(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second = identity("1", 1, acknowledged=False), identity("2", 2, acknowledged=False)
    async with database.transaction() as connection:
        await identities.save(connection, [first, second, identity("1", account=OTHER, acknowledged=False)])
        await identities.acknowledge(connection, ME, [])
        await identities.acknowledge(connection, ME, [("1", first.hash), ("2", first.hash), ("3", first.hash)])
    async with database.reading() as connection:
        left = await identities.list_unacknowledged(connection, ME, after="", limit=10)
        found = await identities.list_identities(connection, ME, ["1"])
    assert left == [second]
    assert found == [dataclasses.replace(first, acknowledged=True)]


async def test_thousands_of_unacknowledged_identities_are_acknowledged_at_once(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    waiting = [identity(f"1555{n:07}", acknowledged=False) for n in range(2500)]
    async with database.transaction() as connection:
        await identities.save(connection, [*waiting, identity("9"), identity("1", account=OTHER, acknowledged=False)])
    pages, after = [], ""
    async with database.reading() as connection:
        while page := await identities.list_unacknowledged(connection, ME, after=after, limit=1000):
            pages.append(page)
            after = page[-1].peer
        assert len(await identities.list_identities(connection, ME, [row.peer for row in waiting])) == 2500
    assert [len(page) for page in pages] == [1000, 1000, 500]
    assert [row for page in pages for row in page] == waiting
    async with database.transaction() as connection:
        await identities.acknowledge_all(connection, ME)
    async with database.reading() as connection:
        assert await identities.list_unacknowledged(connection, ME, after="", limit=10) == []
        assert len(await identities.list_unacknowledged(connection, OTHER, after="", limit=10)) == 1
