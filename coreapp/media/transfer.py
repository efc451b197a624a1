"""Encrypting a file while it goes up and decrypting one that came down, chunk by chunk, the CPU's part in threads."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from typing import IO

from tidings.e2ee import attachments

log = logging.getLogger(__name__)

CHUNK = 512 * 1024  # bytes; a few milliseconds of CPU each
REPORT_SECONDS = 10.0


class FileDamaged(Exception):
    """A file is not what was stored."""


class Steps:
    """Log lines of a transfer that takes long."""

    def __init__(self, what: str, total: int, **about: str) -> None:
        """what: names the log line; total: bytes."""
        self._what = what
        self._total = total
        self._about = about
        self._done = 0
        self._next = time.monotonic() + REPORT_SECONDS

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_SECONDS
            log.info(self._what, extra={"bytes": self._done, "of": self._total, **self._about})


class Encrypted:
    """A file as a blob under a new key, made while it is read; `chunks` can be read once.

    size: of the blob; digest: there once the last chunk is out.
    """

    def __init__(self, file: IO[bytes], plaintext_size: int, *, sha256: str, steps: Steps) -> None:
        """sha256: what the file must have, in hex."""
        self.key = attachments.generate_key()
        self.size = attachments.blob_size(plaintext_size)
        self.digest = b""
        self._file = file
        self._left = plaintext_size
        self._sha256 = sha256
        self._hash = hashlib.sha256()
        self._encryptor = attachments.Encryptor(self.key)
        self._steps = steps

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises `FileDamaged` when the file is not the one that was stored, and `OSError`."""
        while self._left:
            yield await asyncio.to_thread(self._next)
        last = self._encryptor.finalize()
        if self._hash.hexdigest() != self._sha256:
            raise FileDamaged("it is not what was stored")
        self.digest = self._encryptor.digest
        yield last

    def _next(self) -> bytes:
        plaintext = self._file.read(min(CHUNK, self._left))
        if not plaintext:
            raise FileDamaged(f"{self._left} bytes are missing")
        self._left -= len(plaintext)
        self._hash.update(plaintext)
        self._steps.add(len(plaintext))
        return self._encryptor.update(plaintext)


async def save(chunks: AsyncIterator[bytes], file: IO[bytes], verifier: attachments.Verifier, steps: Steps) -> None:
    """Write a blob into `file`, and show it to `verifier` on the way."""

    def take(chunk: bytes) -> None:
        file.write(chunk)
        verifier.update(chunk)

    async for chunk in chunks:
        await asyncio.to_thread(take, chunk)
        steps.add(len(chunk))


async def decrypted(file: IO[bytes], decryptor: attachments.Decryptor) -> AsyncIterator[bytes]:
    """The plaintext of the blob in `file`, from its beginning. Raises `InvalidMessage` when it has changed."""
    await asyncio.to_thread(file.seek, 0)
    while True:
        chunk = await asyncio.to_thread(_step, file, decryptor)
        if chunk is None:
            break
        yield chunk
    yield decryptor.finalize()


def _step(file: IO[bytes], decryptor: attachments.Decryptor) -> bytes | None:
    chunk = file.read(CHUNK)
    return decryptor.update(chunk) if chunk else None
