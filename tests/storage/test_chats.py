"""Chats and preferences of pages' numbers, on both kinds of database."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.conftest import DatabaseFactory
from tidings.storage.handset import chats, devices, preferences, sent
from tidings.storage.handset.chats import ChatItemRow, ChatSummary, LastItem
from tidings.storage.handset.preferences import PreferencesRow

ADA, BOB, SHOP = "15550100001", "15550100002", "15550000000"


def item(position: int, **given: Any) -> ChatItemRow:
    known = {
        "number": ADA,
        "position": position,
        "chat": SHOP,
        "id": f"m{position}",
        "author": SHOP,
        "kind": "text",
        "at": 1000 + position,
        "content": "sealed \U0001f44b",
        "state": chats.UNREAD,
    }
    return ChatItemRow(**{**known, **given})


async def test_chats_are_listed_by_their_newest_item_with_their_unread_messages(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("handset")
    rows = [
        item(1),
        item(2, chat=BOB, author=BOB, state=chats.SEEN),
        item(3),
        item(4, kind="reaction", about="m1"),
        item(5, chat=BOB, author=ADA, state=chats.SENT, source=9),
        item(6, number=BOB),
    ]
    async with database.transaction() as connection:
        await chats.add(connection, rows)
    async with database.reading() as connection:
        found = await chats.list_chats(connection, ADA, 10)
        assert found == [ChatSummary(BOB, 0, rows[4]), ChatSummary(SHOP, 2, rows[3])]
        assert await chats.list_chats(connection, ADA, 1) == found[:1]
        assert await chats.list_all(connection, ADA) == [SHOP, BOB]
        assert await chats.list_page(connection, ADA, SHOP, before=0, limit=10) == [rows[0], rows[2]]
        assert await chats.list_page(connection, ADA, SHOP, before=3, limit=10) == [rows[0]]
        assert await chats.list_page(connection, ADA, SHOP, before=0, limit=1) == [rows[2]]
        assert await chats.list_about(connection, ADA, ["m1", "m3"]) == [rows[3]]
        assert await chats.list_by_id(connection, ADA, ["m5", "nothing"]) == [rows[4]]
        assert await chats.list_at(connection, ADA, [2, 7]) == [rows[1]]
        assert await chats.list_unread(connection, ADA, SHOP, limit=2) == [rows[0], rows[2]]
        assert await chats.list_unread(connection, ADA, SHOP, up_to=2, limit=2) == [rows[0]]
        assert await chats.find_last(connection, ADA) == LastItem(5, 0, 9)
        assert await chats.find_last(connection, "1555") == LastItem(0, 0, 0)


async def test_states_and_receipts_are_changed_by_position(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [item(1, author=ADA, state=chats.QUEUED), item(2, author=ADA, state=chats.QUEUED), item(1, number=BOB)]
    changed = dataclasses.replace(rows[0], state=chats.READ, receipts={"read": [BOB, "1555"]})
    async with database.transaction() as connection:
        await chats.add(connection, rows)
        await chats.save_states(connection, [changed])
        await chats.save_states(connection, [])
    async with database.reading() as connection:
        assert await chats.list_at(connection, ADA, [1, 2]) == [changed, rows[1]]
        assert await chats.list_at(connection, BOB, [1]) == [rows[2]]


async def test_old_items_are_deleted_by_age_and_number(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    async with database.transaction() as connection:
        await chats.add(connection, [*(item(n) for n in range(1, 7)), item(1, number=BOB)])
        assert await chats.delete_old(connection, ADA, before=1003, position=0) == 2
        assert await chats.delete_old(connection, ADA, before=0, position=4) == 2
    async with database.reading() as connection:
        assert [row.position for row in await chats.list_page(connection, ADA, SHOP, before=0, limit=9)] == [5, 6]
        assert len(await chats.list_page(connection, BOB, SHOP, before=0, limit=9)) == 1


async def test_preferences_are_saved_found_and_listed_by_number(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    ada = PreferencesRow(ADA, False, False, False, "Ada \U0001f44b", (BOB, SHOP))
    async with database.transaction() as connection:
        await preferences.save(connection, PreferencesRow(BOB))
        await preferences.save(connection, PreferencesRow(ADA))
        await preferences.save(connection, ada)
        await preferences.save(connection, PreferencesRow(SHOP))
    open_ones = [PreferencesRow(BOB, True, True, True, "", ()), PreferencesRow(SHOP)]
    async with database.reading() as connection:
        assert await preferences.find(connection, ADA) == ada
        assert await preferences.find(connection, "15550999999") is None
        assert await preferences.list_open(connection, 10) == sorted(open_ones, key=lambda row: row.number)
        assert len(await preferences.list_open(connection, 1)) == 1


async def test_sent_messages_of_one_number_are_listed_behind_a_position(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [sent.SentRow("f", n, ADA if n % 2 else BOB, SHOP, f"m{n}", b"x", b"s", 1) for n in range(1, 6)]
    async with database.transaction() as connection:
        await sent.add(connection, rows)
    async with database.reading() as connection:
        assert await sent.list_of_number(connection, "f", ADA, after=1, limit=9) == [rows[2], rows[4]]
        assert await sent.list_of_number(connection, "f", ADA, after=0, limit=1) == [rows[0]]
        assert await sent.list_of_number(connection, "g", ADA, after=0, limit=9) == []


async def test_devices_are_listed_by_the_start_of_their_fleet(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [
        devices.DeviceRow(BOB, "handset-2", 7, b"i", None, 3),
        devices.DeviceRow(ADA, "handset-1", 7, b"i", b"t", 3),
        devices.DeviceRow("1555", "robots", 7, b"i", b"t", 3),
    ]
    async with database.transaction() as connection:
        await devices.save(connection, rows)
    async with database.reading() as connection:
        assert await devices.list_fleets(connection, "handset-", 10) == [rows[1], rows[0]]
        assert await devices.list_fleets(connection, "handset-", 1) == [rows[1]]
        assert await devices.list_fleets(connection, "h_ndset-", 10) == []
