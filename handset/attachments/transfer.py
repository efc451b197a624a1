"""Files that go with messages: down from the network and opened, or encrypted and up, with the content that says so."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from handset import composing, errors
from handset.attachments import pointers
from handset.attachments.pointers import Attachment
from handset.devices.device import Device
from tidings import e2ee
from tidings.client.errors import FileLost
from tidings.client.http import NetworkApi
from tidings.e2ee import attachments
from tidings.media import kinds
from tidings.media.errors import UseAnotherType
from tidings.wire import media_objects
from tidings.wire.media_objects import FilePointer

CHUNK = 512 * 1024  # bytes; a few milliseconds of CPU each, in a thread
VOICE = "voice"

# (bytes that are done, bytes in all)
Progress = Callable[[int, int], None]

# In this order: an MP4 file without a name is a film, and one that begins with an ID3 tag is MPEG audio.
_DETECTED = (
    "image/jpeg",
    "image/png",
    "image/webp",
    kinds.OPUS,
    "audio/amr",
    "video/3gpp",
    "video/mp4",
    "audio/mpeg",
    "audio/aac",
)


def _silent(done: int, total: int) -> None:
    pass


async def save(
    api: NetworkApi, device: Device, pointer: Attachment, folder: Path, *, progress: Progress = _silent
) -> Path:
    """Fetch a file and keep it in a folder, under its name or that name with a number; whole or not at all.

    Raises `FileLost`, `NetworkAway`, `Unauthorized`, `CannotKeep`.
    """
    with _on_our_disk(folder), contextlib.ExitStack() as held:
        file, unfinished = await asyncio.to_thread(_begin, folder)
        held.callback(os.unlink, unfinished)
        with file:
            async with contextlib.aclosing(fetch(api, device, pointer, folder=folder, progress=progress)) as chunks:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return _name(unfinished, folder, pointer.name)


async def fetch(
    api: NetworkApi, device: Device, pointer: Attachment, *, folder: Path | None = None, progress: Progress = _silent
) -> AsyncGenerator[bytes]:
    """The chunks of a file, none before all of the blob has authenticated. Read them to the end: an error may still
    come there.

    folder: for the blob while it is read, by default the system's for temporary files.
    Raises `FileLost`, `NetworkAway`, `Unauthorized`, `OSError`.
    """
    total = attachments.blob_size(pointer.size)
    verifier = attachments.Verifier(pointer.key, pointer.digest)
    done, left, digest = 0, pointer.size, hashlib.sha256()
    with tempfile.TemporaryFile(dir=folder) as blob:

        def take(chunk: bytes) -> None:
            blob.write(chunk)
            verifier.update(chunk)

        async with api.download_blob(device, pointer.blob) as incoming:
            async for chunk in incoming:
                done += len(chunk)
                if done > total:
                    raise FileLost("the file is another one than the message says")
                await asyncio.to_thread(take, chunk)
                progress(done, total)
        try:
            decryptor = verifier.finalize()
            async for chunk in _decrypted(blob, decryptor):
                digest.update(chunk)
                left -= len(chunk)
                yield chunk
        except e2ee.InvalidMessage as error:
            raise FileLost(f"the file is damaged: {error}") from error
    if left or digest.hexdigest() != pointer.sha256.lower():
        raise FileLost("the file is another one than the message says")


async def upload(
    api: NetworkApi, device: Device, path: Path, *, caption: str = "", kind: str = "", progress: Progress = _silent
) -> composing.Content:
    """Encrypt a file, leave it on the network, and compose the message that points to it.

    kind: `image`, `video`, `audio`, `voice`, `document` or `sticker`; by default what the file is, and a document
          for what is too large for its kind.
    Raises `BadFile`, `NetworkAway`, `NetworkFull`, `Unauthorized`.
    """
    with await asyncio.to_thread(_open, path) as file:
        size = os.fstat(file.fileno()).st_size
        mime_type, kind = _choose(file.read(kinds.HEAD), size, path.name, kind)
        if caption and kind not in composing.CAPTIONED:
            raise errors.BadFile(f"a file that is sent as {kind} has no caption")
        file.seek(0)
        key = attachments.generate_key()
        outgoing = _Outgoing(file, size, attachments.Encryptor(key), progress)
        stored = await api.upload_blob(device, outgoing.chunks(), attachments.blob_size(size))
    pointer = FilePointer(stored.id, key, outgoing.digest, size, mime_type, outgoing.sha256)
    return composing.medium(kind, msgspec.to_builtins(pointer), caption, path.name if kind == kinds.DOCUMENT else "")


def detect(head: bytes, name: str) -> tuple[str, str]:
    """(MIME type, kind) of a file by its first 1,024 bytes, where these do not tell by its name."""
    guessed = pointers.TYPES.guess_type(name)[0] or ""
    for text in (guessed, *_DETECTED):
        with contextlib.suppress(UseAnotherType):
            media_type = kinds.parse(text)
            media_type.check(head)
            return media_type.text, media_type.kind
    # A picture that is no sticker is a document like any other.
    return ("image/webp" if head[8:12] == b"WEBP" else kinds.UNKNOWN), kinds.DOCUMENT


class _Outgoing:
    """A file as a blob, made while it is read. digest, sha256: there once the last chunk is out."""

    def __init__(self, file: IO[bytes], size: int, encryptor: attachments.Encryptor, progress: Progress) -> None:
        self.digest = b""
        self.sha256 = ""
        self._file = file
        self._size = size
        self._encryptor = encryptor
        self._progress = progress
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises `BadFile` when the file cannot be read, or gets shorter or longer meanwhile."""
        done = 0
        while done < self._size and (chunk := await asyncio.to_thread(self._read, self._size - done)):
            done += len(chunk)
            yield await asyncio.to_thread(self._take, chunk)
            self._progress(done, self._size)
        # Without its last bytes the blob is not complete, so the network keeps nothing.
        more = await asyncio.to_thread(self._read, 1)
        if more or done != self._size:
            raise errors.BadFile("the file changed while it was read")
        last = self._encryptor.finalize()
        self.digest, self.sha256 = self._encryptor.digest, self._hash.hexdigest()
        yield last

    def _read(self, left: int) -> bytes:
        try:
            return self._file.read(min(left, CHUNK))
        except OSError as error:
            raise errors.BadFile(f"the file cannot be read: {error.strerror}") from error

    def _take(self, chunk: bytes) -> bytes:
        self._hash.update(chunk)
        return self._encryptor.update(chunk)


async def _decrypted(blob: IO[bytes], decryptor: attachments.Decryptor) -> AsyncIterator[bytes]:
    def step() -> bytes | None:
        chunk = blob.read(CHUNK)
        return decryptor.update(chunk) if chunk else None

    blob.seek(0)
    while (chunk := await asyncio.to_thread(step)) is not None:
        yield chunk
    yield decryptor.finalize()


def _choose(head: bytes, size: int, name: str, kind: str) -> tuple[str, str]:
    """(MIME type, kind) to send a file as. Raises `BadFile`."""
    if not size:
        raise errors.BadFile(f"{name} is empty")
    mime_type, detected = detect(head, name)
    wanted = kinds.AUDIO if kind == VOICE else kind
    if not kind:
        kind = detected if size <= kinds.LIMITS[detected] else kinds.DOCUMENT
        wanted = kind
    elif kind not in media_objects.KINDS or not kinds.may_be_sent_as(mime_type, wanted):
        raise errors.BadFile(f"{name} is {mime_type}, which cannot be sent as {kind}")
    if size > kinds.LIMITS[wanted]:
        raise errors.BadFile(f"{name} has {size:,} bytes; at most {kinds.LIMITS[wanted]:,} are sent as {kind}")
    return mime_type, kind


def _open(path: Path) -> IO[bytes]:
    """A file to be sent. Raises `BadFile`."""
    try:
        # Opening what is no file may wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.BadFile(f"{path} is no file")
        return path.open("rb")
    except OSError as error:
        raise errors.BadFile(f"{path}: {error.strerror or error}") from error


def _begin(folder: Path) -> tuple[IO[bytes], Path]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    return os.fdopen(descriptor, "wb"), Path(unfinished)


def _name(unfinished: Path, folder: Path, name: str) -> Path:
    """Give a finished file the first name that is free."""
    stem, extension = os.path.splitext(name)
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{stem} ({number}){extension}")
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, path)
            return path
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _on_our_disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.CannotKeep(f"{folder}: {error.strerror or error}") from error
