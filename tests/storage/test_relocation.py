"""Rows of one number of shards in their places under another number."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings.storage import business
from tidings.storage.business import (
    callbacks,
    cross_shard_messages,
    jobs,
    media_downloads,
    messages,
    relocation,
    undecrypted,
)
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.media_downloads import Download
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.tables import metadata
from tidings.storage.business.undecrypted import UndecryptedMessage
from tidings.storage.database import Connection, Database

ACCOUNT, GROUP = "15550000000", "15550000000-1767225600"
PEERS = [f"1555012{n:04}" for n in range(50)]
NOW = 1_700_000_000_000


def place(about: str) -> int:
    """Return the shard as the product does, but readable: by the last digit."""
    return int(about[-1]) % 4 if about.isdigit() else 0


def message(id: str, peer: str) -> MessageRow:
    return MessageRow(id, ACCOUNT, 0, peer, "text", Status.ACCEPTED, NOW, "")


def callback(seq: int, subject: str) -> Callback:
    return Callback(seq, 0, ACCOUNT, subject, "status_change", b"{}", NOW)


async def fill(connection: Connection) -> None:
    await messages.add(connection, [message(f"m{peer}", peer) for peer in PEERS])
    await messages.add(connection, [message("of-group", GROUP)])
    await jobs.enqueue(
        connection, [Job(f"j{peer}", 0, ACCOUNT, peer, JobForm.NEW, "", b"content", NOW) for peer in (*PEERS, GROUP)]
    )
    # Three of each message, between those of others; some about unknown subjects; one about a number itself.
    subjects = [*(f"m{peer}" for _ in range(3) for peer in PEERS), "of-group", "services:media", PEERS[3]]
    written = [callback(seq, subject) for seq, subject in enumerate(subjects)]
    await callbacks.enqueue(connection, written, [b"sealed"] * len(written))
    await callbacks.mark_dead(connection, written[:10], [b"sealed"] * 10)
    await media_downloads.enqueue(
        connection,
        [Download(f"d{peer}", 0, ACCOUNT, peer, "", b"", NOW, NOW) for peer in PEERS]
        + [Download("d-of-group", 0, ACCOUNT, PEERS[1], GROUP, b"", NOW, NOW)],
    )
    await cross_shard_messages.add(
        connection,
        [
            CrossShardMessage(f"{kind}{peer}", 0, ACCOUNT, kind, peer, GROUP, b"sealed", NOW)
            for kind in (cross_shard_messages.SEND, "key")
            for peer in PEERS
        ],
    )
    await undecrypted.add(connection, [UndecryptedMessage(f"u{peer}", 0, ACCOUNT, peer, NOW, NOW) for peer in PEERS])


async def move_all(database: Database) -> int:
    moved = 0
    for kind in relocation.KINDS:
        after = None
        while True:
            async with database.transaction() as connection:
                page = await relocation.move_page(connection, kind, place, after=after)
            moved += page.rows
            after = page.last
            if after is None:
                break
    return moved


@pytest.mark.parametrize("page", [1000, 7])
async def test_every_row_moves_to_the_shard_of_its_recipient_otherwise_unchanged(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(relocation, "PAGE", page)
    database = await database_factory("business")
    async with database.transaction() as connection:
        await fill(connection)
        before = {table.name: (await connection.execute(sa.select(table))).all() for table in TABLES}
    moved = await move_all(database)
    async with database.reading() as connection:
        found = []
        for shard in range(4):
            found += [(shard, job.peer) for job in await jobs.list_jobs(connection, shard)]
            pending = await callbacks.list_pending(connection, shard, after=-1, limit=1000)
            assert [entry.seq for entry in pending] == sorted(entry.seq for entry in pending)
            for entry in pending:
                about = PEERS[3] if entry.subject == PEERS[3] else entry.subject.removeprefix("m")
                assert place(about) == shard, entry.subject
            found += [
                (shard, download.group_id or download.sender)
                for download in await media_downloads.list_downloads(connection, shard, limit=1000)
            ]
            for note in await cross_shard_messages.list_messages(connection, shard, limit=1000):
                assert shard == (place(note.peer) if note.kind == cross_shard_messages.SEND else 0)
            found += [(shard, entry.sender) for entry in await undecrypted.list_all(connection, shard)]
        assert [shard for shard, _ in found] == [place(about) for _, about in found]
        assert len(found) == len(PEERS) * 3 + 2
        after = {table.name: (await connection.execute(sa.select(table))).all() for table in TABLES}
    for name, rows in before.items():
        assert [_without_shard(row) for row in rows] == [_without_shard(row) for row in after[name]]
    strays = sum(row.shard != old.shard for name in before for row, old in zip(after[name], before[name], strict=True))
    assert moved == strays > 200
    # A run that is repeated, for example after a kill, finds everything in its place.
    assert await move_all(database) == 0


def test_every_table_with_pending_rows_of_a_shard_is_relocated() -> None:
    for found in pkgutil.iter_modules(business.__path__, f"{business.__name__}."):
        importlib.import_module(found.name)
    of_shards = {table.name for table in metadata.tables.values() if "shard" in table.c}
    # These tables record who did something, and when.
    history = {"callback_purges", "callback_replays", "job_purges", "messages", "shard_leases"}
    assert of_shards == {*relocation.KINDS, *history, "shards"}


TABLES = (jobs.table, callbacks.table, media_downloads.table, undecrypted.table, cross_shard_messages.table)


def _without_shard(row: sa.Row[tuple[object, ...]]) -> dict[str, object]:
    return {name: value for name, value in row._mapping.items() if name != "shard"}


async def test_callbacks_of_the_cloud_api_move_with_their_message(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await messages.add(connection, [message(f"m{peer}", peer) for peer in PEERS])
        written = [callback(seq, f"{subject}m{PEERS[3]}") for seq, subject in enumerate(("", callbacks.CLOUD_SUBJECT))]
        await callbacks.enqueue(connection, written, [b"sealed"] * len(written))
    await move_all(database)
    async with database.reading() as connection:
        pending = await callbacks.list_pending(connection, place(PEERS[3]), after=-1, limit=10)
    assert [entry.seq for entry in pending] == [0, 1]
