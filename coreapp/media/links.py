"""Files that a message names by link: fetched through the egress guard, checked, uploaded to the network, and not kept.

A fault of the link or its server fails the message. A fault of our disk does not: the message waits, as it does while
the network is unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import logging
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Mapping

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.media.errors import DiskUnavailable, SourceFailed
from coreapp.media.pointers import MediaSource
from coreapp.media.preparation import FoundMedia
from coreapp.media.uploads import HeldUp, Uploader
from coreapp.sending import failures
from tidings.e2ee.installation_secrets import UnreadableSecret, provider_label
from tidings.egress import urls
from tidings.egress.download import Downloader, DownloadTooLarge
from tidings.egress.guard import Forbidden
from tidings.egress.providers import ProviderCredentials
from tidings.media import kinds
from tidings.media.errors import DiskFull, FileEmpty, FileTooLarge, UnusableType
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import StoredObject, open_reader
from tidings.storage.business import media_providers
from tidings.wire import codes

log = logging.getLogger(__name__)

LINKS = Counter("tidings_media_links_total", "Links that were fetched", ["result"])

# Linked files on our disk at the same time, from the first byte until they are in the network.
AT_ONCE = 16
# Fetches from one host among these. A dead host holds its slots for the whole timeout and must leave some to others.
AT_ONCE_FROM_HOST = 4
TRIES = 3  # attempts at a server that fails, all within the timeout of the link
RETRY_SECONDS = 0.5  # seconds between two attempts
FIRST_WAIT_SECONDS = 0.5  # seconds of the first delay while the disk is unusable
LAST_WAIT_SECONDS = 15.0  # longest delay, seconds
_GONE = (404, 410)
# Errors of a connection that are caused by our machine and not by the server.
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


class _DiskTime:
    """Seconds for which the chunks of a fetch were being written."""

    def __init__(self) -> None:
        self._ended = 0.0
        self._since: float | None = None  # `time.monotonic()` at which the server's last chunk was passed on

    @property
    def seconds(self) -> float:
        return self._ended + (time.monotonic() - self._since if self._since is not None else 0.0)

    def starts(self) -> None:
        self._since = time.monotonic()

    def ends(self) -> None:
        self._ended, self._since = self.seconds, None


class _TryAgain(Exception):
    """The server may succeed in a moment. The text is for the business."""


@dataclasses.dataclass(eq=False, repr=False)
class LinkedMedia:
    """Fetches links for one account. A fetched file serves all messages that name the link within the cache time."""

    context: ShardContext
    files: DirectoryStore
    uploader: Uploader

    def __post_init__(self) -> None:
        self._downloader = Downloader(self.context.media_guard, cpu_limit=self.context.shared.media_reads)
        self._slots = asyncio.Semaphore(AT_ONCE)
        # A host has an entry while a fetch from it is running or waiting.
        self._hosts: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def find(self, source: MediaSource, held_up: HeldUp) -> FoundMedia:
        """Return the pointer of a link's file. Waits while the network or the disk is unusable. Raises
        `SourceFailed`.
        """
        headers = await self._credentials(source) if source.provider else {}
        delay = FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._find(source, headers, held_up)
            except DiskUnavailable as error:
                # It waits without a slot, because a smaller file may still fit.
                _log_disk(source, error)
                held_up(failures.DISK_AWAY)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_WAIT_SECONDS)

    async def _find(self, source: MediaSource, headers: Mapping[str, str], held_up: HeldUp) -> FoundMedia:
        """Fetch and upload the file once. Raises `SourceFailed` and `DiskUnavailable`."""
        from_host = self._hosts.setdefault(_host(source.link), asyncio.Semaphore(AT_ONCE_FROM_HOST))
        # The slot of the host comes first: fetches that wait for a busy host hold no global slot.
        async with contextlib.AsyncExitStack() as turn:
            await turn.enter_async_context(from_host)
            async with self._slots:
                await self._until_room(source, held_up)
                until = self.context.clock.now() + self.context.settings.media_link_cache
                stored, mime_type = await self._fetch(source, headers)
                try:
                    await turn.aclose()
                    pointer, _ = await self.uploader.upload(
                        functools.partial(open_reader, self.files, stored.name),
                        stored.size,
                        stored.sha256,
                        mime_type,
                        filename="",
                        part="link",
                        about=_origin(source.link),
                        held_up=held_up,
                    )
                except SourceFailed as failed:
                    if failed.code != codes.NOT_FOUND:
                        raise
                    # It waited so long that it was deleted as an orphan. It is fetched again.
                    raise DiskUnavailable("the file was deleted while it waited") from None
                finally:
                    await asyncio.shield(self._delete(stored))
        return FoundMedia(pointer, until)

    async def _until_room(self, source: MediaSource, held_up: HeldUp) -> None:
        """Wait while the disk has no free space. The slot is kept, because no other fetch could proceed; no server is
        contacted. Raises `DiskUnavailable`.
        """
        delay = FIRST_WAIT_SECONDS
        while True:
            try:
                if await asyncio.to_thread(self.files.free):
                    return
            except OSError as error:
                raise DiskUnavailable(repr(error)) from error
            _log_disk(source, DiskFull())
            held_up(failures.DISK_AWAY)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_WAIT_SECONDS)

    async def _delete(self, stored: StoredObject) -> None:
        try:
            await self.files.delete([stored.name])
        except OSError as error:
            # Without a row it is an orphan, which the collector deletes.
            log.error("media.not_deleted", extra={"file": stored.name, "error": repr(error)})

    async def _credentials(self, source: MediaSource) -> Mapping[str, str]:
        """Return the header of a provider's configuration, for the hosts bound to it only. Raises `SourceFailed`.

        A provider without hosts is usable by administrators only, which the Webapp enforces, since they know the
        credentials.
        """
        name = source.provider
        found = await self.context.database.query(
            lambda connection: media_providers.find_provider(connection, self.context.account, name)
        )
        if found is None:
            raise SourceFailed(codes.NOT_FOUND, "provider.name", "there is no media provider with this name")
        try:
            opened = self.context.safe.open(self.context.account, provider_label(name), found.config)
            config = msgspec.json.decode(opened, type=ProviderCredentials)
        except (UnreadableSecret, ValueError) as error:
            log.error("providers.unreadable", extra={"error": str(error)})
            raise SourceFailed(
                codes.MESSAGE_FAILED, "provider.name", "the provider's credentials cannot be read: set them again"
            ) from None
        if config.hosts and not config.is_for(source.link):
            raise SourceFailed(codes.PARAMETER_INVALID, "link", "its host is not one of the provider's hosts")
        return {"Authorization": config.authorization} if config.authorization else {}

    async def _fetch(self, source: MediaSource, headers: Mapping[str, str]) -> tuple[StoredObject, str]:
        """Fetch the file to our disk and return it with its type. Counted and logged."""
        started = time.monotonic()
        try:
            found = await self._fetch_in_time(source, headers)
        except SourceFailed as failed:
            LINKS.labels("failed").inc()
            _log(source, started, failed.why)
            raise
        except DiskUnavailable:
            LINKS.labels("disk").inc()
            raise
        LINKS.labels("fetched").inc()
        _log(source, started, "")
        return found

    async def _fetch_in_time(self, source: MediaSource, headers: Mapping[str, str]) -> tuple[StoredObject, str]:
        deadline = time.monotonic() + self.context.settings.media_link_timeout
        for attempt in range(1, TRIES + 1):
            try:
                return await self._try(source, headers, max(0.0, deadline - time.monotonic()))
            except _TryAgain as failed:
                if attempt == TRIES or time.monotonic() + RETRY_SECONDS >= deadline:
                    raise SourceFailed(codes.MEDIA_DOWNLOAD, "link", str(failed)) from None
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("the last try returns or raises")

    async def _try(self, source: MediaSource, headers: Mapping[str, str], seconds: float) -> tuple[StoredObject, str]:
        """Fetch the file once. Raises `SourceFailed`, `DiskUnavailable` and `_TryAgain`, which permits a retry."""
        limit, timeout, disk = kinds.LIMITS[source.kind], self.context.settings.media_link_timeout, _DiskTime()
        try:
            async with self._downloader.fetch(source.link, headers, limit=limit, seconds=seconds) as response:
                _require_file(response.status)
                check = _TypeDetector(source, response.headers.get("content-type", ""))
                return await self._write(_served(response.chunks(), disk), limit, check), check.mime_type
        except ssl.SSLCertVerificationError:
            # `SSLCertVerificationError` is a `ValueError` too.
            raise SourceFailed(
                codes.MEDIA_DOWNLOAD, "link", "could not be fetched: the certificate is not good"
            ) from None
        except ValueError:
            raise SourceFailed(codes.PARAMETER_INVALID, "link", "is no URL that can be fetched") from None
        except Forbidden as error:
            log.warning("media.forbidden", extra={"error": str(error)})
            raise SourceFailed(
                codes.PARAMETER_INVALID, "link", f"leads to {error.reason}, which is not allowed"
            ) from None
        except (DownloadTooLarge, FileTooLarge):
            raise SourceFailed(
                codes.PARAMETER_INVALID, "link", f"the file is over the limit of {limit} bytes for {source.kind}"
            ) from None
        except UnusableType as error:
            code = codes.MEDIA_FORMAT if source.in_template else codes.PARAMETER_INVALID
            raise SourceFailed(code, "link", str(error)) from None
        except FileEmpty as error:
            raise SourceFailed(codes.PARAMETER_INVALID, "link", str(error)) from None
        except TimeoutError:
            if disk.seconds >= timeout / 2:
                raise DiskUnavailable(f"the disk took {disk.seconds:.1f} seconds") from None
            raise SourceFailed(
                codes.MEDIA_DOWNLOAD, "link", f"could not be fetched within {timeout:g} seconds"
            ) from None
        except OSError as error:
            if _OURS & {error.errno, getattr(error.__cause__, "errno", None)}:
                raise DiskUnavailable(repr(error)) from error
            log.info("media.link_failed", extra={"origin": _origin(source.link), "error": repr(error)})
            raise _TryAgain(f"could not be fetched: {type(error).__name__}") from None

    async def _write(self, chunks: AsyncIterator[bytes], limit: int, check: _TypeDetector) -> StoredObject:
        """Write the file. `chunks` must raise no `OSError`, so that each one comes from the disk. Raises
        `DiskUnavailable`, and the other errors of `chunks`.
        """
        try:
            return await self.files.write(chunks, limit=limit, check=check)
        except (DiskFull, OSError) as error:
            raise DiskUnavailable(str(error) or repr(error)) from error


class _TypeDetector:
    """Determines the type of a file from its first bytes. The server's Content-Type decides where the bytes are
    ambiguous.

    A document in a template must be a PDF, whatever the server's Content-Type is.
    """

    def __init__(self, source: MediaSource, content_type: str) -> None:
        self.mime_type = kinds.UNKNOWN
        self._kind = source.kind
        self._is_pdf = source.in_template and source.kind == kinds.DOCUMENT
        self._named = content_type
        try:
            self._declared: kinds.MediaType | None = kinds.parse(content_type)
        except UnusableType:
            self._declared = None

    def __call__(self, head: bytes) -> None:
        if self._is_pdf:
            kinds.parse(kinds.PDF).check(head[: kinds.HEAD])
            self.mime_type = kinds.PDF
            return
        if self._kind == kinds.DOCUMENT:
            if self._declared is not None:
                dataclasses.replace(self._declared, kind=kinds.DOCUMENT).check(head[: kinds.HEAD])
                self.mime_type = self._declared.text
            return
        names = kinds.types_of(self._kind)
        # The server's type is tried first, because several types can have the same first bytes.
        declared = [self._declared.text] if self._declared is not None and self._declared.text in names else []
        # Text: a variable with an exception would keep its frames, and so the connection, until a collection.
        problem = f"the file is of none of the types of {self._kind}: {', '.join(names)}"
        for name in [*declared, *names]:
            try:
                kinds.parse(name).check(head[: kinds.HEAD])
            except UnusableType as error:
                if self._kind == kinds.STICKER:
                    problem = str(error)
                continue
            self.mime_type = name
            return
        raise UnusableType(problem)


async def _served(chunks: AsyncIterator[bytes], disk: _DiskTime) -> AsyncIterator[bytes]:
    """Yield the server's chunks, which are then written. Raises `_TryAgain` where the connection raises `OSError`."""
    try:
        async for chunk in chunks:
            disk.starts()
            yield chunk
            disk.ends()
        disk.starts()
    except OSError as error:
        raise _TryAgain(f"could not be fetched: {type(error).__name__}") from error


def _require_file(status: int) -> None:
    """Raise `SourceFailed` or `_TryAgain` unless the response has the file."""
    if status == 200:
        return
    if status in _GONE:
        raise SourceFailed(codes.NOT_FOUND, "link", f"the server responded with HTTP {status}")
    if 300 <= status < 400:
        raise SourceFailed(
            codes.MEDIA_DOWNLOAD, "link", f"the server responded with HTTP {status}; redirects are not followed"
        )
    if status >= 500 or status in (408, 425, 429):
        raise _TryAgain(f"the server responded with HTTP {status}")
    raise SourceFailed(codes.MEDIA_DOWNLOAD, "link", f"the server responded with HTTP {status}")


def _host(link: str) -> str:
    """Return the host of a link; empty for an invalid URL, which fails before it is fetched."""
    try:
        return urls.parse(link).origin[0]
    except ValueError:
        return ""


def _origin(link: str) -> str:
    """Return a link without its possibly secret parts."""
    try:
        return urls.parse(link).shown
    except ValueError:
        return "no URL"


def _log_disk(source: MediaSource, error: Exception) -> None:
    log.error("media.disk_away", extra={"origin": _origin(source.link), "error": str(error)})


def _log(source: MediaSource, started: float, error: str) -> None:
    log.info(
        "media.fetched",
        extra={
            "origin": _origin(source.link),
            "provider": source.provider,
            "kind": source.kind,
            "ms": int((time.monotonic() - started) * 1000),
            "error": error,
        },
    )
