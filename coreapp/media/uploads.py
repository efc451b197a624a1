"""Storing a file in the network, encrypted under a key of its own, for as long as it takes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from prometheus_client import Counter

from coreapp.media.errors import SourceFailed
from coreapp.media.progress import ProgressLog
from coreapp.sending import failures
from tidings.client import attachments
from tidings.client.errors import FileChanged, NetworkAway, NetworkRefusal, Unauthorized
from tidings.client.http import DeviceCredentials, NetworkApi
from tidings.media import kinds
from tidings.media.errors import FileGone
from tidings.media.reading import OpenReader
from tidings.wire import codes
from tidings.wire.media_objects import FilePointer

log = logging.getLogger(__name__)

UPLOADS = Counter("tidings_media_uploads_total", "Files stored in the network", ["type", "result"])

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 15.0

# Told in a few words, without names or content, why a file has to be tried again.
HeldUp = Callable[[str], None]


class Uploader:
    """Files that go up wait for a place, in the order in which they came."""

    def __init__(self, network: NetworkApi, device: DeviceCredentials, places: asyncio.Semaphore) -> None:
        """places: of uploads at the same time."""
        self._network = network
        self._device = device
        self._places = places

    async def upload(
        self,
        open_file: OpenReader,
        size: int,
        sha256: str,
        mime_type: str,
        *,
        filename: str,
        part: str,
        about: str,
        held_up: HeldUp,
    ) -> tuple[FilePointer, int]:
        """The pointer to a file, and the Unix milliseconds at which it ends.

        Waits while the network is away, or the file cannot be read now: an error of the disk says nothing of the file,
        unless the file is not there, or is another one than was stored.

        part: the field of a media object that is to blame when it fails; about: for the log; held_up: told of each
        attempt that is made again.
        Raises `SourceFailed`.
        """
        delay, kind = FIRST_RETRY_SECONDS, kinds.kind_of(mime_type)
        while True:
            try:
                async with self._places:
                    found = await self._try(open_file, size, sha256, mime_type, filename=filename, about=about)
                UPLOADS.labels(kind, "stored").inc()
                return found
            except (NetworkAway, Unauthorized) as error:
                # Unauthorized: the token is another one once the shard is opened again.
                UPLOADS.labels(kind, "away").inc()
                log.warning("media.waiting", extra={"media": about, "error": str(error)[:200]})
                held_up(failures.no_answer(error) if isinstance(error, NetworkAway) else failures.LOGGED_OUT)
            except NetworkRefusal as error:
                UPLOADS.labels(kind, "refused").inc()
                log.error("media.refused", extra={"media": about, "error": str(error)[:200]})
                raise SourceFailed(
                    codes.MESSAGE_FAILED, part, f"the network does not take the file: HTTP {error.status}"
                ) from None
            except FileGone:
                raise SourceFailed(codes.NOT_FOUND, part, "the file is not there any more") from None
            except FileChanged as error:
                log.error("media.damaged", extra={"media": about, "error": repr(error)})
                raise SourceFailed(codes.MESSAGE_FAILED, part, "the file cannot be read") from None
            except OSError as error:
                UPLOADS.labels(kind, "unreadable").inc()
                log.error("media.unreadable", extra={"media": about, "error": repr(error)})
                held_up(failures.FILE_UNREADABLE)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _try(
        self, open_file: OpenReader, size: int, sha256: str, mime_type: str, *, filename: str, about: str
    ) -> tuple[FilePointer, int]:
        started = time.monotonic()
        found = await attachments.upload(
            self._network,
            self._device,
            open_file,
            size,
            mime_type=mime_type,
            sha256=sha256,
            filename=filename or None,
            progress=ProgressLog("media.uploading", media=about),
        )
        log.info(
            "media.stored",
            extra={"media": about, "bytes": size, "ms": int((time.monotonic() - started) * 1000)},
        )
        return found
