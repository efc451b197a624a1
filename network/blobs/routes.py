"""HTTP endpoints of blobs: one device uploads a file, and any other that knows its id downloads it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import Counter, Gauge
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from network import http
from network.blobs.store import CHUNK, BlobStore, OpenBlob
from network.directory.directory import Directory
from network.errors import BadRequest, NotFound, RequestError, TooOften, Unavailable
from tidings.aio.slots import Slots
from tidings.media.errors import StoreUnavailable
from tidings.wire import addresses

log = logging.getLogger(__name__)

MOVED = Counter("tidings_network_blob_bytes_total", "Bytes of blobs transferred completely", ["direction"])
TRANSFERS = Gauge("tidings_network_blob_transfers", "Transfers of blobs in progress")

# Seconds that one transfer may take, and seconds in it without a byte.
TRANSFER_SECONDS = 900.0
SILENCE_SECONDS = 30.0
MAX_FRACTION = 1 / 8  # largest fraction of the slots that one person's number takes up
MAX_ID = 64  # Characters of a blob's id.


@dataclasses.dataclass(frozen=True, slots=True)
class BlobEndpoints:
    """Endpoints of blobs; `number` in their paths is the caller's own."""

    store: BlobStore
    # Slots for simultaneous transfers, each with a block in memory and an open file; one more is refused with 503.
    transfers: Slots
    directory: Directory
    # Transfers in progress, by number.
    _by_number: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter, init=False)

    def routes(self) -> APIRouter:
        """Return the router with all endpoints."""
        router = APIRouter(prefix="/v1/blobs/{number}", dependencies=[Depends(self.authenticate)])
        router.add_api_route("", self.upload, methods=["POST"])
        router.add_api_route("/{id}", self.download, methods=["GET"])
        return router

    async def authenticate(self, request: Request) -> None:
        """Require the token of the device of `number`, before every endpoint."""
        number = request.path_params["number"]
        if not addresses.is_number(number):
            raise NotFound(f"{number!r} is not a number of 7 to 15 digits")
        async with http.in_time():
            await http.require_device(request, self.directory.logins, number)

    async def upload(self, request: Request, number: str) -> JSONResponse:
        started = time.monotonic()
        size, result = 0, "failed"
        try:
            if wait := self.directory.rate_limits.take("blob", number):
                raise TooOften("too many files for this number", retry_after=math.ceil(wait))
            with self._transfer(number):
                async with http.in_time(TRANSFER_SECONDS):
                    weight = self.directory.rate_limits.weight_of(number)
                    blob = await self.store.add(number, _read_chunks(request), _content_length(request), weight=weight)
            size, result = blob.size, "stored"
        except RequestError as error:
            result = error.reason
            raise
        finally:
            _log_transfer("in", number, size, result, started)
        document = {"id": blob.id, "size": blob.size, "expires_at": blob.expires_at // 1000}
        return JSONResponse(document, 201)

    async def download(self, number: str, id: str) -> Response:
        if len(id) > MAX_ID or not id.isascii():
            raise NotFound("there is no such blob, or it has expired")
        async with contextlib.AsyncExitStack() as held:
            held.enter_context(self._transfer(number))
            async with http.in_time():
                found = await self.store.fetch(id)
            held.push_async_callback(found.file.close)
            return _FileResponse(found, number=number, held=held.pop_all())

    @contextlib.contextmanager
    def _transfer(self, number: str) -> Iterator[None]:
        """Take a slot for one transfer of a number. Raises `Unavailable`."""
        limit = max(1, int(self.transfers.limit * MAX_FRACTION)) * self.directory.rate_limits.weight_of(number)
        if self._by_number[number] >= limit or not self.transfers.try_take():
            raise Unavailable("too many transfers of blobs are in progress", retry_after=1)
        TRANSFERS.inc()
        self._by_number[number] += 1
        try:
            yield
        finally:
            self._by_number[number] -= 1
            if not self._by_number[number]:
                del self._by_number[number]
            self.transfers.release()
            TRANSFERS.dec()


async def _read_chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body. Raises `Unavailable` when no data arrives for too long, `BadRequest` when it ends too early."""
    chunks = request.stream()
    while True:
        try:
            async with http.in_time(SILENCE_SECONDS):
                chunk = await anext(chunks, None)
        except ClientDisconnect as error:
            # The client is disconnected and does not receive this response.
            raise BadRequest("the body ended too early", reason="invalid") from error
        if chunk is None:
            return
        yield chunk


def _content_length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


class _FileResponse(Response):
    """Response that sends a file to a device."""

    def __init__(self, found: OpenBlob, *, number: str, held: contextlib.AsyncExitStack) -> None:
        """held: resources released at the end, also after a failure."""
        super().__init__(media_type="application/octet-stream", headers=_file_headers(found.blob.size))
        self._file = found.file
        self._head = found.head
        self._size = found.blob.size
        self._number = number
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, result, sent = time.monotonic(), "cut off", 0
        request = Request(scope, receive)
        async with self._held:
            try:
                async with asyncio.timeout(TRANSFER_SECONDS):
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    chunk = self._head
                    while chunk and not await request.is_disconnected():
                        sent += len(chunk)
                        async with asyncio.timeout(SILENCE_SECONDS):
                            # Returns when the write buffer has room again.
                            await send({"type": "http.response.body", "body": chunk, "more_body": sent < self._size})
                        chunk = await self._file.read(CHUNK) if sent < self._size else b""
                if sent == self._size:
                    result = "sent"
            except StoreUnavailable as error:
                result = "store away"
                log.error("blobs.store_away", extra={"error": repr(error)})
            except TimeoutError:
                # The server drops the connection, and the response stays incomplete.
                result = "too slow"
            finally:
                _log_transfer("out", self._number, sent, result, started)


def _file_headers(size: int) -> Mapping[str, str]:
    # The id of a blob is never used again.
    return {"Content-Length": str(size), "Cache-Control": "private, immutable"}


def _log_transfer(direction: str, number: str, size: int, result: str, started: float) -> None:
    if result in ("stored", "sent"):
        MOVED.labels(direction).inc(size)
    log.info(
        "blob.moved",
        extra={
            "direction": direction,
            "number": number,
            "bytes": size,
            "result": result,
            "ms": int((time.monotonic() - started) * 1000),
        },
    )
