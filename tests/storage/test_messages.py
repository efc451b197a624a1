"""Messages and their statuses."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import messages
from tidings.storage.business.messages import MessageRow, Progress, Status

ME = "15550000000"


def message(id: str, status: Status = Status.ACCEPTED) -> MessageRow:
    return MessageRow(id, ME, 0, "15550110001", "text", status, 1_700_000_000_000, "r" * 32)


async def test_a_status_only_advances(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message("a"), message("b"), message("c")])
        await messages.advance(connection, {"a": Status.READ, "b": Status.SENT, "c": Status.FAILED})
        await messages.advance(
            connection, {"a": Status.SENT, "b": Status.DELIVERED, "c": Status.READ, "x": Status.READ}
        )
        await messages.advance(connection, {})
        found = await messages.list_progress(connection, ME, ["a", "b", "c", "x"])
    assert {row.id: row.status for row in found} == {"a": Status.READ, "b": Status.DELIVERED, "c": Status.FAILED}
    assert found[0] == Progress(found[0].id, "15550110001", found[0].status, found[0].kind, found[0].request_id)


async def test_adding_an_existing_message_changes_nothing(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message("a", Status.READ)])
        await messages.add(connection, [message("a"), message("A"), message("b")])
        assert await messages.count_by_status(connection) == {Status.READ: 1, Status.ACCEPTED: 2}
        assert await messages.list_progress(connection, "other", ["a"]) == []


async def test_tens_of_thousands_of_messages_are_added_and_advanced_at_once(database_factory: DatabaseFactory) -> None:
    """More than the maximum number of parameters of one statement on SQLite."""
    database = await database_factory("business")
    ids = [f"m{n}" for n in range(33_000)]
    async with database.transaction() as connection:
        await messages.add(connection, [message(id) for id in ids])
        await messages.advance(connection, dict.fromkeys(ids, Status.SENT))
        assert await messages.count_by_status(connection) == {Status.SENT: 33_000}
        assert len(await messages.list_progress(connection, ME, ids)) == 33_000


async def test_a_message_marked_as_read_expires_like_a_received_one(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    old = [message("a", Status.RECEIVED), message("b", Status.MARKED_READ), message("c", Status.SENT)]
    async with database.transaction() as connection:
        await messages.add(connection, old)
        expired = await messages.find_expired(
            connection, after="", final_before=0, settled_before=1_700_000_000_001, limit=10
        )
        assert expired == messages.ExpiredPage(["a", "b"], None)
        await messages.delete(connection, expired.ids)
        assert await messages.count_by_status(connection) == {Status.SENT: 1}


async def test_a_page_of_messages_ends_after_its_limit_whether_or_not_they_are_expired(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    rows = [message("a", Status.SENT), message("b", Status.READ), message("c", Status.READ)]
    async with database.transaction() as connection:
        await messages.add(connection, rows)

    async def find(after: str) -> messages.ExpiredPage:
        async with database.reading() as connection:
            return await messages.find_expired(
                connection, after=after, final_before=1_700_000_000_001, settled_before=0, limit=2
            )

    assert await find("") == messages.ExpiredPage(["b"], "b")
    assert await find("b") == messages.ExpiredPage(["c"], None)
    assert await find("c") == messages.ExpiredPage([], None)


async def test_a_message_is_found_by_its_number_and_id(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message("a"), message("b", Status.RECEIVED)])
        for message_id in ("a", "b"):
            found = await messages.find(connection, ME, message_id)
            assert found == messages.FoundMessage("15550110001", "text", 1_700_000_000_000)
        assert await messages.find(connection, ME, "A") is None
        assert await messages.find(connection, "15550000001", "a") is None
