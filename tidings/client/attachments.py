"""Files on their way to the network and from it, chunk by chunk, the CPU's part in threads.

Up:   encrypted while it is read, under a key of its own; what comes back is the pointer that goes into a message.
Down: kept as it comes, verified as a whole, and only then decrypted; a pointer says what to fetch.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tidings import e2ee
from tidings.client.errors import FileChanged
from tidings.client.http import DeviceCredentials, StoredBlob
from tidings.e2ee import attachments
from tidings.media.reading import OpenReader, Reader
from tidings.wire.media_objects import FilePointer, Pointer

CHUNK = 512 * 1024  # bytes; a few milliseconds of CPU each

# (bytes that are done, bytes in all)
Progress = Callable[[int, int], None]


class Blobs(Protocol):
    """Where files are left, and fetched: `tidings.client.http.NetworkApi`."""

    async def upload_blob(self, device: DeviceCredentials, chunks: AsyncIterator[bytes], size: int) -> StoredBlob: ...

    def download_blob(
        self, device: DeviceCredentials, blob: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


def silent(done: int, total: int) -> None:
    """Progress that nobody looks at."""


async def upload(
    blobs: Blobs,
    device: DeviceCredentials,
    open_file: OpenReader,
    size: int,
    *,
    mime_type: str,
    sha256: str = "",
    filename: str | None = None,
    progress: Progress = silent,
) -> tuple[FilePointer, int]:
    """(pointer, Unix milliseconds at which it ends) of a file of `size` bytes, read from where it stands, and closed.

    Each call makes another key, so it can be made again whatever became of the last one. open_file: for a file on this
    machine `reading.local` makes it of a function that opens it; sha256: what the file must have, in hexadecimal, where
    that is known.
    Raises `FileChanged` when the file is another, shorter or longer, and then nothing is kept of it; `NetworkAway`,
    `NetworkFull`, `NetworkRefusal`; `OSError` when it cannot be read, and what `open_file` raises.
    """
    encrypted = _EncryptedFile(open_file, size, expected=sha256, progress=progress)
    try:
        # Before the network is called: of most files this is all.
        first = await encrypted.next()
        stored = await blobs.upload_blob(device, encrypted.chunks(first), attachments.blob_size(size))
    finally:
        await encrypted.close()
    pointer = FilePointer(
        stored.id, encrypted.key, encrypted.digest, size, mime_type, encrypted.sha256, filename=filename
    )
    return pointer, stored.expires_at


async def download(
    blobs: Blobs,
    device: DeviceCredentials,
    pointer: Pointer,
    *,
    folder: Path | None = None,
    progress: Progress = silent,
) -> AsyncGenerator[bytes]:
    """The chunks of a file, none before all of its blob has authenticated. Read them to the end, where an error may
    still come, and close the generator.

    folder: for a blob that is larger than a chunk while it is read, by default the system's for temporary files.
    Whether the file has the pointer's size and hash is for the caller to see.
    Raises `e2ee.InvalidMessage` for another blob than the pointer's; `FileLost`, `NetworkAway`, `NetworkRefusal`;
    `OSError` when there is no room for it.
    """
    total, done = attachments.blob_size(pointer.size), 0
    with _ReceivedBlob(pointer, folder) as received:
        async with blobs.download_blob(device, pointer.blob) as chunks:
            async for chunk in chunks:
                done += len(chunk)
                if done > total:
                    raise e2ee.InvalidMessage("the file is longer than the message says")
                if received.takes(chunk):
                    await asyncio.to_thread(received.flush)
                progress(done, total)
        while not received.is_over:
            yield await asyncio.to_thread(received.next)


class _EncryptedFile:
    """A file as a blob, made while it is read, once. digest, sha256: there when the last chunk is out."""

    def __init__(self, open_file: OpenReader, size: int, *, expected: str, progress: Progress) -> None:
        self.key = attachments.generate_key()
        self.digest = b""
        self.sha256 = ""
        self._open = open_file
        self._file: Reader | None = None
        self._size = size
        self._left = size
        self._expected = expected
        self._progress = progress
        self._hash = hashlib.sha256()
        self._encryptor = attachments.Encryptor(self.key)

    async def chunks(self, chunk: bytes) -> AsyncIterator[bytes]:
        """This one, the first, and the others. Raises as `next`."""
        yield chunk
        self._progress(self._size - self._left, self._size)
        while not self.digest:
            yield await self.next()
            self._progress(self._size - self._left, self._size)

    async def next(self) -> bytes:
        """Without the last of them the blob is not complete, so the network keeps nothing. Raises `FileChanged`."""
        if self._file is None:
            self._file = await self._open()
        plaintext = await self._file.read(min(CHUNK, self._left))
        if self._left and not plaintext:
            raise FileChanged(f"{self._left} bytes of the file are missing")
        self._left -= len(plaintext)
        # That a file has become longer shows in its hash where that is known.
        if not self._left and not self._expected and await self._file.read(1):
            raise FileChanged("the file has become longer")
        return await asyncio.to_thread(self._encrypt, plaintext)

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()

    def _encrypt(self, plaintext: bytes) -> bytes:
        self._hash.update(plaintext)
        output = self._encryptor.update(plaintext)
        return output if self._left else output + self._finalize()

    def _finalize(self) -> bytes:
        self.sha256 = self._hash.hexdigest()
        if self._expected and self.sha256 != self._expected:
            raise FileChanged("the file is another one than it was")
        last = self._encryptor.finalize()
        self.digest = self._encryptor.digest
        return last


class _ReceivedBlob:
    """A blob as it comes, in memory while it is no larger than a chunk, and the file that is in it."""

    def __init__(self, pointer: Pointer, folder: Path | None) -> None:
        where = None if folder is None else str(folder)
        self._blob = tempfile.SpooledTemporaryFile(max_size=CHUNK, dir=where)  # noqa: SIM115
        self._held = bytearray()
        self._verifier = attachments.Verifier(pointer.key, pointer.digest)
        self._decryptor: attachments.Decryptor | None = None
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blob.close()

    def takes(self, chunk: bytes) -> bool:
        """Hold the next bytes of the blob; true when `flush` is due."""
        self._held += chunk
        return len(self._held) >= CHUNK

    def flush(self) -> None:
        """Keep what is held. Raises `OSError`."""
        self._blob.write(self._held)
        self._verifier.update(bytes(self._held))
        self._held = bytearray()

    def next(self) -> bytes:
        """The next bytes of the file; the blob is complete. Raises `e2ee.InvalidMessage`."""
        if self._decryptor is None:
            self.flush()
            self._decryptor = self._verifier.finalize()
            self._blob.seek(0)
        chunk = self._blob.read(CHUNK)
        plaintext = self._decryptor.update(chunk)
        if len(chunk) == CHUNK:
            return plaintext
        self.is_over = True
        return plaintext + self._decryptor.finalize()
