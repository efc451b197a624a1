"""Encrypted upload and download of files, chunk by chunk. Threads read and write, and encrypt chunks over 16 KiB.

Upload:   the file is encrypted under its own key while it is read. The result is the pointer that goes into a message.
Download: the blob that a pointer names is buffered, verified as a whole, and only then decrypted.
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
from tidings.media.reading import MediaReader, OpenReader
from tidings.wire.media_objects import FilePointer, Pointer

CHUNK = 512 * 1024  # bytes; a few milliseconds of CPU per chunk
# Bytes of a chunk that is encrypted or decrypted on the event loop: a step in a thread costs more.
SMALL_CHUNK = 16 * 1024

# (bytes transferred so far, total bytes)
Progress = Callable[[int, int], None]


class Blobs(Protocol):
    """Blob store, implemented by `tidings.client.http.NetworkApi`."""

    async def upload_blob(self, device: DeviceCredentials, chunks: AsyncIterator[bytes], size: int) -> StoredBlob: ...

    def download_blob(
        self, device: DeviceCredentials, blob: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


def ignore_progress(done: int, total: int) -> None:
    """Ignore progress: the default callback."""


async def upload(
    blobs: Blobs,
    device: DeviceCredentials,
    open_file: OpenReader,
    size: int,
    *,
    mime_type: str,
    sha256: str = "",
    filename: str | None = None,
    progress: Progress = ignore_progress,
) -> tuple[FilePointer, int]:
    """Upload a file of `size` bytes; return its pointer and its expiry in Unix milliseconds.

    The file is read from its current position, and closed. Each call generates a new key, so a call can be repeated
    whatever became of the one before.

    Raises `FileChanged` when the file does not have the expected size or hash: the network then keeps nothing of it.
    Raises `NetworkUnavailable`, `NetworkFull`, `NetworkRefusal`, `OSError` when the file cannot be read, and the errors
    of `open_file`.

    open_file: opens the file; for a local file `reading.local` makes it from a function that opens the file
    size:      bytes
    sha256:    expected SHA-256 of the file, hexadecimal; empty when not known
    """
    encrypted = _EncryptedFile(open_file, size, expected=sha256, progress=progress)
    try:
        # Read before the network is called: most files fit in this chunk.
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
    progress: Progress = ignore_progress,
) -> AsyncGenerator[bytes]:
    """Yield the chunks of a file, the first one after its whole blob has been authenticated.

    Read the generator to its end, since an error may still be raised there, and close it. Blobs larger than one chunk
    are buffered in a temporary file. The caller must check that the file has the pointer's size and hash.
    Raises `e2ee.InvalidMessage` for a blob that does not match the pointer; `FileLost`, `NetworkUnavailable`,
    `NetworkRefusal`; `OSError` when there is no room for the temporary file.

    folder: directory of the temporary file; None for the system's
    """
    total, done = attachments.blob_size(pointer.size), 0
    with _ReceivedBlob(pointer, folder) as received:
        async with blobs.download_blob(device, pointer.blob) as chunks:
            async for chunk in chunks:
                done += len(chunk)
                if done > total:
                    raise e2ee.InvalidMessage("the file is longer than the message states")
                if received.buffer(chunk):
                    await asyncio.to_thread(received.flush)
                progress(done, total)
        while not received.is_over:
            yield received.next() if done <= SMALL_CHUNK else await asyncio.to_thread(received.next)


class _EncryptedFile:
    """File that is encrypted into a blob while it is read, once."""

    def __init__(self, open_file: OpenReader, size: int, *, expected: str, progress: Progress) -> None:
        self.key = attachments.generate_key()
        self.digest = b""  # empty until the last chunk has been returned
        self.sha256 = ""  # hash of the plaintext, hexadecimal; empty until the last chunk has been returned
        self._open = open_file
        self._file: MediaReader | None = None
        self._size = size
        self._left = size
        self._expected = expected
        self._progress = progress
        self._hash = hashlib.sha256()
        self._encryptor = attachments.Encryptor(self.key)

    async def chunks(self, chunk: bytes) -> AsyncIterator[bytes]:
        """Yield `chunk`, the first of the blob, and the remaining ones. Raises as `next`."""
        yield chunk
        self._progress(self._size - self._left, self._size)
        while not self.digest:
            yield await self.next()
            self._progress(self._size - self._left, self._size)

    async def next(self) -> bytes:
        """Return the next chunk of the blob. Raises `FileChanged`.

        Without its last chunk a blob is incomplete, and the network keeps nothing of it.
        """
        if self._file is None:
            self._file = await self._open()
        plaintext = await self._file.read(min(CHUNK, self._left))
        if self._left and not plaintext:
            raise FileChanged(f"{self._left} bytes of the file are missing")
        self._left -= len(plaintext)
        # With a known hash, additional bytes show as a wrong hash.
        if not self._left and not self._expected and await self._file.read(1):
            raise FileChanged("the file has become longer")
        if len(plaintext) <= SMALL_CHUNK:
            return self._encrypt(plaintext)
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
            raise FileChanged("the file has changed")
        last = self._encryptor.finalize()
        self.digest = self._encryptor.digest
        return last


class _ReceivedBlob:
    """Downloaded blob, in memory up to the size of one chunk, in a temporary file beyond, and its decryption."""

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

    def buffer(self, chunk: bytes) -> bool:
        """Buffer the next bytes of the blob. Returns whether `flush` is due."""
        self._held += chunk
        return len(self._held) >= CHUNK

    def flush(self) -> None:
        """Write the buffered bytes to the temporary file. Raises `OSError`."""
        self._blob.write(self._held)
        self._verifier.update(bytes(self._held))
        self._held = bytearray()

    def next(self) -> bytes:
        """Return the next bytes of the plaintext, once the blob is complete. Raises `e2ee.InvalidMessage`."""
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
