"""Directory of devices, on both databases."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.network import directory
from tidings.storage.network.directory import RegisteredDevice

ALICE, BOB, CAROL = "15550000001", "15550000002", "15550000003"


def registration(number: str, mark: int = 1, *, kyber: bool = True) -> RegisteredDevice:
    return RegisteredDevice(
        number=number,
        registration_id=2**32 - 1,
        identity_key=bytes([5]) + bytes([mark]) * 32,
        signed_prekey_id=mark,
        signed_prekey=bytes([5]) + bytes(32),
        signed_prekey_signature=bytes([255]) * 64,
        kyber_prekey_id=mark if kyber else None,
        kyber_prekey=bytes([8]) + bytes([mark]) * 1568 if kyber else None,
        kyber_prekey_signature=bytes(64) if kyber else None,
        token_hash=bytes([mark]) * 32,
        registered_at=1_700_000_000_000,
    )


async def test_registering_again_replaces_the_whole_device(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await directory.register(connection, [])
        await directory.register(connection, [registration(ALICE, 1), registration(BOB, 2, kyber=False)])
    async with database.transaction() as connection:
        await directory.register(connection, [registration(ALICE, 3, kyber=False), registration(CAROL, 4)])
    async with database.reading() as connection:
        found = await directory.list_registrations(connection, [ALICE, BOB, CAROL, "15559999999"])
        credentials = await directory.list_credentials(connection, [ALICE, "15559999999"])
    assert found == {
        ALICE: registration(ALICE, 3, kyber=False),
        BOB: registration(BOB, 2, kyber=False),
        CAROL: registration(CAROL, 4),
    }
    assert credentials == {ALICE: (bytes([3]) * 32, registration(ALICE, 3).identity_key)}


async def test_thousands_of_numbers_are_looked_up_at_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    numbers = [f"1555{i:07}" for i in range(3500)]
    registered = numbers[::7]
    async with database.transaction() as connection:
        await directory.register(connection, [registration(number, kyber=False) for number in registered])
    async with database.reading() as connection:
        assert await directory.list_registered(connection, numbers) == set(registered)
        assert await directory.list_registered(connection, []) == set()
        assert set(await directory.list_credentials(connection, numbers)) == set(registered)


async def test_lasting_keys_are_replaced_individually(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    before = registration(ALICE)
    async with database.transaction() as connection:
        await directory.register(connection, [before, registration(BOB)])
        await directory.rotate_signed_prekey(connection, ALICE, 9, bytes(33), bytes(64))
        await directory.rotate_kyber_prekey(connection, ALICE, 10, bytes(1569), bytes(64))
    async with database.reading() as connection:
        found = await directory.list_registrations(connection, [ALICE, BOB])
    assert found[BOB] == registration(BOB)
    assert found[ALICE] == dataclasses.replace(
        before,
        signed_prekey_id=9,
        signed_prekey=bytes(33),
        signed_prekey_signature=bytes(64),
        kyber_prekey_id=10,
        kyber_prekey=bytes(1569),
        kyber_prekey_signature=bytes(64),
    )


async def test_unregistering_deletes_the_device_and_its_own_blocks(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await directory.register(connection, [registration(ALICE), registration(BOB)])
        await directory.block(connection, ALICE, BOB)
        await directory.block(connection, BOB, ALICE)
        token_hash = registration(ALICE).token_hash
        assert await directory.unregister(connection, ALICE, token_hash)
        assert not await directory.unregister(connection, ALICE, token_hash)
        assert await directory.list_registered(connection, [ALICE, BOB]) == {BOB}
        assert await directory.list_blocks(connection, [ALICE, BOB]) == {BOB: {ALICE}}


async def test_unregistering_with_a_former_token_changes_nothing(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    former = registration(ALICE, 1).token_hash
    async with database.transaction() as connection:
        await directory.register(connection, [registration(ALICE, 1)])
        assert await directory.find_former_token(connection, ALICE) is None
        assert await directory.unregister(connection, ALICE, former)
        assert await directory.find_former_token(connection, ALICE) == former
        await directory.take_former_identities(connection, [ALICE])
        await directory.register(connection, [registration(ALICE, 2)])
        await directory.block(connection, ALICE, BOB)
        assert not await directory.unregister(connection, ALICE, former)
        assert await directory.list_blocks(connection, [ALICE]) == {ALICE: {BOB}}
        assert await directory.find_former_token(connection, ALICE) is None


async def test_blocks_are_set_once_and_removed(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        for other in (BOB, BOB, CAROL):
            await directory.block(connection, ALICE, other)
        assert await directory.count_blocks(connection, ALICE) == 2
        await directory.unblock(connection, ALICE, BOB)
        await directory.unblock(connection, ALICE, BOB)
        assert await directory.list_blocks(connection, [ALICE, BOB]) == {ALICE: {CAROL}}
