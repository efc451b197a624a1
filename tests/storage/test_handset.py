"""Tables of recipients, on both kinds of database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage.handset import devices, inbox, outbox, prekeys, sessions

ADA, BOB, BUSINESS = "15550110001", "15550110002", "15550000000"


def device(number: str, *, fleet: str = "robots", token: bytes | None = b"token") -> devices.DeviceRow:
    return devices.DeviceRow(number, fleet, 7, b"identity", token, 3)


def message(position: int, message_id: str, *, number: str = ADA, time: int = 1000) -> inbox.InboxRow:
    return inbox.InboxRow("robots", position, number, BUSINESS, message_id, inbox.TEXT, time, "text \U0001f44b\0")


def envelope(position: int, *, refs: tuple[str, ...] = ("m1", "m2"), body: bytes = b"\0\xff") -> outbox.OutboxRow:
    return outbox.OutboxRow("robots", position, ADA, BUSINESS, f"e{position}", "delivered", 5, body, refs)


async def test_a_saved_device_keeps_its_identity_and_fleet(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    async with database.transaction() as connection:
        await devices.save(connection, [device(BOB, token=None), device(ADA), device("1555", fleet="other")])
    changed = devices.DeviceRow(BOB, "elsewhere", 9, b"another", b"new token", 12, BUSINESS)
    async with database.transaction() as connection:
        await devices.save(connection, [changed])
    async with database.reading() as connection:
        assert await devices.list_devices(connection, "robots") == [
            device(ADA),
            devices.DeviceRow(BOB, "robots", 7, b"identity", b"new token", 12, BUSINESS),
        ]
        assert await devices.find(connection, "1555") == device("1555", fleet="other")
        assert await devices.find(connection, "1") is None


async def test_prekeys_are_found_and_deleted_by_number_and_id(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [
        prekeys.HandsetPreKeyRow(number, key_id, prekeys.ONE_TIME, f"{number} {key_id}".encode())
        for number in (ADA, BOB)
        for key_id in (1, 2)
    ]
    async with database.transaction() as connection:
        await prekeys.add(connection, rows)
        found = await prekeys.list_prekeys(connection, [(ADA, 1), (BOB, 2), (BOB, 3)])
        assert sorted((row.number, row.key_id, row.sealed) for row in found) == [
            (ADA, 1, f"{ADA} 1".encode()),
            (BOB, 2, f"{BOB} 2".encode()),
        ]
        await prekeys.delete(connection, [(ADA, 1), (BOB, 2)])
        left = await prekeys.list_prekeys(connection, [(number, key_id) for number in (ADA, BOB) for key_id in (1, 2)])
    assert sorted((row.number, row.key_id) for row in left) == [(ADA, 2), (BOB, 1)]


async def test_sessions_are_overwritten_and_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    async with database.transaction() as connection:
        await sessions.save(
            connection, [sessions.SessionRow(n, BUSINESS, b"sending", b"receiving") for n in (ADA, BOB)]
        )
        await sessions.save(connection, [sessions.SessionRow(ADA, BUSINESS, b"sending 2", b"receiving 2")])
    async with database.transaction() as connection:
        found = await sessions.list_sessions(connection, [(ADA, BUSINESS), (BOB, BUSINESS), (ADA, BOB)])
        assert {(s.number, s.sending, s.receiving) for s in found} == {
            (ADA, b"sending 2", b"receiving 2"),
            (BOB, b"sending", b"receiving"),
        }
        await sessions.delete(connection, [(ADA, BUSINESS)])
        left = await sessions.list_sessions(connection, [(ADA, BUSINESS), (BOB, BUSINESS)])
        assert [s.number for s in left] == [BOB]


async def test_a_message_is_stored_once_per_number_and_peer(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [message(1, "a"), message(2, "b"), message(3, "a", number=BOB)]
    async with database.transaction() as connection:
        await inbox.add(connection, rows)
    with pytest.raises(sa.exc.IntegrityError):
        async with database.transaction() as connection:
            await inbox.add(connection, [message(4, "a")])
    async with database.reading() as connection:
        assert await inbox.list_known(connection, ["a", "A", "c"]) == {(ADA, BUSINESS, "a"), (BOB, BUSINESS, "a")}
        assert await inbox.list_messages(connection, "robots", 1, 10) == rows[1:]
        assert await inbox.list_messages(connection, "robots", 0, 1) == rows[:1]
        assert [key[2] for key in await inbox.list_recent(connection, "robots", 2)] == ["a", "b"]


async def test_only_old_messages_that_were_shown_are_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    async with database.transaction() as connection:
        await inbox.add(
            connection, [message(1, "old", time=1), message(2, "new", time=50), message(3, "old, not shown", time=1)]
        )
        assert await inbox.delete_before(connection, "robots", 10, 2) == 1
        left = await inbox.list_messages(connection, "robots", 0, 10)
    assert [m.id for m in left] == ["new", "old, not shown"]


async def test_envelopes_are_listed_unchanged_in_order_until_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [envelope(1), envelope(2, refs=()), envelope(10, body=b"")]
    async with database.transaction() as connection:
        await outbox.add(connection, list(reversed(rows)))
    async with database.transaction() as connection:
        assert await outbox.list_envelopes(connection, "robots") == rows
        assert await outbox.list_envelopes(connection, "others") == []
        await outbox.delete(connection, "robots", [1, 10, 11])
        assert await outbox.list_envelopes(connection, "robots") == rows[1:2]


async def test_positions_continue_from_the_stored_rows(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    async with database.transaction() as connection:
        assert await inbox.find(connection, "robots") == (0, 0, 0)
        await inbox.add(connection, [message(5, "a"), message(6, "b")])
        await outbox.add(connection, [envelope(9)])
        await inbox.save_shown(connection, "robots", 5)
        await inbox.save_shown(connection, "robots", 6)
        assert await inbox.find(connection, "robots") == (6, 9, 6)
        assert await inbox.find(connection, "others") == (0, 0, 0)
