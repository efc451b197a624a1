"""Downloads of files that recipients sent. The callback of a message with a file is written once the file is stored, or
has finally failed.

A download is committed with its message. Its end is committed together with the file's row and the callback, so there
is exactly one callback after any crash. A file whose row was never committed is an orphan, which the media collector
deletes.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import time
from collections.abc import Sequence

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.media.due_downloads import WaitingDownloads
from coreapp.media.errors import DownloadFailed
from coreapp.media.fetching import Fetcher
from coreapp.media.retry import LAST_ATTEMPT, GiveUpDownload, after_failure, delay
from coreapp.webhook import bodies, events, inbound
from tidings import e2ee
from tidings.aio import service
from tidings.client.errors import NetworkUnavailable
from tidings.media.errors import DiskFull
from tidings.storage.business import media_downloads
from tidings.storage.business.callbacks import CLOUD_MESSAGE, Callback
from tidings.storage.business.media import MediaRow
from tidings.storage.business.media_downloads import Download, WithdrawnDownload
from tidings.wire import codes
from tidings.wire.cloud import media_ids

log = logging.getLogger(__name__)

DOWNLOADS = Counter("tidings_media_downloads_total", "Attempts to fetch a recipient's file", ["type", "result"])

IN_MEMORY = 1_000  # downloads; further ones wait in the table
RETRY_SECONDS = 1.0  # seconds to the next read after a failed one


class _Kept(msgspec.Struct):
    """Data sealed in a download's row."""

    plaintext: bytes
    identity: bodies.DescribedIdentity | None = None


@dataclasses.dataclass(eq=False, slots=True)
class RevokedDownload:
    """Revocation of a message whose download may be in the table without being in memory."""

    entry: WithdrawnDownload
    callbacks: Sequence[Callback]  # callbacks of the message, blank unless the commit finds the download
    is_found: bool = False


@dataclasses.dataclass(eq=False, repr=False)
class Downloads:
    """Service that downloads the files of one shard's inbound messages."""

    name = "media-downloads"

    context: ShardContext
    fetcher: Fetcher

    def __post_init__(self) -> None:
        self._waiting = WaitingDownloads(IN_MEMORY, self.context.clock)
        # Downloads whose end is in the journal. They stay until it is on disk, so that no page loads them again.
        self._ending: set[str] = set()
        # By message and sender: revocations that are in the journal, whose downloads may be loaded before the commit.
        self._revoking: set[tuple[str, str]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._wakeup = service.Wakeup()

    def wants(self, message: inbound.Inbound) -> bool:
        """Return whether the callback of this message must wait for its file."""
        wanted = self.context.config.settings.media.auto_download
        # The Cloud API reports a file only with its id.
        return message.pointer is not None and (message.kind in wanted or events.wants_cloud_messages(self.context))

    def make(
        self,
        message_id: str,
        sender: str,
        timestamp: int,
        plaintext: bytes,
        *,
        request_id: str = "",
        group: str = "",
        identity: bodies.DescribedIdentity | None = None,
    ) -> Download:
        """Create a download, to be committed in the same change as the message and then passed to `offer`.

        timestamp: time of the message, Unix milliseconds
        plaintext: content of the message
        group: id of the group that it was sent to, empty for none
        identity: sender's identity for the webhook, None to omit it
        """
        content = msgspec.msgpack.encode(_Kept(plaintext, identity))
        return Download(
            message_id,
            self.context.shard,
            self.context.account,
            sender,
            group,
            self.context.device.sealer.seal(content, context=self._sealing_context(message_id)),
            timestamp,
            self.context.now(),
            request_id=request_id,
        )

    @property
    def waiting(self) -> int:
        """Downloads in memory, including running ones."""
        return len(self._waiting)

    @property
    def left(self) -> int:
        """Number of downloads that have ended since the start."""
        return self._waiting.left

    @property
    def oldest(self) -> int | None:
        """Creation time of the oldest download in memory, Unix milliseconds; None without downloads."""
        return self._waiting.oldest

    @property
    def under_way(self) -> int:
        return len(self._running)

    def offer(self, downloads: Sequence[Download]) -> None:
        """Start downloads that are on disk."""
        if downloads:
            self._waiting.offer(downloads)
            self._wakeup.wake()

    def withdraw(self, message_id: str, sender: str, fresh: list[Download]) -> Sequence[Callback] | None:
        """Return the callbacks without the file if the sender revokes a message whose file is still pending; otherwise
        None.

        The caller commits the callbacks together with the end of the download, and then calls `ended`.

        fresh: downloads that are not committed yet; a match is removed from it
        """
        for new in fresh:
            if new.id == message_id and new.sender == sender:
                fresh.remove(new)
                return self._callbacks(new, *self._read(new))
        download = self._waiting.find(message_id)
        if download is None or download.sender != sender or message_id in self._ending:
            return None
        self._ending.add(message_id)
        return self._callbacks(download, *self._read(download))

    def revoke(self, message_id: str, sender: str) -> RevokedDownload | None:
        """Return the revocation of a message whose download is not in memory; None if no download is in the table only.

        The caller commits it with its callbacks, and then calls `revoked`. A download that the commit finds ends
        without its file.
        """
        if not self._waiting.has_more:
            return None
        blanks = {}
        for subject, kind in (message_id, "inbound_message"), (events.cloud_subject(message_id), CLOUD_MESSAGE):
            blanks[subject] = self.context.callback(subject, kind, b"", recipient=sender)
            blanks[subject].blank = True

        def found(download: Download) -> None:
            revocation.is_found = True
            for callback in self._callbacks(download, *self._read(download)):
                blanks[callback.subject].fill(callback)

        entry = WithdrawnDownload(message_id, self.context.account, sender, found)
        revocation = RevokedDownload(entry, list(blanks.values()))
        self._revoking.add((message_id, sender))
        return revocation

    def revoked(self, revocations: Sequence[RevokedDownload]) -> None:
        """Drop the downloads of revocations that are on disk."""
        for revocation in revocations:
            self._revoking.discard((revocation.entry.id, revocation.entry.sender))
        self.ended([revocation.entry.id for revocation in revocations if revocation.is_found])

    def ended(self, message_ids: Sequence[str]) -> None:
        """Drop downloads whose end is on disk."""
        for message_id in message_ids:
            self._waiting.done(message_id)
            self._ending.discard(message_id)

    async def run(self, stop: asyncio.Event) -> None:
        try:
            with self._wakeup.woken_by(stop):
                while not stop.is_set():
                    await self.run_once()
                    # With every slot taken, the next event is the end of a download.
                    free = len(self._running) < self.context.settings.media_transfers
                    await self._wakeup.wait(self._waiting.seconds() if free else None)
        finally:
            await service.cancel(self._running)

    async def run_once(self) -> None:
        """Start the downloads that are due, up to the limit."""
        if self._waiting.wants_more:
            await self._load()
        while (
            len(self._running) < self.context.settings.media_transfers
            and (download := self._waiting.take()) is not None
        ):
            task = asyncio.create_task(self._attempt(download), name=f"download {download.id}")
            self._running.add(task)
            task.add_done_callback(self._attempted)

    def _attempted(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The download exists on disk only: the shard must be reopened.
            log.error("download.broken", exc_info=error)
            self.context.journal.fail(error)
        self._wakeup.wake()

    async def _load(self) -> None:
        requested = self._waiting.loading()
        try:
            page = await self.context.database.query(
                lambda connection: media_downloads.list_downloads(connection, self.context.shard, limit=requested)
            )
            now = await self.context.time_of_expiry() if page else None
        except Exception:
            log.exception("downloads.load_failed")
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._wakeup.wake)
            return
        self._waiting.loaded(page, requested, now)

    async def _attempt(self, download: Download) -> None:
        async with (self.context.upstream or self.context.shared).downloads:
            await self._try(download)

    async def _try(self, download: Download) -> None:
        """Run one attempt. It is recorded on disk first, so that a file that crashes the process is not retried
        forever.
        """
        if self._is_withdrawn(download):
            return
        started = time.monotonic()
        download.attempt += 1
        download.due_at = int((self.context.clock.now() + delay(download.attempt)) * 1000)
        await self.context.journal.put(Change(self.context.account, tried_downloads=(copy.copy(download),)))
        message, identity = self._read(download)
        try:
            if download.attempt > LAST_ATTEMPT:
                raise DownloadFailed("no attempt to fetch the file completed", is_final=True)
            medium = await self.fetcher.fetch(download, message)
        except Exception as error:
            # An error about one file must not end the shard.
            if not isinstance(error, DownloadFailed | NetworkUnavailable | DiskFull | OSError):
                log.exception("download.unexpected", extra={"id": download.id})
                error = DownloadFailed("the file cannot be read", is_final=False)
            verdict = after_failure(error, download.attempt, self._waiting.age(download.id))
            self._note(
                download, message, started, "gave up" if isinstance(verdict, GiveUpDownload) else "failed", repr(error)
            )
            if isinstance(verdict, GiveUpDownload):
                await self._finish(download, message, identity, (codes.MEDIA_DOWNLOAD, verdict.details))
            else:
                self._waiting.again(download)
            return
        if not download.group_id and events.wants_cloud_messages(self.context):
            medium = dataclasses.replace(medium, cloud_expires_at=medium.created_at + media_ids.RECEIVED_MS)
        await self._finish(download, self.fetcher.complete(message, medium), identity, None, medium)
        self._note(download, message, started, "stored", "")

    async def _finish(
        self,
        download: Download,
        message: inbound.Inbound,
        identity: bodies.DescribedIdentity | None,
        error: tuple[int, str] | None,
        medium: MediaRow | None = None,
    ) -> None:
        """Commit the callback, the file's row and the end of the download, all or nothing."""
        if self._is_withdrawn(download):
            if medium is not None:
                await self.fetcher.discard(medium)
            return
        self._ending.add(download.id)
        await self.context.journal.put(
            Change(
                self.context.account,
                new_media=(medium,) if medium is not None else (),
                finished_downloads=(download.id,),
                new_callbacks=self._callbacks(download, message, identity, error),
            )
        )
        self.ended((download.id,))

    def _is_withdrawn(self, download: Download) -> bool:
        is_revoked = (download.id, download.sender) in self._revoking
        return is_revoked or download.id in self._ending or self._waiting.find(download.id) is not download

    def _callbacks(
        self,
        download: Download,
        message: inbound.Inbound,
        identity: bodies.DescribedIdentity | None,
        error: tuple[int, str] | None = None,
    ) -> Sequence[Callback]:
        return events.inbound(
            self.context,
            download.id,
            download.sender,
            download.timestamp // 1000,
            message,
            error=error,
            identity=identity,
            group_id=download.group_id,
            request_id=download.request_id,
        )

    def _read(self, download: Download) -> tuple[inbound.Inbound, bodies.DescribedIdentity | None]:
        try:
            opened = self.context.device.sealer.open(download.content, self._sealing_context(download.id))
            kept = msgspec.msgpack.decode(opened, type=_Kept)
        except (e2ee.CorruptState, ValueError) as error:
            log.error("download.unreadable", extra={"id": download.id, "error": repr(error)})
            return inbound.read(b""), None
        message = inbound.read(kept.plaintext)
        if message.context is not None:
            # Only the network knows the group that it was sent to.
            message.context.group_id = download.group_id or None
        return message, kept.identity

    def _sealing_context(self, message_id: str) -> tuple[str, str, str, str]:
        return (self.context.account, "", "download", message_id)

    def _note(self, download: Download, message: inbound.Inbound, started: float, result: str, error: str) -> None:
        DOWNLOADS.labels(message.kind, result).inc()
        log.log(
            logging.WARNING if error else logging.INFO,
            "media.downloaded",
            extra={
                "id": download.id,
                "from": download.sender,
                "kind": message.kind,
                "request_id": download.request_id,
                "attempt": download.attempt,
                "result": result,
                "error": error,
                "ms": int((time.monotonic() - started) * 1000),
            },
        )
