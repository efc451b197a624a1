"""Contents kept for resending, and messages that are awaited, on both kinds of database."""

from __future__ import annotations

import dataclasses

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import messages, undecrypted
from tidings.storage.business.messages import KeptMessage, MessageRow, Status
from tidings.storage.business.undecrypted import UndecryptedMessage
from tidings.storage.database import Database
from tidings.storage.handset import sent as handset_sent
from tidings.storage.handset.sent import SentRow

ME, ADA, BOB = "15550000000", "15550110001", "15550110002"
BLOB = bytes(range(256)) * 128  # the maximum length of a kept content
MANY = 33_000  # more than the parameters of one statement


# Messages that recipients request.


def message(id: str, kept: bytes | None = BLOB, *, status: Status = Status.ACCEPTED, shard: int = 0) -> MessageRow:
    return MessageRow(id, ME, shard, ADA, "text", status, 1_700_000_000_000, "r" * 32, kept=kept)


async def kept_of(database: Database, *ids: str, account: str = ME) -> dict[str, bytes]:
    async with database.reading() as connection:
        found = await messages.list_kept(connection, account, ids)
    assert all(row == KeptMessage(row.id, ADA, row.kept, "r" * 32) for row in found)
    return {row.id: row.kept for row in found}


async def test_a_content_is_kept_byte_for_byte_for_its_account_only(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message("a"), message("b", None), message("c", b"")])
        # The row is added again, as after a kill: the existing one stays.
        await messages.add(connection, [message("a", b"other")])
    assert await kept_of(database, "a", "A", "b", "c", "x") == {"a": BLOB, "c": b""}
    assert await kept_of(database, "a", account="other") == {}
    assert await kept_of(database) == {}


@pytest.mark.parametrize("end", [Status.DELIVERED, Status.READ, Status.FAILED])
async def test_a_final_status_deletes_the_content_and_keeps_none_afterwards(
    database_factory: DatabaseFactory, end: Status
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message("a"), message("b"), message("c")])
        await messages.advance(connection, {"a": Status.SENT, "b": end})
        await messages.keep(connection, {"a": b"once more", "b": b"too late", "x": b"nobody's"})
        await messages.keep(connection, {})
    assert await kept_of(database, "a", "b", "c", "x") == {"a": b"once more", "c": BLOB}


async def test_expired_contents_are_deleted_one_page_at_a_time(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    ids = [f"m{n:02}" for n in range(10)]
    async with database.transaction() as connection:
        await messages.add(connection, [message(id, shard=n % 2) for n, id in enumerate(ids)])
    after: str | None = "m01"
    looked: list[str | None] = []
    while after is not None:
        async with database.transaction() as connection:
            after = await messages.delete_kept(connection, after=after, before="m08", limit=3)
        looked.append(after)
    assert looked == ["m04", "m07", None]
    left = await kept_of(database, *ids)
    assert sorted(left) == [id for id in ids if id not in ("m02", "m03", "m04", "m05", "m06", "m07")]


async def test_tens_of_thousands_of_contents_are_kept_and_found_at_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    ids = [f"m{n}" for n in range(MANY)]
    async with database.transaction() as connection:
        await messages.add(connection, [message(id, b"k") for id in ids])
    assert len(await kept_of(database, *ids)) == MANY


# Messages that recipients are requested to resend.


def lost(id: str, due: int, *, shard: int = 0) -> UndecryptedMessage:
    return UndecryptedMessage(id, shard, ME, ADA, 1_700_000_000_123, due, "trace")


async def test_awaited_messages_are_listed_by_due_time(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [lost("late", 9), lost("b", 5), lost("B", 5), lost("other", 1, shard=1)]
    async with database.transaction() as connection:
        await undecrypted.add(connection, rows)
        # The message was delivered twice: its deadline stays that of the first delivery.
        await undecrypted.add(connection, [lost("late", 1)])
        await undecrypted.add(connection, [])
    async with database.reading() as connection:
        assert await undecrypted.list_all(connection, 0) == [rows[2], rows[1], rows[0]]
        assert await undecrypted.list_all(connection, 1) == [rows[3]]
        assert await undecrypted.list_all(connection, 2) == []


async def test_received_or_abandoned_messages_are_no_longer_awaited(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    ids = [f"m{n}" for n in range(MANY)]
    async with database.transaction() as connection:
        await undecrypted.add(connection, [lost(id, 1) for id in [*ids, "stays"]])
        await undecrypted.delete(connection, [*ids, "unknown"])
        await undecrypted.delete(connection, [])
    async with database.reading() as connection:
        assert await undecrypted.list_all(connection, 0) == [lost("stays", 1)]


# Messages that handsets have sent.


def sent(position: int, *, fleet: str = "robots", number: str = ADA, id: str = "", at: int = 1_000) -> SentRow:
    return SentRow(fleet, position, number, BOB, id or f"m{position}", BLOB, b"\0\xff" * 4, at)


async def list_sent(database: Database, *ids: str, number: str = ADA) -> list[SentRow]:
    async with database.reading() as connection:
        return await handset_sent.list_sent(connection, number, ids)


async def test_sent_messages_of_a_handset_are_found_by_number_and_id_in_order(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("handset")
    rows = [sent(2**40), sent(7), sent(8, number=BOB, id="m7"), sent(7, fleet="other", number="1555", id="m7")]
    async with database.transaction() as connection:
        await handset_sent.add(connection, rows)
        await handset_sent.add(connection, [])
    assert await list_sent(database, f"m{2**40}", "m7", "M7", "x") == [rows[1], rows[0]]
    assert await list_sent(database, "m7", number=BOB) == [rows[2]]
    assert await list_sent(database) == []


async def test_resends_are_recorded_and_those_awaiting_a_session_are_listed_by_fleet(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("handset")
    rows = [sent(n) for n in (1, 2, 3)] + [sent(2, fleet="other", id="theirs")]
    again = dataclasses.replace(rows[0], session=b"12345678", attempts=2, asked_by="e" * 64)
    waiting = dataclasses.replace(rows[1], asked_by="e2", waits=True)
    async with database.transaction() as connection:
        await handset_sent.add(connection, rows)
        await handset_sent.save(connection, [again, waiting])
        await handset_sent.save(connection, [])
    assert await list_sent(database, "m1", "m2", "m3") == [again, waiting, rows[2]]
    assert await list_sent(database, "theirs") == [rows[3]]
    async with database.reading() as connection:
        assert await handset_sent.list_waiting(connection, "robots") == [waiting]
        assert await handset_sent.list_waiting(connection, "other") == []


async def test_old_or_excess_sent_messages_are_deleted_per_fleet(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    rows = [sent(n, at=at) for n, at in ((1, 900), (2, 100), (3, 900), (4, 900))]
    theirs = sent(1, fleet="other", id="theirs", at=0)
    async with database.transaction() as connection:
        await handset_sent.add(connection, [*rows, theirs])
        await handset_sent.delete_old(connection, "robots", before=500, position=1)
    everything = ("m1", "m2", "m3", "m4", "theirs")
    assert await list_sent(database, *everything) == [theirs, *rows[2:]]
    async with database.transaction() as connection:
        await handset_sent.delete_below(connection, "robots", 3)
    assert await list_sent(database, *everything) == [theirs, rows[3]]
