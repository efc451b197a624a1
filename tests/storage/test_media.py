"""Guarantees of the media table."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from tidings.storage.business import media
from tidings.storage.business.media import MediaRow
from tidings.storage.database import Database

ACCOUNT = "15550000000"


def make(n: int, **changes: object) -> MediaRow:
    row = MediaRow(
        id=f"00000000-0000-4000-8000-{n:012}",
        account=ACCOUNT,
        kind="document",
        mime_type="text/plain; charset=utf-8",
        size=2**33,
        sha256="0" * 64,
        file=f"file{n}",
        filename="Grüße 👋.txt",
        created_at=n,
        used_at=n,
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def put(database: Database, *rows: MediaRow) -> None:
    async with database.transaction() as connection:
        for row in rows:
            await media.add_all(connection, [row])


async def test_a_media_row_is_found_as_added(database: Database) -> None:
    rows = [make(1), make(2, blob=b"\0sealed", blob_expires_at=5)]
    await put(database, *rows)
    async with database.reading() as connection:
        assert await media.find(connection, ACCOUNT, rows[0].id) == rows[0]
        assert await media.find(connection, "15550000001", rows[0].id) is None
        found = await media.list_media(connection, [row.id for row in rows] + ["nothing"])
        assert sorted(found, key=lambda row: row.id) == rows
        assert await media.list_media(connection, []) == []


async def test_a_file_is_taken_once_and_only_by_its_account(database: Database) -> None:
    await put(database, make(1))
    async with database.transaction() as connection:
        assert await media.take(connection, "15550000001", make(1).id) is None
        assert await media.take(connection, ACCOUNT, make(1).id) == make(1)
        assert await media.take(connection, ACCOUNT, make(1).id) is None


async def test_adding_an_existing_row_changes_nothing(database: Database) -> None:
    await put(database, make(1))
    async with database.transaction() as connection:
        await media.add_all(connection, [make(1, size=1), make(2)])
        await media.add_all(connection, [])
        assert {row.size for row in await media.list_media(connection, [make(1).id, make(2).id])} == {2**33}


async def test_a_last_use_time_never_moves_back(database: Database) -> None:
    await put(database, make(1, used_at=100), make(2, used_at=300))
    async with database.transaction() as connection:
        await media.touch(connection, [make(1).id, make(2).id], 200)
        found = await media.list_media(connection, [make(1).id, make(2).id])
    assert sorted(row.used_at for row in found) == [200, 300]


async def test_the_last_blob_and_the_latest_use_time_are_stored(database: Database) -> None:
    await put(database, make(1))
    async with database.transaction() as connection:
        await media.note_uses(connection, [media.MediaUse(make(1).id, 300, b"one", 1)])
        await media.note_uses(connection, [media.MediaUse(make(1).id, 200, b"two", 2)])
        found = await media.find(connection, ACCOUNT, make(1).id)
    assert found is not None
    assert (found.blob, found.blob_expires_at, found.used_at) == (b"two", 2, 300)


async def test_unused_files_are_paged_and_those_used_since_are_kept(database: Database) -> None:
    rows = [make(n) for n in range(1, 8)]
    await put(database, *rows, make(50), make(8, account="15550000001"))
    async with database.transaction() as connection:
        first = await media.list_unused(connection, ACCOUNT, 10, now=20, limit=4)
        second = await media.list_unused(connection, ACCOUNT, 10, now=20, after=first[-1].id, limit=4)
        assert [*first, *second] == rows
        await media.touch(connection, [rows[0].id], 20)
        gone = await media.delete_unused(connection, [row.id for row in rows], 10, 20)
        assert gone == [row.id for row in rows[1:]]
        left = await media.list_media(connection, [row.id for row in rows])
    assert [row.id for row in left] == [rows[0].id]


async def test_unused_files_stay_until_they_expire_in_the_cloud_api(database: Database) -> None:
    valid, expired, v1 = make(1, cloud_expires_at=21), make(2, cloud_expires_at=20), make(3)
    await put(database, valid, expired, v1)
    async with database.transaction() as connection:
        assert await media.list_unused(connection, ACCOUNT, 10, now=20) == [expired, v1]
        gone = await media.delete_unused(connection, [valid.id, expired.id, v1.id], 10, 20)
        assert gone == [expired.id, v1.id]
        assert await media.list_media(connection, [valid.id]) == [valid]


async def test_files_that_belong_to_a_row_are_listed_as_known(database: Database) -> None:
    await put(database, make(1), make(2))
    async with database.reading() as connection:
        assert await media.list_known_files(connection, ["file1", "file2", "file3", "x.part"]) == {"file1", "file2"}
        assert await media.list_known_files(connection, []) == set()
