"""Sealed sessions: saved whole, updated by their sending half, deleted."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.e2ee import record
from tidings.storage.business import sessions
from tidings.storage.business.sessions import SealedSendingHalf, SealedSession

ME = "15550000000"


async def test_saving_a_sending_half_keeps_the_rest_of_the_session(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    blob = bytes(range(256)) * 20
    async with database.transaction() as connection:
        await sessions.save(connection, [SealedSession(ME, "1", b"s1", blob), SealedSession(ME, "2", b"s2", b"r2")])
        await sessions.save_sending(connection, [SealedSendingHalf(ME, "1", b"new"), SealedSendingHalf(ME, "2", blob)])
    async with database.reading() as connection:
        found = await sessions.list_sessions(connection, ME, ["1", "2", "3"])
    assert sorted(found, key=lambda s: s.peer) == [
        SealedSession(ME, "1", b"new", blob),
        SealedSession(ME, "2", blob, b"r2"),
    ]


async def test_a_saved_session_overwrites_and_a_deleted_one_is_gone(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    peers = [f"{n}" for n in range(1500)]
    async with database.transaction() as connection:
        await sessions.save(connection, [SealedSession(ME, peer, b"s", b"r") for peer in peers])
        await sessions.save(connection, [SealedSession(ME, "7", b"s7", b"r7"), SealedSession("other", "7", b"o", b"o")])
        assert await sessions.list_sessions(connection, ME, ["7"]) == [SealedSession(ME, "7", b"s7", b"r7")]
        await sessions.delete(connection, ME, peers[:1400])
        assert len(await sessions.list_sessions(connection, ME, peers)) == 100
        await sessions.clear(connection, ME)
        assert await sessions.list_sessions(connection, ME, peers) == []
        assert len(await sessions.list_sessions(connection, "other", ["7"])) == 1
        for nothing in (sessions.save, sessions.save_sending):
            await nothing(connection, [])


async def test_many_sessions_of_maximum_size_fit_into_one_commit(database_factory: DatabaseFactory) -> None:
    """More of them than a server accepts in one statement (16 MiB)."""
    database = await database_factory("business")
    rows = [SealedSession(ME, f"{n}", b"s" * 200, bytes([n]) * (record.MAX_LENGTH + 100)) for n in range(40)]
    async with database.transaction() as connection:
        await sessions.save(connection, rows)
    async with database.reading() as connection:
        found = await sessions.list_sessions(connection, ME, [row.peer for row in rows])
    assert sorted(found, key=lambda s: int(s.peer)) == rows
