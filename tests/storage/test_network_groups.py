"""Groups in the network's tables, on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.network import groups
from tidings.storage.network.groups import Chat, Member

ALICE, BOB = "15550000001", "15550000002"
LUNCH = Chat("15550000001-5", ALICE, "Lunch «ü» 🍲", 5000, 1, "code-1", "")
DINNER = Chat("15550000001-6", ALICE, "Dinner", 6000, 1, "code-2", "")


async def test_a_group_is_found_by_id_code_and_member(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        for chat in (DINNER, LUNCH):
            await groups.add(connection, chat)
        await groups.put_members(connection, LUNCH.id, [Member(BOB, False, 2), Member(ALICE, True, 1)])
        await groups.put_members(connection, DINNER.id, [Member(ALICE, True, 1)])
    async with database.transaction() as connection:
        assert await groups.list_chats(connection, [LUNCH.id, DINNER.id, "no-1"], lock=True) == {
            LUNCH.id: LUNCH,
            DINNER.id: DINNER,
        }
        assert await groups.list_chats(connection, []) == {}
        assert await groups.find_id(connection, "code-2") == DINNER.id
        assert await groups.find_id(connection, "CODE-2") is None
        assert await groups.list_taken_ids(connection, [LUNCH.id, "15550000001-7"]) == {LUNCH.id}
        assert await groups.list_members(connection, [LUNCH.id, "no-1"]) == {
            LUNCH.id: [Member(ALICE, True, 1), Member(BOB, False, 2)],
            "no-1": [],
        }
        assert [chat.id for chat in await groups.list_of(connection, ALICE, limit=5)] == [LUNCH.id, DINNER.id]
        assert [chat.id for chat in await groups.list_of(connection, ALICE, limit=1)] == [LUNCH.id]
        assert (await groups.count_of(connection, ALICE), await groups.count_of(connection, BOB)) == (2, 1)
    with pytest.raises(sa.exc.IntegrityError):
        async with database.transaction() as connection:
            await groups.add(connection, Chat("15550000001-7", ALICE, "Same code", 1, 1, "code-1", ""))


async def test_a_group_change_affects_only_its_group_and_fields(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        for chat in (LUNCH, DINNER):
            await groups.add(connection, chat)
            await groups.put_members(connection, chat.id, [Member(ALICE, True, 1), Member(BOB, False, 2)])
        await groups.set_subject(connection, LUNCH.id, "Breakfast")
        await groups.set_code(connection, LUNCH.id, "code-3")
        await groups.set_epoch(connection, LUNCH.id, 9)
        await groups.put_members(connection, LUNCH.id, [Member(BOB, True, 2)])
        await groups.set_icon(connection, LUNCH.id, "image/png", b"\x89PNG \x00\xff")
        await groups.remove_members(connection, LUNCH.id, [ALICE])
    async with database.transaction() as connection:
        found = await groups.list_chats(connection, [LUNCH.id, DINNER.id])
        assert found[LUNCH.id] == Chat(LUNCH.id, ALICE, "Breakfast", 5000, 9, "code-3", "image/png")
        assert found[DINNER.id] == DINNER
        members = await groups.list_members(connection, [LUNCH.id, DINNER.id])
        assert (members[LUNCH.id], len(members[DINNER.id])) == ([Member(BOB, True, 2)], 2)
        assert await groups.find_icon(connection, LUNCH.id) == b"\x89PNG \x00\xff"
        assert await groups.find_icon(connection, DINNER.id) is None
        await groups.set_icon(connection, LUNCH.id, "", b"")
        assert await groups.find_icon(connection, LUNCH.id) is None


async def test_an_accepted_message_is_known_by_sender_and_id_until_it_expires(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await groups.add_sends(connection, [(ALICE, "m1"), (BOB, "m2")], 1000)
        await groups.add_sends(connection, [(ALICE, "m1"), (ALICE, "m3")], 2000)
        await groups.add_sends(connection, [], 2000)
    async with database.transaction() as connection:
        requested = [(ALICE, "m1"), (ALICE, "m2"), (BOB, "m2"), (ALICE, "M1")]
        assert await groups.list_sends(connection, requested) == {(ALICE, "m1"), (BOB, "m2")}
        assert await groups.drop_sends(connection, 2000) == 2
        assert await groups.list_sends(connection, [*requested, (ALICE, "m3")]) == {(ALICE, "m3")}
