"""A bucket of a real server gives the guarantees of every file store, and an outage of the server never loses a
file."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from harness.s3_server import S3Server
from tests.authority import Authority
from tests.objects.conformance import BIG, MIB, TOMORROW, Again, FileStoreSuite, chunks, get, names, put
from tests.s3.conftest import create, settings_of
from tidings.media.errors import FileGone, StoreUnavailable
from tidings.objects import s3 as implementation
from tidings.objects.s3 import S3Store
from tidings.objects.s3_settings import S3Settings
from tidings.objects.store import FileStore


@pytest.fixture
async def files(bucket: S3Settings) -> AsyncIterator[S3Store]:
    made = S3Store(bucket)
    yield made
    await made.close()


class TestBucket(FileStoreSuite):
    @pytest.fixture
    async def again(self, bucket: S3Settings) -> AsyncIterator[Again]:
        async with contextlib.AsyncExitStack() as stack:

            async def make() -> FileStore:
                made = S3Store(bucket)
                stack.push_async_callback(made.close)
                return made

            yield make


@pytest.fixture
def short_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "READ_SECONDS", 1.0)
    monkeypatch.setattr(implementation, "CALL_SECONDS", 10.0)


@pytest.mark.usefixtures("short_time_limits")
@pytest.mark.parametrize("outage", ["stopped", "hangs"])
async def test_no_file_counts_as_gone_during_an_outage_and_all_return_afterwards(
    files: S3Store, s3: S3Server, outage: str
) -> None:
    stored, deleted = await put(files, b"x" * 1000), await put(files, b"deleted, perhaps")
    if outage == "stopped":
        s3.stop()
    else:
        s3.pause()
    try:
        for call in (files.open(stored.name), put(files, b"y"), files.delete([deleted.name]), files.read_marker()):
            with pytest.raises(StoreUnavailable):
                await call
        with pytest.raises(StoreUnavailable):
            await names(files)
    finally:
        if outage == "stopped":
            s3.start()
        else:
            s3.resume()
    assert await get(files, stored.name) == b"x" * 1000
    assert (await put(files, b"z")).size == 1


async def test_a_missing_bucket_or_wrong_key_counts_as_an_outage(bucket: S3Settings, files: S3Store) -> None:
    stored = await put(files, b"x")
    for wrong in (
        dataclasses.replace(bucket, bucket="not-there"),
        dataclasses.replace(bucket, secret_access_key="wrong"),
    ):
        other = S3Store(wrong)
        with pytest.raises(StoreUnavailable):
            await other.open(stored.name)
        with pytest.raises(StoreUnavailable):
            await other.read_marker()
        await other.close()


async def test_a_reader_resumes_after_an_outage_of_the_server(files: S3Store, s3: S3Server) -> None:
    content = os.urandom(3 * MIB)
    found = await files.open((await put(files, content)).name)
    first = await found.reader.read(MIB)
    s3.stop()
    s3.start()
    assert first + await found.reader.read(2 * MIB) == content


async def test_reading_a_file_deleted_during_the_read_ends_with_an_error(files: S3Store) -> None:
    stored = await put(files, os.urandom(3 * MIB))
    found = await files.open(stored.name)
    await files.delete([stored.name])
    await found.reader.read(MIB)
    with pytest.raises(StoreUnavailable):
        await found.reader.read(MIB)
    with pytest.raises(FileGone):
        await files.open(stored.name)


async def test_prefixes_of_one_bucket_are_isolated_from_each_other(bucket: S3Settings, files: S3Store) -> None:
    other = S3Store(dataclasses.replace(bucket, prefix="other/"))
    stored = await put(files, b"x")
    assert await names(other) == []
    with pytest.raises(FileGone):
        await other.open(stored.name)
    await other.close()


async def test_an_unfinished_upload_is_aborted_once_it_is_old(files: S3Store) -> None:
    where = files._object("0" * 32)
    begun = await files._call("create_multipart_upload", **where)
    await files._call("upload_part", **where, UploadId=begun["UploadId"], PartNumber=1, Body=bytes(5 * MIB))
    assert [page async for page in files.list_old(time.time() - TOMORROW)] == []
    uploads = {"Bucket": where["Bucket"], "Prefix": files.files_prefix}
    assert len((await files._call("list_multipart_uploads", **uploads)).get("Uploads", [])) == 1
    assert [page async for page in files.list_old(time.time() + TOMORROW)] == []
    assert (await files._call("list_multipart_uploads", **uploads)).get("Uploads", []) == []


async def test_reading_and_writing_a_large_file_uses_bounded_memory(files: S3Store) -> None:
    await get(files, (await put(files, bytes(9 * MIB))).name)
    watched, highest = psutil.Process(), 0
    before = watched.memory_info().rss
    block = os.urandom(MIB)

    async def large() -> AsyncIterator[bytes]:
        nonlocal highest
        for _ in range(100):
            highest = max(highest, watched.memory_info().rss)
            yield block

    stored = await files.write(large(), limit=BIG)
    found = await files.open(stored.name)
    received = 0
    while piece := await found.reader.read(MIB):
        received += len(piece)
        highest = max(highest, watched.memory_info().rss)
    assert received == 100 * MIB
    # A part of 8 MiB, its copies on the way out, and buffers.
    assert highest - before < 60 * MIB


async def test_a_server_over_tls_is_verified_by_the_named_authority(tmp_path: Path) -> None:
    tls = Authority().files(tmp_path, "server", "127.0.0.1")
    other = Authority("Another").files(tmp_path, "other", "127.0.0.1")
    server = S3Server(tls)
    server.start()
    try:
        settings = settings_of(server, tls.authorities)
        await create(settings)
        files = S3Store(settings)
        stored = await put(files, bytes(9 * MIB))
        assert await get(files, stored.name) == bytes(9 * MIB)
        await files.close()
        distrusting = S3Store(dataclasses.replace(settings, authorities=other.authorities))
        with pytest.raises(StoreUnavailable):
            await put(distrusting, b"content")
        await distrusting.close()
    finally:
        server.remove()


async def test_concurrent_readers_and_writers_are_bounded_and_all_succeed(files: S3Store) -> None:
    stored = await put(files, bytes(2 * MIB))
    contents = await asyncio.gather(*(get(files, stored.name) for _ in range(100)))
    assert all(len(content) == 2 * MIB for content in contents)
    async with asyncio.timeout(30):
        await asyncio.gather(*(files.write(chunks(bytes(1000)), limit=BIG) for _ in range(100)))
