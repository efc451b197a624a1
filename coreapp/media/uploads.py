"""Upload of a file to the network, encrypted under its own key and retried until it succeeds."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable

from prometheus_client import Counter

from coreapp.media.errors import SourceFailed
from coreapp.media.progress import ProgressLog
from coreapp.sending import failures
from tidings.client import attachments
from tidings.client.errors import FileChanged, NetworkRefusal, NetworkUnavailable, Unauthorized
from tidings.client.http import DeviceCredentials, NetworkApi
from tidings.media import kinds
from tidings.media.errors import FileGone
from tidings.media.reading import OpenReader
from tidings.wire import codes
from tidings.wire.media_objects import FilePointer

log = logging.getLogger(__name__)

UPLOADS = Counter("tidings_media_uploads_total", "Files stored in the network", ["type", "result"])

FIRST_RETRY_SECONDS = 0.5  # delay before the first retry, seconds
LAST_RETRY_SECONDS = 15.0  # longest delay between two attempts, seconds

# Called with a short reason, without names or content, when a file must be tried again.
HeldUp = Callable[[str], None]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Uploader:
    """Uploads files. They wait for a slot in the order of arrival."""

    network: NetworkApi
    device: DeviceCredentials
    slots: asyncio.Semaphore  # slots of concurrent uploads

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
        """Upload a file. Returns its pointer and the Unix milliseconds at which the blob expires.

        Waits while the network is unreachable or the file cannot be read now. An error of the disk does not fail the
        file unless the file is missing or differs from the one stored. Raises `SourceFailed`.

        part: field of the media object to name in an error
        about: identifies the file in the log
        held_up: called for each attempt that will be repeated
        """
        delay, kind = FIRST_RETRY_SECONDS, kinds.kind_of(mime_type)
        while True:
            try:
                async with self.slots:
                    found = await self._try(open_file, size, sha256, mime_type, filename=filename, about=about)
                UPLOADS.labels(kind, "stored").inc()
                return found
            except (NetworkUnavailable, Unauthorized) as error:
                # Unauthorized: reopening the shard loads a new token.
                UPLOADS.labels(kind, "away").inc()
                log.warning("media.waiting", extra={"media": about, "error": str(error)[:200]})
                held_up(failures.no_response(error) if isinstance(error, NetworkUnavailable) else failures.LOGGED_OUT)
            except NetworkRefusal as error:
                UPLOADS.labels(kind, "refused").inc()
                log.error("media.refused", extra={"media": about, "error": str(error)[:200]})
                raise SourceFailed(
                    codes.MESSAGE_FAILED, part, f"the network refuses the file: HTTP {error.status}"
                ) from None
            except FileGone:
                raise SourceFailed(codes.NOT_FOUND, part, "the file no longer exists") from None
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
            self.network,
            self.device,
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
