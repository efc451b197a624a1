"""Guarantees of every file store, wherever it keeps files. A subclass provides the fixture `files`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conftest import DatabaseFactory
from tidings.media.errors import FileEmpty, FileGone, FileTooLarge, StoreUnavailable, UnusableType
from tidings.objects import identity
from tidings.objects.identity import WrongStore
from tidings.objects.store import FileStore, Marker, StoredObject

MIB = 1024 * 1024
BIG = 10**9
TOMORROW = 86400

# Makes one more store object on the same files.
Again = Callable[[], Awaitable[FileStore]]


async def chunks(content: bytes, size: int = 50_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def put(files: FileStore, content: bytes) -> StoredObject:
    return await files.write(chunks(content), limit=BIG)


async def get(files: FileStore, name: str, piece: int = 300_000) -> bytes:
    found = await files.open(name)
    content = bytearray()
    while block := await found.reader.read(piece):
        # Only the last block may be shorter.
        assert len(block) == min(piece, found.size - len(content))
        content += block
    await found.reader.close()
    assert found.size == len(content)
    return bytes(content)


async def names(files: FileStore) -> list[str]:
    return sorted([name async for page in files.list_old(time.time() + TOMORROW) for name in page])


class FileStoreSuite:
    """Suite that runs against each kind of store."""

    # The last three are one part of an upload to a bucket, a byte more, and several parts.
    @pytest.mark.parametrize("size", [1, 256 * 1024, 1024 * 1024 + 1, 8 * MIB, 8 * MIB + 1, 17 * MIB + 5])
    async def test_a_written_file_reads_back_unchanged(self, files: FileStore, size: int) -> None:
        content = os.urandom(size)
        stored = await put(files, content)
        assert (stored.size, stored.sha256) == (size, hashlib.sha256(content).hexdigest())
        assert await get(files, stored.name) == content
        assert await names(files) == [stored.name]
        assert stored.name in files.location_of(stored.name)

    async def test_concurrent_writers_do_not_disturb_each_other(self, files: FileStore) -> None:
        contents = [os.urandom(3 * MIB) for _ in range(8)]
        stored = await asyncio.gather(*(put(files, content) for content in contents))
        assert await asyncio.gather(*(get(files, each.name) for each in stored)) == contents
        assert len(await names(files)) == 8

    @pytest.mark.parametrize("size", [11, MIB, 9 * MIB])
    async def test_a_file_over_the_limit_is_not_stored(self, files: FileStore, size: int) -> None:
        with pytest.raises(FileTooLarge):
            await files.write(chunks(bytes(size)), limit=size - 1)
        assert await names(files) == []

    async def test_an_empty_file_is_rejected(self, files: FileStore) -> None:
        with pytest.raises(FileEmpty):
            await put(files, b"")

    async def test_the_check_receives_the_beginning_once_before_anything_is_written(self, files: FileStore) -> None:
        seen: list[bytes] = []

        def refuse(head: bytes) -> None:
            seen.append(head)
            raise UnusableType("no")

        content = os.urandom(9 * MIB)
        for size in (3, 256 * 1024, 9 * MIB):
            with pytest.raises(UnusableType):
                await files.write(chunks(content[:size]), limit=BIG, check=refuse)
            assert seen.pop() == content[: min(size, 256 * 1024)]
        assert seen == []
        stored = await files.write(chunks(content), limit=BIG, check=seen.append)
        assert seen == [content[: 256 * 1024]]
        assert await names(files) == [stored.name]

    @pytest.mark.parametrize("size", [1000, 9 * MIB])
    async def test_a_failing_source_stores_nothing(self, files: FileStore, size: int) -> None:
        async def broken() -> AsyncIterator[bytes]:
            async for chunk in chunks(bytes(size)):
                yield chunk
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await files.write(broken(), limit=BIG)
        assert await names(files) == []

    async def test_a_cancelled_writer_stores_nothing(self, files: FileStore) -> None:
        reached = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            async for chunk in chunks(bytes(9 * MIB)):
                yield chunk
            reached.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(files.write(endless(), limit=BIG))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await names(files) == []

    async def test_deleting_a_file_twice_is_harmless(self, files: FileStore) -> None:
        kept, gone = await put(files, b"kept"), await put(files, b"gone")
        await files.delete([gone.name, "0" * 32, "../etc/passwd"])
        await files.delete([gone.name])
        with pytest.raises(FileGone):
            await files.open(gone.name)
        assert await get(files, kept.name) == b"kept"
        assert await names(files) == [kept.name]

    @pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".tidings-store", "a\0b"])
    async def test_a_name_cannot_lead_outside_the_store(self, files: FileStore, name: str) -> None:
        with pytest.raises(FileGone):
            await files.open(name)
        await files.delete([name])

    async def test_only_old_files_are_listed(self, files: FileStore) -> None:
        await put(files, b"x")
        assert [page async for page in files.list_old(time.time() - TOMORROW)] == []

    async def test_has_any_recognises_existing_names(self, files: FileStore) -> None:
        stored = await put(files, b"x")
        assert await files.has_any(["0" * 32, stored.name])
        assert not await files.has_any(["0" * 32])
        assert not await files.has_any([])
        assert await files.has_room()

    async def test_a_marker_reads_back_as_written_and_is_not_listed_as_a_file(self, files: FileStore) -> None:
        assert await files.read_marker() is None
        for marker in (Marker("media", "a", "b"), Marker("media", "a", "c")):
            await files.write_marker(marker)
            assert await files.read_marker() == marker
        assert await names(files) == []

    async def test_the_first_start_records_the_store_and_another_database_is_refused(
        self, files: FileStore, again: Again, database_factory: DatabaseFactory
    ) -> None:
        first, second = await database_factory("business"), await database_factory("business")
        await identity.of_media(first, files).claim()
        await identity.of_media(first, await again()).claim()
        with pytest.raises(WrongStore, match="another database"):
            await identity.of_media(second, await again()).claim()
        stored = await put(files, b"x")
        assert await get(await again(), stored.name) == b"x"

    async def test_with_a_foreign_marker_no_file_counts_as_gone_or_old(
        self, files: FileStore, database_factory: DatabaseFactory
    ) -> None:
        database = await database_factory("business")
        recorded = identity.of_media(database, files)
        await recorded.claim()
        stored = await put(files, b"x")
        with pytest.raises(FileGone):
            await files.open("0" * 32)
        marker = await files.read_marker()
        assert marker is not None
        await files.write_marker(Marker("media", "of another", "database"))
        with pytest.raises(StoreUnavailable):
            await files.open("0" * 32)
        with pytest.raises(StoreUnavailable):
            await names(files)
        assert "another database" in await recorded.refresh()
        await files.write_marker(marker)
        assert await recorded.refresh() == ""
        assert await names(files) == [stored.name]
