"""Sender keys that a participant has been given, as a message store records them."""

from __future__ import annotations

import uuid

import pytest

from handset.receiving.sender_keys import SenderKeyStore
from tests.conftest import DatabaseFactory
from tests.handset.harness import SEALER
from tests.handset.people import ADA, BOB, CID
from tidings import e2ee
from tidings.storage.database import Connection, Database
from tidings.wire import content
from tidings.wire import device as wire
from tidings.wire.groups import DescribedGroup, GroupNotice, Participant

GROUP = DescribedGroup(
    "15550000001-5", "Lunch", ADA, 5, 3, participants=[Participant(n, n == ADA) for n in (ADA, BOB, CID)]
)
HELLO = b'{"type":"null"}'


def change(what: str, *numbers: str, epoch: int = 4) -> GroupNotice:
    return GroupNotice(what, numbers[0], numbers, "Lunch", epoch)


def chain_of(body: bytes) -> int:
    return e2ee.GroupMessage.parse(body).chain_id


async def give_to_all(keys: SenderKeyStore, connection: Connection, group: DescribedGroup = GROUP) -> bytes:
    """Return the distribution message for all participants that lacked it, and mark it as given."""
    preparation = await keys.prepare_distribution(connection, ADA, group)
    await keys.mark_distributed(connection, ADA, group.id, group.epoch, preparation)
    return preparation.distribution


async def encrypted(keys: SenderKeyStore, connection: Connection) -> tuple[int, bytes]:
    sealed = await keys.encrypt(connection, ADA, GROUP.id, HELLO)
    assert sealed is not None
    return sealed


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("handset")


async def test_encryption_waits_until_all_members_have_the_key(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        assert await keys.encrypt(connection, ADA, GROUP.id, HELLO) is None
        preparation = await keys.prepare_distribution(connection, ADA, GROUP)
        assert preparation.missing == {BOB, CID}
        assert await keys.encrypt(connection, ADA, GROUP.id, HELLO) is None
        await keys.mark_distributed(connection, ADA, GROUP.id, GROUP.epoch, preparation)
        epoch, _ = await encrypted(keys, connection)
        assert epoch == GROUP.epoch
        assert (await keys.prepare_distribution(connection, ADA, GROUP)).missing == frozenset()
        await keys.save(connection)


@pytest.mark.parametrize("what", ["left", "removed"])
async def test_the_old_key_encrypts_nothing_once_a_member_has_left(database: Database, what: str) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        await give_to_all(keys, connection)
        old = chain_of((await encrypted(keys, connection))[1])
        await keys.save(connection)
    left = DescribedGroup(GROUP.id, "Lunch", ADA, 5, 4, participants=[p for p in GROUP.participants if p.number != CID])
    async with database.transaction() as connection:
        await keys.apply_change(connection, ADA, GROUP.id, change(what, CID))
        assert await keys.encrypt(connection, ADA, GROUP.id, HELLO) is None
        preparation = await keys.prepare_distribution(connection, ADA, left)
        assert preparation.missing == {BOB}
        await keys.mark_distributed(connection, ADA, GROUP.id, left.epoch, preparation)
        epoch, body = await encrypted(keys, connection)
        assert (epoch, chain_of(body) != old) == (4, True)
        await keys.save(connection)
    # The same holds after a restart.
    again = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        assert chain_of((await encrypted(again, connection))[1]) == chain_of(body)


async def test_the_distribution_id_is_a_uuid_4_and_keys_with_older_ids_are_replaced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        with monkeypatch.context() as before:
            before.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=b"0123456789abcdef"))
            await give_to_all(keys, connection)
        await keys.save(connection)
    again = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        assert await again.encrypt(connection, ADA, GROUP.id, HELLO) is None
        preparation = await again.prepare_distribution(connection, ADA, GROUP)
        assert preparation.missing == {BOB, CID}
        made = uuid.UUID(bytes=e2ee.DistributionMessage.parse(preparation.distribution).distribution_id)
        assert (made.version, made.variant) == (4, uuid.RFC_4122)
        await again.mark_distributed(connection, ADA, GROUP.id, GROUP.epoch, preparation)
        await encrypted(again, connection)


async def test_a_holder_missing_in_the_networks_group_description_forces_a_new_key(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        before = e2ee.DistributionMessage.parse(await give_to_all(keys, connection))
        left = DescribedGroup(GROUP.id, "Lunch", ADA, 5, 4, participants=GROUP.participants[:2])
        preparation = await keys.prepare_distribution(connection, ADA, left)
        after = e2ee.DistributionMessage.parse(preparation.distribution)
        assert preparation.missing == {BOB}
        assert (after.distribution_id, after.chain_id != before.chain_id) == (before.distribution_id, True)


async def test_a_distribution_made_while_the_group_changed_does_not_count(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        preparation = await keys.prepare_distribution(connection, ADA, GROUP)
        await keys.apply_change(connection, ADA, GROUP.id, change("left", CID))
        await keys.mark_distributed(connection, ADA, GROUP.id, GROUP.epoch, preparation)
        assert await keys.encrypt(connection, ADA, GROUP.id, HELLO) is None


@pytest.mark.parametrize("what", ["somebody joined", "the phone was switched off"])
async def test_a_former_member_who_may_hold_an_uncounted_key_forces_a_new_one(database: Database, what: str) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        # The key may have been sent to all participants, Cid included.
        preparation = await keys.prepare_distribution(connection, ADA, GROUP)
        await keys.save(connection)
    before = e2ee.DistributionMessage.parse(preparation.distribution)
    again = keys if what == "somebody joined" else SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        if what == "somebody joined":
            await again.apply_change(connection, ADA, GROUP.id, change("joined", "15550100009"))
            await again.mark_distributed(connection, ADA, GROUP.id, GROUP.epoch, preparation)
        # Cid was removed since then, as only the network's description of the group shows.
        left = DescribedGroup(GROUP.id, "Lunch", ADA, 5, 5, participants=GROUP.participants[:2])
        later = await again.prepare_distribution(connection, ADA, left)
        assert later.missing == {BOB}
        assert e2ee.DistributionMessage.parse(later.distribution).chain_id != before.chain_id
        await again.mark_distributed(connection, ADA, GROUP.id, left.epoch, later)
        assert (await encrypted(again, connection))[0] == left.epoch


async def test_a_new_member_is_given_the_key_at_its_current_iteration(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    pair = DescribedGroup(GROUP.id, "Lunch", ADA, 5, 3, participants=GROUP.participants[:2])
    whole = DescribedGroup(GROUP.id, "Lunch", ADA, 5, 4, participants=GROUP.participants)
    async with database.transaction() as connection:
        first = e2ee.DistributionMessage.parse(await give_to_all(keys, connection, pair))
        await encrypted(keys, connection)
        for _ in range(2):
            await keys.apply_change(connection, ADA, GROUP.id, change("joined", CID))
        preparation = await keys.prepare_distribution(connection, ADA, whole)
        assert preparation.missing == {CID}
        given = e2ee.DistributionMessage.parse(preparation.distribution)
        assert (given.chain_id, given.iteration) == (first.chain_id, 1)


async def test_a_member_with_a_new_identity_receives_the_key_again(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        await give_to_all(keys, connection)
        await keys.new_identity(connection, ADA, BOB)
        assert await keys.encrypt(connection, ADA, GROUP.id, HELLO) is None
        assert (await keys.prepare_distribution(connection, ADA, GROUP)).missing == {BOB}


async def test_a_message_is_read_once_with_the_distributed_key(database: Database) -> None:
    ada, bob = SenderKeyStore(SEALER), SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        distribution = await give_to_all(ada, connection)
        _, body = await encrypted(ada, connection)
        frame = wire.Deliver(1, BOB, ADA, "m1", wire.GROUP, 1, body, group=GROUP.id)
        await bob.load(connection, [(BOB, GROUP.id, ADA)])
        with pytest.raises(e2ee.NoSession):
            bob.read(BOB, frame)
        await bob.accept(connection, BOB, ADA, content.SenderKey(GROUP.id, distribution))
        assert bob.read(BOB, frame) == HELLO
        await bob.save(connection)
    again = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        await again.load(connection, [(BOB, GROUP.id, ADA)])
        with pytest.raises(e2ee.DuplicateMessage):
            again.read(BOB, frame)
        # It decrypts no other sender's message.
        with pytest.raises(e2ee.NoSession):
            again.read(BOB, wire.Deliver(1, BOB, CID, "m1", wire.GROUP, 1, body, group=GROUP.id))


async def test_leaving_a_group_deletes_its_keys(database: Database) -> None:
    keys = SenderKeyStore(SEALER)
    async with database.transaction() as connection:
        await give_to_all(keys, connection)
        await encrypted(keys, connection)
        await keys.apply_change(connection, ADA, GROUP.id, change("removed", ADA))
        assert await keys.distribution(connection, ADA, GROUP.id) is None
        await keys.save(connection)
    async with database.transaction() as connection:
        assert await SenderKeyStore(SEALER).distribution(connection, ADA, GROUP.id) is None
