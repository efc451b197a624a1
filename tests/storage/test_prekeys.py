"""One-time pre-keys, on both databases."""

from __future__ import annotations

import asyncio

from tests.conftest import DatabaseFactory
from tidings.storage import outages
from tidings.storage.network import prekeys
from tidings.storage.network.prekeys import KyberPreKeyRow, PreKeyCounts, PreKeyRow

ALICE, BOB, CAROL = "15550000001", "15550000002", "15550000003"


def keys(number: str, *ids: int) -> list[PreKeyRow]:
    return [PreKeyRow(number, id, bytes([5]) + id.to_bytes(32, "big")) for id in ids]


def kyber_keys(number: str, *ids: int) -> list[KyberPreKeyRow]:
    return [KyberPreKeyRow(number, id, bytes([8]) + id.to_bytes(1568, "big"), bytes([id % 256]) * 64) for id in ids]


async def test_taking_deletes_one_prekey_per_number(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.put(connection, [])
        await prekeys.put(connection, keys(ALICE, 3, 7, 2**32 - 1) + keys(BOB, 3))
        await prekeys.put_kyber(connection, kyber_keys(ALICE, 1))
    async with database.transaction() as connection:
        taken = await prekeys.take_one_each(connection, [ALICE, BOB, CAROL, ALICE])
        assert taken == ({ALICE: keys(ALICE, 3)[0], BOB: keys(BOB, 3)[0]}, {ALICE: kyber_keys(ALICE, 1)[0]})
    async with database.transaction() as connection:
        assert await prekeys.take_one_each(connection, [ALICE, BOB]) == ({ALICE: keys(ALICE, 7)[0]}, {})
        assert await prekeys.take_one_each(connection, []) == ({}, {})
        assert await prekeys.count_left(connection, [ALICE, BOB]) == {
            ALICE: PreKeyCounts(1, 0),
            BOB: PreKeyCounts(0, 0),
        }


async def test_a_failed_transaction_takes_no_prekey(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.put(connection, keys(ALICE, 1))

    class Trouble(Exception):
        pass

    try:
        async with database.transaction() as connection:
            await prekeys.take_one_each(connection, [ALICE])
            raise Trouble
    except Trouble:
        pass
    async with database.transaction() as connection:
        assert await prekeys.take_one_each(connection, [ALICE]) == ({ALICE: keys(ALICE, 1)[0]}, {})


async def test_concurrent_transactions_never_take_the_same_prekey(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    numbers = [f"1555000{i:04}" for i in range(20)]
    async with database.transaction() as connection:
        await prekeys.put(connection, [key for number in numbers for key in keys(number, *range(1, 11))])
        await prekeys.put_kyber(connection, [key for number in numbers for key in kyber_keys(number, *range(1, 11))])

    async def take() -> tuple[dict[str, PreKeyRow], dict[str, KyberPreKeyRow]]:
        while True:
            try:
                async with database.transaction() as connection:
                    return await prekeys.take_one_each(connection, numbers)
            except prekeys.AlreadyTaken:
                continue
            except Exception as error:
                if not outages.is_outage(error):
                    raise

    responses = await asyncio.gather(*(take() for _ in range(8)))
    for kind in (0, 1):
        taken = [key for response in responses for key in response[kind].values()]
        assert len(taken) == 8 * 20
        assert len({(key.number, key.key_id) for key in taken}) == 8 * 20


async def test_adding_existing_prekeys_changes_nothing(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.put(connection, keys(ALICE, 1, 2))
        await prekeys.put(connection, [PreKeyRow(ALICE, 2, bytes(33)), *keys(ALICE, 3)])
        await prekeys.put_kyber(connection, kyber_keys(ALICE, 1) * 2)
        assert await prekeys.count_left(connection, [ALICE]) == {ALICE: PreKeyCounts(3, 1)}
        taken = [await prekeys.take_one_each(connection, [ALICE]) for _ in range(3)]
    assert [ordinary[ALICE] for ordinary, _ in taken] == keys(ALICE, 1, 2, 3)


async def test_dropping_prekeys_leaves_other_numbers_unchanged(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.put(connection, keys(ALICE, 1) + keys(BOB, 1))
        await prekeys.put_kyber(connection, kyber_keys(ALICE, 1) + kyber_keys(BOB, 1))
        await prekeys.drop(connection, [ALICE])
        await prekeys.drop(connection, [])
        left = await prekeys.count_left(connection, [ALICE, BOB])
    assert left == {ALICE: PreKeyCounts(0, 0), BOB: PreKeyCounts(1, 1)}


async def test_fetchers_are_recorded_once_and_taken_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.remember_fetchers(connection, [])
        await prekeys.remember_fetchers(connection, [(ALICE, BOB), (ALICE, CAROL), (ALICE, BOB), (BOB, CAROL)])
        await prekeys.remember_fetchers(connection, [(ALICE, BOB)])
        assert sorted(await prekeys.take_fetchers(connection, [ALICE])) == [(ALICE, BOB), (ALICE, CAROL)]
        assert await prekeys.take_fetchers(connection, [ALICE]) == []
        assert await prekeys.take_fetchers(connection, []) == []
        assert await prekeys.take_fetchers(connection, [BOB, ALICE]) == [(BOB, CAROL)]


async def test_taking_fetchers_respects_the_limit(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await prekeys.remember_fetchers(connection, [(ALICE, f"1555{n:07}") for n in range(25)])
        taken = [await prekeys.take_fetchers(connection, [ALICE, BOB], limit=10) for _ in range(4)]
    assert [len(pairs) for pairs in taken] == [10, 10, 5, 0]
    assert len({pair for pairs in taken for pair in pairs}) == 25
