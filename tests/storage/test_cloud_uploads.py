"""Guarantees of the tables of resumable uploads."""

from __future__ import annotations

import dataclasses

import pytest

from tests.conftest import DatabaseFactory
from tidings.storage.business import cloud_uploads
from tidings.storage.business.cloud_uploads import CloudUpload, CloudUploadPart
from tidings.storage.database import Database

ACCOUNT, OTHER = "15550000000", "15550000001"
UPLOAD = CloudUpload("one", ACCOUNT, "image/png", 10, 0, 1_000)


@pytest.fixture
async def database(database_factory: DatabaseFactory) -> Database:
    found = await database_factory("business")
    async with found.transaction() as connection:
        await cloud_uploads.add(connection, UPLOAD)
    return found


def part(position: int, size: int, file: str) -> CloudUploadPart:
    return CloudUploadPart("one", position, ACCOUNT, size, file)


async def append(database: Database, added: CloudUploadPart) -> bool:
    async with database.transaction() as connection:
        return await cloud_uploads.append(connection, added)


async def test_a_session_is_found_by_its_account_until_it_expires(database: Database) -> None:
    async with database.reading() as connection:
        assert await cloud_uploads.find(connection, ACCOUNT, "one", 999) == UPLOAD
        assert await cloud_uploads.find(connection, ACCOUNT, "one", 1_000) is None
        assert await cloud_uploads.find(connection, OTHER, "one", 0) is None
        assert await cloud_uploads.find(connection, ACCOUNT, "two", 0) is None
        assert await cloud_uploads.list_expired(connection, ACCOUNT, 999, limit=9) == []
        assert await cloud_uploads.list_expired(connection, ACCOUNT, 1_000, limit=9) == ["one"]
        assert await cloud_uploads.list_expired(connection, OTHER, 1_000, limit=9) == []


async def test_parts_follow_each_other_and_one_position_is_taken_once(database: Database) -> None:
    assert await append(database, part(0, 4, "a"))
    assert await append(database, part(0, 4, "a"))
    assert not await append(database, part(0, 5, "b"))
    assert not await append(database, part(5, 5, "c"))
    assert await append(database, part(4, 6, "d"))
    async with database.reading() as connection:
        assert await cloud_uploads.list_parts(connection, "one") == [part(0, 4, "a"), part(4, 6, "d")]
        assert await cloud_uploads.find(connection, ACCOUNT, "one", 0) == dataclasses.replace(UPLOAD, received=10)


async def test_the_first_file_of_a_session_counts(database: Database) -> None:
    await append(database, part(0, 10, "a"))
    async with database.transaction() as connection:
        assert await cloud_uploads.count_open(connection, ACCOUNT, 0) == 1
        assert await cloud_uploads.count_open(connection, ACCOUNT, 1_000) == 0
        assert await cloud_uploads.finish(connection, "one", "first") == "first"
        assert await cloud_uploads.finish(connection, "one", "second") == "first"
        assert await cloud_uploads.finish(connection, "none", "third") is None
        assert await cloud_uploads.count_open(connection, ACCOUNT, 0) == 0
        assert await cloud_uploads.list_parts(connection, "one") == []
    assert not await append(database, part(10, 1, "b"))


async def test_a_deleted_session_names_the_files_of_its_parts(database: Database) -> None:
    await append(database, part(0, 4, "a"))
    await append(database, part(4, 4, "b"))
    async with database.transaction() as connection:
        assert await cloud_uploads.delete(connection, ["one", "two"]) == ["a", "b"]
        assert await cloud_uploads.find(connection, ACCOUNT, "one", 0) is None
        assert await cloud_uploads.delete(connection, ["one"]) == []
