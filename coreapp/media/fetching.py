"""Getting one file of a recipient out of the network: down, verified, decrypted, into the directory of files."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import uuid
from pathlib import Path

import msgspec

from coreapp.media.errors import DownloadFailed
from coreapp.media.progress import ProgressLog
from coreapp.webhook import inbound
from tidings import e2ee
from tidings.client import attachments
from tidings.client.errors import FileLost, NetworkAway, NetworkRefusal, Unauthorized
from tidings.client.http import DeviceCredentials, NetworkApi
from tidings.media import kinds, signatures
from tidings.media.errors import FileEmpty, FileTooLarge, UnusableType
from tidings.objects.store import FileStore, Stored
from tidings.runtime.clock import Clock
from tidings.storage.business.media import Media
from tidings.storage.business.media_downloads import Download
from tidings.wire.media_objects import Pointer

VOICE = "voice"


class Fetcher:
    """Fetches files into the directory. Their rows are the caller's to write."""

    def __init__(
        self, network: NetworkApi, device: DeviceCredentials, files: FileStore, *, working: Path, clock: Clock
    ) -> None:
        """working: directory for encrypted files while they arrive."""
        self._network = network
        self._device = device
        self._files = files
        self._working = working
        self._clock = clock

    async def fetch(self, download: Download, message: inbound.Inbound) -> Media:
        """The file of a message as it is to be kept; it is on disk.

        Raises `DownloadFailed`; `NetworkAway`, `DiskFull` and `OSError` when the network or the disk cannot now.
        """
        pointer, content = message.pointer, message.content
        if pointer is None or not isinstance(content, inbound.Media):
            raise DownloadFailed("the message says nowhere where its file is", is_final=True)
        mime_type, check = _type(content.mime_type)
        stored = await self._store(download, pointer, check)
        if not _is_hash(content.sha256, stored.sha256) or stored.size != pointer.size:
            await self._files.delete([stored.name])
            raise DownloadFailed("the file is another one than the message says", is_final=True)
        now = int(self._clock.now() * 1000)
        return Media(
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

    def complete(self, message: inbound.Inbound, media: Media) -> inbound.Inbound:
        """The message as the webhook gets it, with its file."""
        content = msgspec.structs.replace(
            message.content,
            id=media.id,
            file=self._files.place(media.file),
            mime_type=media.mime_type,
            sha256=media.sha256,
            status=inbound.DOWNLOADED,
        )
        return dataclasses.replace(message, content=content)

    async def discard(self, media: Media) -> None:
        """A file that is not wanted after all."""
        await self._files.delete([media.file])

    async def _store(self, download: Download, pointer: Pointer, check: _Fits) -> Stored:
        plaintext = attachments.download(
            self._network,
            self._device,
            pointer,
            folder=self._working,
            progress=ProgressLog("media.downloading", id=download.id),
        )
        try:
            async with contextlib.aclosing(plaintext) as chunks:
                return await self._files.write(chunks, limit=kinds.MAX_SIZE, check=check)
        except Unauthorized as error:
            # The token is another one once the shard is opened again.
            raise NetworkAway(str(error)) from error
        except FileLost as error:
            raise DownloadFailed("the network does not have the file: HTTP 404", is_final=True) from error
        except NetworkRefusal as error:
            raise DownloadFailed(f"the network refuses the file: HTTP {error.status}", is_final=True) from error
        except (e2ee.InvalidMessage, FileTooLarge, FileEmpty) as error:
            # All of it came: a transfer that breaks off is the network's failure, and is made again.
            raise DownloadFailed(str(error), is_final=True) from error


class _Fits:
    """Sees the beginning of a file: is it of the type that the message says?"""

    def __init__(self, media_type: kinds.MediaType | None) -> None:
        self._type = media_type
        self.fits = media_type is not None

    def __call__(self, head: bytes) -> None:
        if self._type is None:
            return
        if self._type.kind == kinds.STICKER:
            # Recipients may send stickers that a business may not.
            self.fits = signatures.is_webp(head)
            return
        try:
            self._type.check(head[: kinds.HEAD])
        except UnusableType:
            self.fits = False


def _type(given: str) -> tuple[str, _Fits]:
    """The type that a recipient gives in a form that is fit for headers, and what checks the file for it."""
    try:
        media_type = kinds.parse(given)
    except UnusableType:
        return kinds.UNKNOWN, _Fits(None)
    return media_type.text, _Fits(media_type)


def _is_hash(given: str, sha256: str) -> bool:
    """Does a sender's hash, in hex or in base64, say the same as ours?"""
    if given.lower() == sha256:
        return True
    try:
        return base64.b64decode(given, validate=True).hex() == sha256
    except (binascii.Error, ValueError):
        return False
