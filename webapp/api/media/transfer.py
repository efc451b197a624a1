"""Files over HTTP with one block in memory at a time: request bodies and responses."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from tidings.media.errors import StoreUnavailable
from tidings.media.reading import MediaReader
from tidings.wire.codes import INVALID_REQUEST
from webapp.http.errors import InvalidRequest, Overloaded

log = logging.getLogger(__name__)

# Seconds without a byte, and seconds in total, after which a transfer is aborted.
IDLE = 30.0
LONGEST = 15 * 60.0
_BLOCK = 256 * 1024


async def received(request: Request, *, idle: float = IDLE, longest: float = LONGEST) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises `InvalidRequest` when it stops arriving."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + longest
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(min(loop.time() + idle, deadline)):
                chunk = await anext(stream, None)
        except ClientDisconnect:
            raise InvalidRequest.because(
                INVALID_REQUEST, "the connection closed before the body was complete"
            ) from None
        except TimeoutError:
            raise InvalidRequest.because(INVALID_REQUEST, "the body did not arrive in time") from None
        if chunk is None:
            return
        yield chunk


class TransferSlots:
    """Limit on the transfers at the same time. A transfer above `limit` is refused with 503."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self.taken = 0

    def take(self) -> None:
        """Take a slot, which the caller must release. Raises `Overloaded` when none is free."""
        if self.taken >= self._limit:
            raise Overloaded(f"{self._limit} {self._name} are in progress")
        self.taken += 1

    def release(self) -> None:
        self.taken -= 1


@dataclasses.dataclass(frozen=True, slots=True)
class ByteRange:
    """Part of a file, from its byte `first` to its byte `last`, both included and counted from 0."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class FileResponse(Response):
    """Response with a file from the store.

    The file is closed at the end. A client that stops reading is disconnected.
    """

    def __init__(
        self,
        file: MediaReader,
        size: int,
        content_type: str,
        *,
        done: Callable[[], None],
        with_body: bool = True,
        part: ByteRange | None = None,
    ) -> None:
        """Create the response.

        size: of the file, in bytes
        done: called when the file is closed
        part: bytes to send; `None` for the whole file
        """
        self._skip = part.first if part is not None else 0
        self._file = file
        self._done = done
        self._with_body = with_body
        headers = {
            # Not passed as the media type, because the framework would add a charset.
            "Content-Type": content_type,
            "Content-Length": str(part.size if part is not None else size),
            # A browser must not render files that recipients sent as if they were part of this site.
            "Content-Disposition": "attachment",
            "X-Content-Type-Options": "nosniff",
        }
        if part is not None:
            headers["Content-Range"] = f"bytes {part.first}-{part.last}/{size}"
        super().__init__(status_code=200 if part is None else 206, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        left = size = int(self.headers["Content-Length"]) if self._with_body else 0
        outcome = "complete"
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            loop = asyncio.get_running_loop()
            deadline = loop.time() + LONGEST
            while left > 0 and self._skip:
                skipped = len(await self._file.read(min(self._skip, _BLOCK)))
                if not skipped:
                    outcome = "cut short"
                    return
                self._skip -= skipped
            while left > 0:
                block = await self._file.read(min(left, _BLOCK))
                if not block or await request.is_disconnected():
                    # The server closes the connection because the response is incomplete.
                    outcome = "cut short" if not block else "reader gone"
                    return
                left -= len(block)
                async with asyncio.timeout_at(min(loop.time() + IDLE, deadline)):
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except StoreUnavailable as error:
            # The server closes the connection because the response is incomplete.
            outcome = "store away"
            log.error("media.store_away", extra={"error": repr(error)})
        except TimeoutError:
            outcome = "reader too slow"
        finally:
            try:
                await self._file.close()
            finally:
                self._done()
            extra = {"request_id": scope["state"]["request_id"], "outcome": outcome, "bytes": size - left}
            log.info("media.downloaded", extra=extra)
