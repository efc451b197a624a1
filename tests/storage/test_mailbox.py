"""Mailbox, on both databases."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.network import mailbox
from tidings.storage.network.mailbox import Envelope

ALICE, BOB, CAROL = "15550000001", "15550000002", "15550000003"
NOW = 1_700_000_000_000


def envelope(seq: int, recipient: str = BOB, *, id: str = "", ttl: int = 1000, body: bytes = b"\x00\xff") -> Envelope:
    return Envelope(
        seq=seq,
        recipient=recipient,
        sender=ALICE,
        id=id or f"m{seq}",
        kind="message",
        timestamp=NOW,
        expires_at=NOW + ttl,
        body=body,
        refs=["a", "«ü» \\ \" '"],
    )


async def test_envelopes_are_listed_in_order_and_in_pages(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    big = 2**52
    rows = [envelope(big + i, body=bytes([i]) * i * 1000) for i in range(10)]
    async with database.transaction() as connection:
        await mailbox.insert(connection, [])
        await mailbox.insert(connection, [*reversed(rows), envelope(5, CAROL)])
    async with database.reading() as connection:
        first = await mailbox.list_page(connection, BOB, after=0, now=NOW, limit=4)
        rest = await mailbox.list_page(connection, BOB, after=first[-1].seq, now=NOW, limit=100)
        assert [*first, *rest] == rows
        assert await mailbox.list_page(connection, ALICE, after=0, now=NOW, limit=100) == []
        assert await mailbox.last_seq(connection) == big + 9
        assert await mailbox.list_recipients(connection, [ALICE, BOB, CAROL]) == {BOB, CAROL}
        assert await mailbox.list_recipients(connection, []) == set()
        assert await mailbox.list_filled(connection, 3) == {BOB, CAROL}
        assert len(await mailbox.list_filled(connection, 1)) == 1


async def test_an_envelope_inserted_repeatedly_is_stored_once(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await mailbox.insert(connection, [envelope(1), envelope(2)])
        # The same batch again, as after a commit with an unknown outcome, and a repetition by the sender.
        await mailbox.insert(connection, [envelope(1), envelope(2), envelope(3, id="m1", body=b"later")])
        assert await mailbox.list_page(connection, BOB, after=0, now=NOW, limit=9) == [envelope(1), envelope(2)]
        await mailbox.delete(connection, [1, 2, 99])
        await mailbox.delete(connection, [1])
        assert await mailbox.last_seq(connection) == 0


async def test_thousands_of_envelopes_are_inserted_and_deleted_as_sets(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    async with database.transaction() as connection:
        await mailbox.insert(connection, [envelope(seq) for seq in range(1, 2501)])
        await mailbox.delete(connection, list(range(1, 2500)))
        page = await mailbox.list_page(connection, BOB, after=0, now=NOW, limit=9)
    assert page == [envelope(2500)]


async def test_expired_envelopes_are_listed_oldest_first_and_never_delivered(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    rows = [envelope(seq, ttl=ttl) for seq, ttl in ((1, 300), (2, 100), (3, 100), (4, 900), (5, 200))]
    async with database.transaction() as connection:
        await mailbox.insert(connection, rows)
        assert not await mailbox.has_expired(connection, NOW + 99)
        assert await mailbox.has_expired(connection, NOW + 100)
        first = await mailbox.list_expired(connection, now=NOW + 300, after=(0, 0), limit=2)
        last = first[-1]
        rest = await mailbox.list_expired(connection, now=NOW + 300, after=(last.expires_at, last.seq), limit=9)
        assert [row.seq for row in (*first, *rest)] == [2, 3, 5, 1]
        page = await mailbox.list_page(connection, BOB, after=0, now=NOW + 300, limit=9)
        assert page == [dataclasses.replace(rows[3])]


async def test_only_envelopes_of_the_given_hash_slots_are_listed_in_order_and_in_pages(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("network")
    rows = [dataclasses.replace(envelope(seq), slot=seq * 7 % 32) for seq in range(1, 200)]
    async with database.transaction() as connection:
        await mailbox.insert(connection, [*rows, dataclasses.replace(envelope(500, CAROL), slot=3)])
        for hash_slots in ([3], range(1, 32, 4), range(0, 32, 2), range(32)):
            wanted = [row for row in rows if row.slot in hash_slots]
            found: list[Envelope] = []
            while len(found) < len(wanted):
                after = found[-1].seq if found else 0
                page = await mailbox.list_page(connection, BOB, after=after, now=NOW, limit=10, hash_slots=hash_slots)
                assert len(page) == min(10, len(wanted) - len(found))
                found += page
            assert found == wanted
