"""Files are uploaded encrypted and downloaded verified, whatever their size. No bytes of another file are ever
returned."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tidings import e2ee
from tidings.client import attachments
from tidings.client.attachments import CHUNK
from tidings.client.errors import FileChanged, FileLost
from tidings.client.http import DeviceCredentials, StoredBlob
from tidings.e2ee.attachments import blob_size
from tidings.media import reading
from tidings.wire.media_objects import FilePointer, Pointer


class Device:
    number = "15550100001"
    token: str | None = "t"


DEVICE = Device()


class MemoryBlobs:
    """Blobs of a network in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def upload_blob(self, device: DeviceCredentials, chunks: AsyncIterator[bytes], size: int) -> StoredBlob:
        blob = b"".join([chunk async for chunk in chunks])
        assert len(blob) == size
        id_ = f"b{len(self.blobs)}"
        self.blobs[id_] = blob
        return StoredBlob(id_, 1_000)

    @contextlib.asynccontextmanager
    async def download_blob(self, device: DeviceCredentials, blob: str) -> AsyncIterator[AsyncIterator[bytes]]:
        if blob not in self.blobs:
            raise FileLost("gone")
        yield pieces(self.blobs[blob])


async def pieces(blob: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(blob), size):
        yield blob[start : start + size]


async def up(blobs: MemoryBlobs, data: bytes) -> FilePointer:
    pointer, ends = await attachments.upload(
        blobs,
        DEVICE,
        reading.local(functools.partial(io.BytesIO, data)),
        len(data),
        mime_type="image/png",
    )
    assert ends == 1_000
    return pointer


async def down(blobs: MemoryBlobs, pointer: Pointer, folder: Path | None = None) -> bytes:
    async with contextlib.aclosing(attachments.download(blobs, DEVICE, pointer, folder=folder)) as chunks:
        return b"".join([chunk async for chunk in chunks])


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, CHUNK, 2 * CHUNK + 5])
async def test_an_uploaded_file_downloads_unchanged(size: int, tmp_path: Path) -> None:
    blobs, data = MemoryBlobs(), bytes(range(256)) * (size // 256) + bytes(size % 256)
    sha256 = hashlib.sha256(data).hexdigest()
    told: list[tuple[int, int]] = []
    pointer, _ = await attachments.upload(
        blobs,
        DEVICE,
        reading.local(functools.partial(io.BytesIO, data)),
        size,
        mime_type="image/png",
        filename="a.png",
        progress=lambda *step: told.append(step),
    )
    assert pointer == FilePointer("b0", pointer.key, pointer.digest, size, "image/png", sha256, filename="a.png")
    assert pointer.digest == hashlib.sha256(blobs.blobs["b0"]).digest()
    assert told[-1] == (size, size)
    assert await down(blobs, pointer, tmp_path) == data


async def test_downloading_a_small_file_needs_no_disk(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    assert await down(blobs, await up(blobs, b"small"), tmp_path / "none") == b"small"
    large = await up(blobs, bytes(2 * CHUNK))
    with pytest.raises(OSError, match="No such file"):
        await down(blobs, large, tmp_path / "none")


async def test_an_uploaded_file_is_closed_on_success_and_on_failure() -> None:
    blobs, file = MemoryBlobs(), io.BytesIO(b"abc")
    await attachments.upload(blobs, DEVICE, reading.local(lambda: file), 3, mime_type="image/png")
    assert file.closed
    file = io.BytesIO(b"abc")
    with pytest.raises(FileChanged):
        await attachments.upload(blobs, DEVICE, reading.local(lambda: file), 4, mime_type="image/png")
    assert file.closed


async def test_each_upload_uses_a_new_key() -> None:
    blobs = MemoryBlobs()
    assert (await up(blobs, b"x")).key != (await up(blobs, b"x")).key


@pytest.mark.parametrize(
    ("size", "sha256"),
    [(4, ""), (2, ""), (3, hashlib.sha256(b"xyz").hexdigest()), (4, hashlib.sha256(b"abc").hexdigest())],
)
async def test_a_file_that_changed_is_not_uploaded(size: int, sha256: str) -> None:
    blobs = MemoryBlobs()
    with pytest.raises(FileChanged):
        await attachments.upload(
            blobs,
            DEVICE,
            reading.local(functools.partial(io.BytesIO, b"abc")),
            size,
            mime_type="image/png",
            sha256=sha256,
        )
    assert blobs.blobs == {}


@pytest.mark.parametrize("where", [0, 20, -1])
async def test_a_damaged_blob_yields_no_bytes(where: int) -> None:
    blobs = MemoryBlobs()
    pointer = await up(blobs, bytes(3 * CHUNK))
    blob = bytearray(blobs.blobs["b0"])
    blob[where] ^= 1
    blobs.blobs["b0"] = bytes(blob)
    chunks = attachments.download(blobs, DEVICE, pointer)
    with pytest.raises(e2ee.InvalidMessage):
        await anext(chunks)


async def test_a_blob_that_does_not_match_its_pointer_is_refused() -> None:
    blobs = MemoryBlobs()
    pointer = await up(blobs, b"one")
    with pytest.raises(e2ee.InvalidMessage, match="digest"):
        await down(blobs, msgspec.structs.replace(pointer, digest=bytes(32)))
    blobs.blobs["b0"] += bytes(10 * blob_size(3))
    with pytest.raises(e2ee.InvalidMessage, match="longer than the message states"):
        await down(blobs, pointer)
    with pytest.raises(FileLost):
        await down(blobs, msgspec.structs.replace(pointer, blob="b1"))
