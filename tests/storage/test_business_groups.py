"""Groups of the business: replicas, sender keys, receipts and unread messages."""

from __future__ import annotations

import dataclasses

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import group_changes, group_messages, groups, messages, sender_keys
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.group_messages import GroupReceipt, UnreadGroupMessage
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.sender_keys import GIVEN, LACKS, KeyHolder, OwnKey, PeerKey
from tidings.storage.database import Database

ME, ANN, BEN = "15550000000", "15550110001", "15550110002"
LUNCH = "15550000000-1700000000"
OTHER = "155500000001234-1700000000001"


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    return await database_factory("business")


def group(group_id: str = LUNCH, **more: object) -> StoredGroup:
    made = StoredGroup(ME, group_id, "Lunch 🥪", ME, 1_700_000_000, 3, ((ME, True), (ANN, False)))
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


async def write(database: Database, *changes: GroupChanges) -> None:
    async with database.transaction() as connection:
        await group_changes.execute(connection, changes)
        # A repetition after an unknown outcome changes nothing.
        await group_changes.execute(connection, changes)


async def test_a_group_is_stored_with_ordered_participants_and_overwritten(database: Database) -> None:
    await write(database, GroupChanges(ME, groups=[group(), group(OTHER, is_member=False)]))
    later = group(epoch=4, participants=((ANN, True), (ME, False), (BEN, False)), has_icon=True)
    await write(database, GroupChanges(ME, groups=[later]))
    async with database.reading() as connection:
        assert await groups.list_groups(connection, ME) == [later, group(OTHER, is_member=False)]
        assert await groups.list_groups(connection, ANN) == []


async def test_the_last_change_in_a_batch_wins_and_a_new_own_key_has_no_old_holders(database: Database) -> None:
    await write(
        database,
        GroupChanges(
            ME,
            own_keys=[OwnKey(ME, LUNCH, 3, b"old"), OwnKey(ME, OTHER, 1, b"other")],
            holders=[
                KeyHolder(ME, LUNCH, ANN, GIVEN),
                KeyHolder(ME, LUNCH, BEN, "job-0"),
                KeyHolder(ME, OTHER, ANN, GIVEN),
            ],
        ),
    )
    await write(
        database,
        GroupChanges(ME, holders=[KeyHolder(ME, LUNCH, BEN, GIVEN)]),
        GroupChanges(
            ME,
            own_keys=[OwnKey(ME, LUNCH, 4, b"new")],
            cleared_holders=[LUNCH],
            holders=[KeyHolder(ME, LUNCH, ANN, "job-1")],
        ),
        GroupChanges(ME, own_keys=[OwnKey(ME, LUNCH, 4, b"newer")], holders=[KeyHolder(ME, OTHER, ANN, LACKS)]),
    )
    async with database.reading() as connection:
        own = await sender_keys.list_own(connection, ME, [LUNCH, OTHER, "nothing"])
        held = await sender_keys.list_holders(connection, ME, [LUNCH, OTHER])
        under_way = await sender_keys.list_under_way(connection, ME)
    assert {key.group_id: key.record for key in own} == {LUNCH: b"newer", OTHER: b"other"}
    assert set(held) == {KeyHolder(ME, LUNCH, ANN, "job-1"), KeyHolder(ME, OTHER, ANN, LACKS)}
    assert under_way == [KeyHolder(ME, LUNCH, ANN, "job-1")]


async def test_peer_keys_are_found_by_sender_and_deleted_with_their_membership(database: Database) -> None:
    keys = [PeerKey(ME, ANN, LUNCH, b"1"), PeerKey(ME, ANN, OTHER, b"2"), PeerKey(ME, BEN, LUNCH, b"3")]
    await write(database, GroupChanges(ME, peer_keys=keys))
    await write(
        database,
        GroupChanges(ME, dropped_peer_keys=[(LUNCH, ANN), (LUNCH, BEN)]),
        GroupChanges(ME, peer_keys=[PeerKey(ME, BEN, LUNCH, b"4")]),
    )
    async with database.reading() as connection:
        found = await sender_keys.list_peers(connection, ME, [ANN, BEN, ME])
    assert set(found) == {PeerKey(ME, ANN, OTHER, b"2"), PeerKey(ME, BEN, LUNCH, b"4")}
    async with database.transaction() as connection:
        await sender_keys.clear(connection, ME)
        assert await sender_keys.list_peers(connection, ME, [ANN, BEN]) == []


async def test_group_receipts_only_advance_and_expire_with_their_message(database: Database) -> None:
    old = MessageRow("m1", ME, 0, LUNCH, "text", Status.READ, 1, "")
    async with database.transaction() as connection:
        await messages.add(connection, [old, dataclasses.replace(old, id="m2", created_at=10)])
    await write(
        database,
        GroupChanges(ME, receipts=[GroupReceipt("m1", ANN, 4), GroupReceipt("m2", ANN, 3)]),
        GroupChanges(ME, receipts=[GroupReceipt("m1", ANN, 3), GroupReceipt("m2", BEN, 3)]),
    )
    async with database.reading() as connection:
        found = await group_messages.list_receipts(connection, ["m1", "m2"], [ANN])
    assert set(found) == {GroupReceipt("m1", ANN, 4), GroupReceipt("m2", ANN, 3)}
    async with database.transaction() as connection:
        expired = await messages.find_expired(connection, after="", final_before=5, settled_before=5, limit=10)
        await messages.delete(connection, expired.ids)
        left = await group_messages.list_receipts(connection, ["m1", "m2"], [ANN, BEN])
    assert set(left) == {GroupReceipt("m2", ANN, 3), GroupReceipt("m2", BEN, 3)}


async def test_unread_group_messages_up_to_a_message_are_listed(database: Database) -> None:
    def one(n: int, author: str = ANN, group_id: str = LUNCH) -> UnreadGroupMessage:
        return UnreadGroupMessage(f"in-{n}", ME, group_id, author, 1000 + n)

    rows = [one(1), one(2, BEN), one(3), one(4), one(5, ANN, OTHER)]
    await write(database, GroupChanges(ME, unread=rows), GroupChanges(ME, read_messages=["in-1"]))
    async with database.reading() as connection:
        found = await group_messages.list_unread(connection, ME, "in-3", limit=10)
        assert found == [one(3), one(2, BEN)]
        assert await group_messages.list_unread(connection, ME, "in-3", limit=1) == [one(3)]
        assert await group_messages.list_unread(connection, ME, "in-1", limit=10) == ()
    async with database.transaction() as connection:
        assert await group_messages.delete_unread_before(connection, ME, 1004, 1) == 1
        assert await group_messages.delete_unread_before(connection, ME, 1004, 5) == 1
        assert await group_messages.list_unread(connection, ME, "in-4", limit=10) == [one(4)]


async def test_a_message_may_be_addressed_to_a_group(database: Database) -> None:
    async with database.transaction() as connection:
        await messages.add(connection, [MessageRow("m1", ME, 0, OTHER, "text", Status.ACCEPTED, 1, "")])
        (found,) = await messages.list_progress(connection, ME, ["m1"])
    assert found.peer == OTHER
