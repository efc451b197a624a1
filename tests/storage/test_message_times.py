"""Times at which a message reached each status, and the codes of failures."""

from __future__ import annotations

import sqlalchemy as sa

from tests import statements
from tests.conftest import DatabaseFactory
from tests.storage.history_rows import ANN, BEN, NOW, an_id, message, timeline
from tidings.storage.business import group_messages, messages
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Status


async def test_each_step_of_a_message_has_its_time(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        await messages.note_encrypted(connection, [name], NOW + 10)
        for status in (Status.SENT, Status.DELIVERED, Status.READ):
            await messages.advance(connection, {name: status}, NOW + 100 * status)
        # A repeated commit changes nothing.
        await messages.note_encrypted(connection, [name], NOW + 999)
        await messages.advance(connection, {name: Status.READ}, NOW + 999)
        found = (await timeline(connection, name)).message
    assert (found.stored_at, found.encrypted_at) == (NOW + 5, NOW + 10)
    assert (found.sent_at, found.delivered_at, found.read_at) == (NOW + 200, NOW + 300, NOW + 400)
    assert (found.status, found.failed_at, found.failure) == (Status.READ, None, None)


async def test_skipped_steps_get_the_time_of_the_later_one(database_factory: DatabaseFactory) -> None:
    database, first, second = await database_factory("business"), an_id(NOW, "1"), an_id(NOW, "2")
    async with database.transaction() as connection:
        await messages.add(connection, [message(first), message(second)])
        await messages.advance(connection, {first: Status.SENT}, NOW + 1)
        await messages.advance(connection, {first: Status.READ, second: Status.DELIVERED}, NOW + 2)
        read, delivered = [(await timeline(connection, name)).message for name in (first, second)]
    assert (read.sent_at, read.delivered_at, read.read_at) == (NOW + 1, NOW + 2, NOW + 2)
    assert (delivered.sent_at, delivered.delivered_at, delivered.read_at) == (NOW + 2, NOW + 2, None)


async def test_a_failed_message_has_the_time_and_the_code(database_factory: DatabaseFactory) -> None:
    database, sent, refused = await database_factory("business"), an_id(NOW, "1"), an_id(NOW, "2")
    async with database.transaction() as connection:
        await messages.add(connection, [message(sent), message(refused, status=Status.FAILED)])
        await messages.advance(connection, {sent: Status.FAILED}, NOW + 7)
        for at in (NOW + 7, NOW + 8):
            await messages.note_failures(connection, {sent: 410, refused: 1013, "unknown": 500}, at)
        found = [(await timeline(connection, name)).message for name in (sent, refused)]
    assert [(row.status, row.failed_at, row.failure) for row in found] == [
        (Status.FAILED, NOW + 7, 410),
        (Status.FAILED, NOW + 7, 1013),
    ]


async def test_a_new_message_has_room_for_its_times(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    columns = messages.table.c
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        query = sa.select(columns.sent_at, columns.delivered_at, columns.read_at, columns.failed_at)
        stored = (await connection.execute(query)).one()
        shown = (await timeline(connection, name)).message
    assert tuple(stored) == ((None,) * 4 if database.engine.dialect.name == "sqlite" else (0, 0, 0, None))
    assert (shown.sent_at, shown.delivered_at, shown.read_at, shown.failed_at) == (None, None, None, None)


async def test_a_message_that_did_not_fail_gets_no_code(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name, status=Status.READ)])
        await messages.note_failures(connection, {name: 500}, NOW)
        assert (await timeline(connection, name)).message.failure is None


async def test_without_history_the_statements_are_those_of_before(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        with statements.recorded("UPDATE messages") as noted:
            for status in (Status.SENT, Status.DELIVERED, Status.READ):
                await messages.advance(connection, {name: status})
            found = (await timeline(connection, name)).message
    assert sum(statement.count("UPDATE messages") for statement in noted) == 3
    assert not any(time in statement for statement in noted for time in ("sent_at", "delivered_at", "read_at"))
    assert (found.status, found.sent_at, found.delivered_at, found.read_at) == (Status.READ, None, None, None)


async def test_the_times_of_each_participant_of_a_group_are_kept(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name, "group")])
        await group_messages.save_receipts(connection, [GroupReceipt(name, ANN, 3, NOW + 1)])
        await group_messages.save_receipts(
            connection, [GroupReceipt(name, ANN, 4, NOW + 2, NOW + 2), GroupReceipt(name, BEN, 3)]
        )
        found = await timeline(connection, name)
    assert found.participants == [GroupReceipt(name, ANN, 4, NOW + 1, NOW + 2), GroupReceipt(name, BEN, 3)]
