"""Download and verification of the files that robots receive. The result is logged and counted, and no file is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping

from prometheus_client import Counter

from handset.application import ReceivedMessage
from handset.attachments import pointers, transfer
from handset.attachments.pointers import AttachmentPointer
from handset.devices.device import Device
from tidings.aio.service import run_workers, wait_for
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.client.http import NetworkApi

log = logging.getLogger(__name__)

FILES = Counter("tidings_handset_files_total", "Files that robots received", ["result"])

QUEUE_LIMIT = 10_000  # files; further ones are counted as skipped
AT_ONCE = 16
ATTEMPTS = 5
FIRST_RETRY_SECONDS = 0.5


class FileChecker:
    """Service that fetches and verifies files. Files that still wait when it stops are not fetched."""

    name = "files"

    def __init__(self, api: NetworkApi, devices: Mapping[str, Device]) -> None:
        """Create the service.

        devices: by number
        """
        self._api = api
        self._devices = devices
        self._waiting: asyncio.Queue[tuple[ReceivedMessage, AttachmentPointer]] = asyncio.Queue(QUEUE_LIMIT)

    def offer(self, message: ReceivedMessage) -> None:
        """Queue the files of a message, if it has any."""
        if not message.raw:
            return
        for pointer in pointers.find(message.type, message.raw):
            try:
                self._waiting.put_nowait((message, pointer))
            except asyncio.QueueFull:
                FILES.labels("skipped").inc()

    async def run(self, stop: asyncio.Event) -> None:
        await run_workers(stop, *(self._work(stop) for _ in range(AT_ONCE)))

    async def check(self, message: ReceivedMessage, pointer: AttachmentPointer, stop: asyncio.Event) -> str:
        """Fetch a file, and return `opened` or the name of the last error."""
        device = self._devices[message.number]
        started, delay, result, detail = time.monotonic(), FIRST_RETRY_SECONDS, "", ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with contextlib.aclosing(transfer.fetch(self._api, device, pointer)) as chunks:
                    async for _ in chunks:
                        pass
                result, detail = "opened", ""
            except NetworkUnavailable as error:
                result, detail = "NetworkAway", str(error)
                if attempt < ATTEMPTS and not await wait_for(stop, delay):
                    delay *= 2
                    continue
            except (ClientError, OSError) as error:
                result, detail = type(error).__name__, str(error)
            break
        FILES.labels(result).inc()
        log.log(
            logging.INFO if result == "opened" else logging.WARNING,
            "file.checked",
            extra={
                "number": message.number,
                "id": message.id,
                "kind": pointer.kind,
                "mime_type": pointer.mime_type,
                "bytes": pointer.size,
                "sha256": pointer.sha256,
                "result": result,
                "error": detail,
                "ms": int((time.monotonic() - started) * 1000),
            },
        )
        return result

    async def _work(self, stop: asyncio.Event) -> None:
        while True:
            message, pointer = await self._waiting.get()
            await self.check(message, pointer, stop)
