"""Download of one recipient's file from the network: fetched, verified, decrypted and stored."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec

from coreapp.media.errors import DownloadFailed
from coreapp.media.progress import ProgressLog
from coreapp.webhook import inbound
from tidings import e2ee
from tidings.aio.clock import Clock
from tidings.client import attachments
from tidings.client.errors import FileLost, NetworkRefusal, NetworkUnavailable, Unauthorized
from tidings.client.http import DeviceCredentials, NetworkApi
from tidings.media import kinds, signatures
from tidings.media.errors import FileEmpty, FileTooLarge, UnusableType
from tidings.objects.store import FileStore, StoredObject
from tidings.storage.business.media import MediaRow
from tidings.storage.business.media_downloads import Download
from tidings.wire.media_objects import Pointer

VOICE = "voice"


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Fetcher:
    """Downloads files into the store. The caller writes their rows."""

    network: NetworkApi
    device: DeviceCredentials
    files: FileStore
    _: dataclasses.KW_ONLY
    working: Path  # directory for encrypted files during the download
    clock: Clock

    async def fetch(self, download: Download, message: inbound.Inbound) -> MediaRow:
        """Download the file of a message. Returns its row; the file is on disk.

        Raises `DownloadFailed`; `NetworkUnavailable`, `DiskFull` and `OSError` if the network or the disk is unusable
        now.
        """
        pointer, content = message.pointer, message.content
        if pointer is None or not isinstance(content, inbound.InboundMedia):
            raise DownloadFailed("the message names no location of its file", is_final=True)
        mime_type, check = _type(content.mime_type)
        stored = await self._store(download, pointer, check)
        if not _is_hash(content.sha256, stored.sha256) or not self._has_size(pointer, stored):
            await self.files.delete([stored.name])
            raise DownloadFailed("the file does not match the message", is_final=True)
        now = self.clock.now_ms()
        return MediaRow(
            str(uuid.uuid4()),
            download.account,
            kinds.AUDIO if message.kind == VOICE else message.kind,
            mime_type if check.fits else kinds.UNKNOWN,
            stored.size,
            stored.sha256,
            stored.name,
            (content.filename or "")[:255],
            now,
            now,
        )

    def complete(self, message: inbound.Inbound, media: MediaRow) -> inbound.Inbound:
        """Return the message with its file, as the webhook gets it."""
        content = msgspec.structs.replace(
            message.content,
            id=media.id,
            file=self.files.location_of(media.file),
            mime_type=media.mime_type,
            sha256=media.sha256,
            status=inbound.DOWNLOADED,
        )
        return dataclasses.replace(message, content=content)

    async def discard(self, media: MediaRow) -> None:
        """Delete a file that is not wanted after all."""
        await self.files.delete([media.file])

    def _has_size(self, pointer: Pointer, stored: StoredObject) -> bool:
        """Return whether a file has the size that its message names."""
        return stored.size == pointer.size

    def _plaintext(self, download: Download, pointer: Pointer) -> AsyncGenerator[bytes, None]:
        """Return the content of a file in pieces."""
        return attachments.download(
            self.network,
            self.device,
            pointer,
            folder=self.working,
            progress=ProgressLog("media.downloading", id=download.id),
        )

    async def _store(self, download: Download, pointer: Pointer, check: _TypeCheck) -> StoredObject:
        plaintext = self._plaintext(download, pointer)
        try:
            async with contextlib.aclosing(plaintext) as chunks:
                return await self.files.write(chunks, limit=kinds.MAX_SIZE, check=check)
        except Unauthorized as error:
            # Reopening the shard loads a new token.
            raise NetworkUnavailable(str(error)) from error
        except FileLost as error:
            raise DownloadFailed("the network does not have the file: HTTP 404", is_final=True) from error
        except NetworkRefusal as error:
            raise DownloadFailed(f"the network refuses the file: HTTP {error.status}", is_final=True) from error
        except (e2ee.InvalidMessage, FileTooLarge, FileEmpty) as error:
            # The transfer was complete. Interrupted transfers count as network failures, which are retried.
            raise DownloadFailed(str(error), is_final=True) from error


class _TypeCheck:
    """Checks the first bytes of a file against the type that the message names. `fits` is the result."""

    def __init__(self, media_type: kinds.MediaType | None) -> None:
        self._type = media_type
        self.fits = media_type is not None

    def __call__(self, head: bytes) -> None:
        if self._type is None:
            return
        if self._type.kind == kinds.STICKER:
            # Recipients may send stickers of a kind that a business may not send.
            self.fits = signatures.is_webp(head)
            return
        try:
            self._type.check(head[: kinds.HEAD])
        except UnusableType:
            self.fits = False


def _type(given: str) -> tuple[str, _TypeCheck]:
    """Return a recipient's media type in a form safe for headers, and the check of the file for that type."""
    try:
        media_type = kinds.parse(given)
    except UnusableType:
        return kinds.UNKNOWN, _TypeCheck(None)
    return media_type.text, _TypeCheck(media_type)


def _is_hash(given: str, sha256: str) -> bool:
    """Return whether a sender's hash, in hex or base64, equals ours."""
    if given.lower() == sha256:
        return True
    try:
        return base64.b64decode(given, validate=True).hex() == sha256
    except (binascii.Error, ValueError):
        return False
