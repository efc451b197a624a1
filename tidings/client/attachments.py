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
from typing import IO, Protocol

from tidings import e2ee
from tidings.client.errors import FileChanged
from tidings.client.http import DeviceCredentials, StoredBlob
from tidings.e2ee import attachments
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
    file: IO[bytes],
    size: int,
    *,
    mime_type: str,
    sha256: str = "",
    filename: str | None = None,
    progress: Progress = silent,
) -> tuple[FilePointer, int]:
    """(pointer, Unix milliseconds at which it ends) of a file of `size` bytes, read from where it stands.

    Each call makes another key, so it can be made again whatever became of the last one. sha256: what the file must
    have, in hexadecimal, where that is known.
    Raises `FileChanged` when the file is another, shorter or longer, and then nothing is kept of it; `NetworkAway`,
    `NetworkFull`, `NetworkRefusal`; `OSError` when it cannot be read.
    """
    encrypted = _EncryptedFile(file, size, expected=sha256, progress=progress)
    stored = await blobs.upload_blob(device, encrypted.chunks(), attachments.blob_size(size))
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

    folder: for the blob while it is read, by default the system's for temporary files. Whether the file has the
    pointer's size and hash is for the caller to see.
    Raises `e2ee.InvalidMessage` for another blob than the pointer's; `FileLost`, `NetworkAway`, `NetworkRefusal`;
    `OSError` when there is no room for it.
    """
    total, done = attachments.blob_size(pointer.size), 0
    verifier = attachments.Verifier(pointer.key, pointer.digest)
    with tempfile.TemporaryFile(dir=folder) as blob:

        def keep(chunk: bytes) -> None:
            blob.write(chunk)
            verifier.update(chunk)

        def decrypt() -> bytes | None:
            chunk = blob.read(CHUNK)
            return decryptor.update(chunk) if chunk else None

        async with blobs.download_blob(device, pointer.blob) as chunks:
            async for chunk in chunks:
                done += len(chunk)
                if done > total:
                    raise e2ee.InvalidMessage("the file is longer than the message says")
                await asyncio.to_thread(keep, chunk)
                progress(done, total)
        decryptor = verifier.finalize()
        await asyncio.to_thread(blob.seek, 0)
        while (plaintext := await asyncio.to_thread(decrypt)) is not None:
            yield plaintext
        yield decryptor.finalize()


class _EncryptedFile:
    """A file as a blob, made while it is read, once. digest, sha256: there when the last chunk is out."""

    def __init__(self, file: IO[bytes], size: int, *, expected: str, progress: Progress) -> None:
        self.key = attachments.generate_key()
        self.digest = b""
        self.sha256 = ""
        self._file = file
        self._size = size
        self._left = size
        self._expected = expected
        self._progress = progress
        self._hash = hashlib.sha256()
        self._encryptor = attachments.Encryptor(self.key)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Without the last of them the blob is not complete, so the network keeps nothing. Raises `FileChanged`."""
        while self._left:
            yield await asyncio.to_thread(self._next)
            self._progress(self._size - self._left, self._size)
        self.sha256 = self._hash.hexdigest()
        if self._expected and self.sha256 != self._expected:
            raise FileChanged("the file is another one than it was")
        more = b"" if self._expected else await asyncio.to_thread(self._file.read, 1)
        if more:
            raise FileChanged("the file has become longer")
        last = self._encryptor.finalize()
        self.digest = self._encryptor.digest
        yield last

    def _next(self) -> bytes:
        plaintext = self._file.read(min(CHUNK, self._left))
        if not plaintext:
            raise FileChanged(f"{self._left} bytes of the file are missing")
        self._left -= len(plaintext)
        self._hash.update(plaintext)
        return self._encryptor.update(plaintext)
