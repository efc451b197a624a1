"""Download and upload of the files in messages, including their decryption and encryption."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import IO

import msgspec

from handset import composing, errors
from handset.attachments import pointers
from handset.attachments.pointers import AttachmentPointer
from handset.devices.device import Device
from tidings import e2ee
from tidings.client import attachments
from tidings.client.attachments import Progress, ignore_progress
from tidings.client.errors import FileChanged, FileLost
from tidings.client.http import NetworkApi
from tidings.media import kinds, reading
from tidings.media.errors import UnusableType
from tidings.secrets import private_files
from tidings.wire import media_objects

VOICE = "voice"

# The order matters: an MP4 file without a name is a video, and a file that starts with an ID3 tag is MPEG audio.
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


async def save(
    api: NetworkApi, device: Device, pointer: AttachmentPointer, folder: Path, *, progress: Progress = ignore_progress
) -> Path:
    """Download a file to a folder, under its name or its name with a number.

    The file is saved completely or not at all. Raises `FileLost`, `NetworkUnavailable`, `Unauthorized` and
    `CannotKeep`.
    """
    with _disk_errors(folder), contextlib.ExitStack() as held:
        file, unfinished = await asyncio.to_thread(_create_unfinished, folder)
        held.callback(os.unlink, unfinished)
        with file:
            async with contextlib.aclosing(fetch(api, device, pointer, folder=folder, progress=progress)) as chunks:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return _link_to_free_name(unfinished, folder, pointer.name)


async def fetch(
    api: NetworkApi,
    device: Device,
    pointer: AttachmentPointer,
    *,
    folder: Path | None = None,
    progress: Progress = ignore_progress,
) -> AsyncGenerator[bytes]:
    """Yield the chunks of a file, starting once the whole blob was authenticated.

    Read them to the end, because an error may still be raised there. Raises `FileLost`, `NetworkUnavailable`,
    `Unauthorized` and `OSError`.

    folder: for the blob while it is read; `None` for the system's directory of temporary files
    """
    left, digest = pointer.size, hashlib.sha256()
    plaintext = attachments.download(api, device, pointer, folder=folder, progress=progress)
    try:
        async with contextlib.aclosing(plaintext) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
                left -= len(chunk)
                yield chunk
    except e2ee.InvalidMessage as error:
        raise FileLost(f"the file is damaged: {error}") from error
    if left or digest.hexdigest() != pointer.sha256.lower():
        raise FileLost("the file does not match the message")


async def upload(
    api: NetworkApi,
    device: Device,
    path: Path,
    *,
    caption: str = "",
    kind: str = "",
    progress: Progress = ignore_progress,
) -> composing.Content:
    """Encrypt and upload a file, and compose the message that points to it.

    Raises `BadFile`, `NetworkUnavailable`, `NetworkFull` and `Unauthorized`.

    kind: `image`, `video`, `audio`, `voice`, `document` or `sticker`; empty for the detected kind, or a document
        when the file is too large for that
    """
    with await asyncio.to_thread(_open_to_send, path) as file:
        size = os.fstat(file.fileno()).st_size
        mime_type, kind = _choose_type(_read_head(file), size, path.name, kind)
        if caption and kind not in composing.CAPTIONED:
            raise errors.BadFile(f"a file sent as {kind} cannot have a caption")
        file.seek(0)
        try:
            pointer, _ = await attachments.upload(
                api, device, reading.local(lambda: file), size, mime_type=mime_type, progress=progress
            )
        except FileChanged as error:
            raise errors.BadFile("the file changed while it was read") from error
        except OSError as error:
            raise errors.BadFile(f"the file cannot be read: {error.strerror}") from error
    return composing.medium(kind, msgspec.to_builtins(pointer), caption, path.name if kind == kinds.DOCUMENT else "")


def detect(head: bytes, name: str) -> tuple[str, str]:
    """Return the MIME type and the kind of a file by its name, as far as its first 1,024 bytes confirm it.

    Otherwise the type is detected by these bytes. An unknown one is a document.
    """
    guessed = pointers.TYPES.guess_type(name)[0] or ""
    for text in (guessed, *_DETECTED):
        with contextlib.suppress(UnusableType):
            media_type = kinds.parse(text)
            media_type.check(head)
            return media_type.text, media_type.kind
    # A WebP picture that cannot be a sticker is sent as a document.
    return ("image/webp" if head[8:12] == b"WEBP" else kinds.UNKNOWN), kinds.DOCUMENT


def _choose_type(head: bytes, size: int, name: str, kind: str) -> tuple[str, str]:
    """Return the MIME type and the kind to send a file as. Raises `BadFile`."""
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


def _open_to_send(path: Path) -> IO[bytes]:
    """Open a file to be sent. Raises `BadFile`."""
    try:
        # Opening a pipe or a device may block forever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.BadFile(f"{path} is not a regular file")
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError for a path with NUL
        raise errors.BadFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _read_head(file: IO[bytes]) -> bytes:
    try:
        return file.read(kinds.HEAD)
    except OSError as error:
        raise errors.BadFile(f"the file cannot be read: {error.strerror}") from error


def _create_unfinished(folder: Path) -> tuple[IO[bytes], Path]:
    """Create a hidden file for an unfinished download. Returns it with its path."""
    private_files.make_directory(folder)
    descriptor, unfinished = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    return os.fdopen(descriptor, "wb"), Path(unfinished)


def _link_to_free_name(unfinished: Path, folder: Path, name: str) -> Path:
    """Link a finished file to the first free name, and return its path."""
    stem, extension = os.path.splitext(name)
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{stem} ({number}){extension}")
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, path)
            return path
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the disk as `CannotKeep`."""
    try:
        yield
    except OSError as error:
        raise errors.CannotKeep(f"{folder}: {error.strerror or error}") from error
