"""Files of messages in the Cloud API: uploaded before a message names them, and fetched when a recipient sends one.

A pointer stands for a file of the Cloud API: its `blob` is the id there, and it has no key, because nothing is
encrypted. So the queue, the rows and the retries are those of files in the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from coreapp.context import ShardContext
from coreapp.graph_api.client import CloudResponse, FileForm, GraphClient, NotPosted, ResponseMissing
from coreapp.graph_api.pace import MAX_BACKOFF
from coreapp.graph_api.refused_files import FileRefusal, RefusedFiles
from coreapp.media.errors import DownloadFailed, SourceFailed
from coreapp.media.fetching import Fetcher
from coreapp.media.pointers import MediaContent
from coreapp.media.preparation import Preparation
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.media.uploads import HeldUp, Uploader
from coreapp.media.wiring import FileExchange
from coreapp.sending import failures
from coreapp.upstream import error_codes, outcomes
from coreapp.upstream.bodies import OF_POINTERS
from coreapp.upstream_access import UpstreamAccess
from tidings.client.errors import NetworkUnreached
from tidings.egress.download import Downloader, DownloadTooLarge
from tidings.egress.guard import EgressGuard
from tidings.media import kinds
from tidings.media.errors import FileGone
from tidings.media.reading import MediaReader, OpenReader
from tidings.objects.store import BLOCK, StoredObject
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.media_downloads import Download
from tidings.wire import codes, media_objects
from tidings.wire.decoding import UNREADABLE
from tidings.wire.media_objects import FilePointer, Pointer

log = logging.getLogger(__name__)

SEALED_AS = "upstream media"
LIFETIME_MS = 29 * 24 * 3600 * 1000  # use of an uploaded file; the Cloud API deletes it after 30 days
FIRST_RETRY_SECONDS = 1.0
FETCH_SECONDS = 600.0  # seconds to fetch a file of a recipient
AWAY = "the Cloud API does not take the file now"
_NO_BYTES = bytes(32)
_NO_KEY = bytes(64)

Access = Callable[[], UpstreamAccess | None]


class _Id(msgspec.Struct):
    id: str


class _File(msgspec.Struct):
    url: str


class UploadedFiles(MediaContent):
    """Content of a message with the files to upload. The Cloud API itself fetches links without a provider."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__(encoded)
        self.objects = {path: (kind, found) for path, (kind, found) in self.objects.items() if _is_uploaded(found)}

    def point(self, path: str, pointer: FilePointer) -> None:
        """Replace `id` or `link` by a pointer, and keep them as `source`, from which a lost file is uploaded again."""
        found = self.objects[path][1]
        source = {name: found[name] for name in ("id", "link", "provider") if name in found}
        super().point(path, pointer)
        found["source"] = source


def uploaded_ids(content: bytes) -> Sequence[str]:
    """Return the ids of a message's files in the Cloud API; none for a message without uploaded files."""
    return _without_pointers(content)[1]


async def upload_again(preparation: Preparation, content: bytes, held_up: HeldUp) -> bytes:
    """Return the content of a message whose files the Cloud API has lost, after they were uploaded again, at most once
    for all messages that name them. Raises `MediaFailed`.

    held_up: called for each attempt that will be repeated
    """
    original, blobs = _without_pointers(content)
    preparation.invalidate(blobs)
    return await preparation.prepare(original, held_up)


def _without_pointers(content: bytes) -> tuple[bytes, Sequence[str]]:
    """Return a content as it was before its files were uploaded, and their ids in the Cloud API."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Any])
    except UNREADABLE:
        return content, ()
    kind = str(fields.get("type"))
    blobs = []
    for _, _, found in media_objects.find(kind, fields.get(kind), kinds.KINDS):
        source = found.get("source")
        if "blob" not in found or not isinstance(source, dict):
            continue
        blobs.append(str(found["blob"]))
        for name in OF_POINTERS:
            found.pop(name, None)
        found.update(source)
    return msgspec.json.encode(fields), blobs


def _is_uploaded(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    provider = found.get("provider")
    return bool(found.get("id")) or bool(isinstance(provider, dict) and provider.get("name"))


class UpstreamQueue(PreparationQueue):
    """Messages whose files are being uploaded. A message whose post has begun needs them only if it is posted again."""

    @classmethod
    def like(cls, queue: PreparationQueue) -> UpstreamQueue:
        """Create the replacement of a queue."""
        return cls(
            queue.preparation, forward=queue.forward, fail=queue.fail, held_up=queue.held_up, broken=queue.broken
        )

    def resume(self, job: Job, content: bytes) -> None:
        if job.state == JobForm.POSTED:
            self.forward(job, content)
        else:
            super().resume(job, content)


@dataclasses.dataclass(eq=False, repr=False, slots=True, kw_only=True)
class UpstreamUploader(Uploader):
    """Uploads files to the Cloud API, where each is kept for 30 days."""

    client: GraphClient
    refused: RefusedFiles
    access: Access
    now: Callable[[], int]  # returns Unix milliseconds

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
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                async with self.slots:
                    self._require_not_refused(sha256, mime_type, part)
                    reader = await open_file()
                    response = await self._post(reader, size, mime_type, filename)
            except FileGone:
                raise SourceFailed(codes.NOT_FOUND, part, "the file no longer exists") from None
            except OSError as error:
                log.error("media.unreadable", extra={"media": about, "error": repr(error)})
                held_up(failures.FILE_UNREADABLE)
            else:
                media_id = self._uploaded_id(response, sha256, mime_type, part) if response is not None else ""
                if media_id:
                    found = FilePointer(
                        media_id, _NO_KEY, _NO_BYTES, size, mime_type, sha256, filename=filename or None
                    )
                    return found, self.now() + LIFETIME_MS
                held_up(AWAY)
            await asyncio.sleep(delay)
            delay = min(4 * delay, MAX_BACKOFF)

    def _require_not_refused(self, sha256: str, mime_type: str, part: str) -> None:
        """Raise `SourceFailed` for a file that was refused lately."""
        refusal = self.refused.find((sha256, mime_type))
        if refusal is not None:
            raise SourceFailed(refusal.code, part, refusal.details)

    def _uploaded_id(self, response: CloudResponse, sha256: str, mime_type: str, part: str) -> str:
        """Return the id of an uploaded file; empty if it must be uploaded again later. Raises `SourceFailed`."""
        media_id, refusal = _outcome(response)
        if refusal is not None:
            self.refused.add((sha256, mime_type), refusal)
            raise SourceFailed(refusal.code, part, refusal.details)
        return media_id

    async def _post(self, reader: MediaReader, size: int, mime_type: str, filename: str) -> CloudResponse | None:
        """Upload a file once. Returns None if it must be tried again: a second upload does no harm."""
        access = self.access()
        try:
            if access is None or not access.token:
                return None
            form = FileForm({"messaging_product": "whatsapp", "type": mime_type}, filename or "file", mime_type)
            url = access.url(f"{access.upstream.phone_number_id}/media")
            return await self.client.upload(url, access.token, form, size, _pieces(reader))
        except (NotPosted, ResponseMissing) as error:
            log.warning("media.waiting", extra={"error": str(error)[:200]})
            return None
        finally:
            await reader.close()


async def _pieces(reader: MediaReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(BLOCK):
        yield piece


def _outcome(response: CloudResponse) -> tuple[str, FileRefusal | None]:
    """Return the id of an uploaded file, or why it is refused; neither if it must be uploaded again later."""
    if 200 <= response.status < 300:
        with contextlib.suppress(*UNREADABLE):
            return msgspec.json.decode(response.content, type=_Id).id[:64], None
    error = outcomes.find_error(response.content)
    if error is None or response.status >= 500:
        return "", None
    if (
        error_codes.stops_number(error.code, error.error_subcode or 0)
        or error_codes.delays_number(error.code)
        or response.status == 429
    ):
        return "", None
    return "", FileRefusal(codes.MEDIA_DOWNLOAD, f"the Cloud API refuses the file: {error.shown}")


@dataclasses.dataclass(eq=False, repr=False, slots=True, kw_only=True)
class UpstreamFetcher(Fetcher):
    """Downloads files of recipients from the Cloud API: first their URL, then the file."""

    client: GraphClient
    access: Access
    downloader: Downloader

    def _has_size(self, pointer: Pointer, stored: StoredObject) -> bool:
        """Return true: webhooks of the Cloud API name no size."""
        return True

    async def _plaintext(self, download: Download, pointer: Pointer) -> AsyncGenerator[bytes, None]:
        access = self.access()
        if access is None or not access.token:
            raise NetworkUnreached("the number has no credentials of the Cloud API")
        path = f"{pointer.blob}?phone_number_id={access.upstream.phone_number_id}"
        try:
            response = await self.client.get(access.url(path), access.token)
        except (NotPosted, ResponseMissing) as error:
            raise NetworkUnreached(str(error)) from error
        url = _url_of(response)
        headers = {"Authorization": f"Bearer {access.token}"}
        try:
            async with self.downloader.fetch(url, headers, limit=kinds.MAX_SIZE, seconds=FETCH_SECONDS) as found:
                if found.status >= 500 or found.status in (408, 425, 429):
                    raise NetworkUnreached(f"the Cloud API's files: HTTP {found.status}")
                if found.status != 200:
                    # The URL is valid for 5 minutes; the next attempt gets another one.
                    raise DownloadFailed(f"the Cloud API does not have the file: HTTP {found.status}", is_final=False)
                async for chunk in found.chunks():
                    yield chunk
        except ssl.SSLCertVerificationError as error:
            # A `ValueError` too.
            raise NetworkUnreached(repr(error)) from error
        except (DownloadTooLarge, ValueError) as error:
            raise DownloadFailed(str(error), is_final=True) from error


def _url_of(response: CloudResponse) -> str:
    """Return the URL of a file. Raises `DownloadFailed`, and `NetworkUnreached` if it must be tried again."""
    if response.status == 200:
        with contextlib.suppress(*UNREADABLE):
            return msgspec.json.decode(response.content, type=_File).url
    error = outcomes.find_error(response.content)
    if error is not None and error.code == 100:
        # Expired after 7 days, or of another number.
        raise DownloadFailed(f"the Cloud API does not have the file: {error.shown}", is_final=True)
    raise NetworkUnreached(error.shown if error is not None else f"HTTP {response.status}")


def exchange_of(context: ShardContext) -> FileExchange | None:
    """Return where files go and come from; None for a number that uses the network."""
    if context.upstream is None:
        return None
    client, config = context.upstream.client, context.config

    def access() -> UpstreamAccess | None:
        return config.upstream

    uploader = UpstreamUploader(
        context.network,
        context.device,
        context.upstream.uploads,
        client=client,
        refused=context.upstream.refused_files,
        access=access,
        now=context.now,
    )
    fetcher = UpstreamFetcher(
        context.network,
        context.device,
        context.files,
        working=context.working.directory,
        clock=context.clock,
        client=client,
        access=access,
        downloader=Downloader(EgressGuard(context.settings.outgoing_webhooks), cpu_limit=context.shared.media_reads),
    )
    return FileExchange(uploader=uploader, fetcher=fetcher, parse=UploadedFiles, sealed_as=SEALED_AS)
