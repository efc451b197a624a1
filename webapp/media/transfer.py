"""Files over HTTP, a block in memory at a time: a body that comes in, and an answer that goes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from tidings.media.errors import StoreAway
from tidings.media.reading import Reader
from tidings.wire.codes import INVALID_REQUEST
from webapp.errors import InvalidRequest, Overloaded

log = logging.getLogger(__name__)

# Seconds without a byte, and seconds in all, after which a transfer is ended.
IDLE = 30.0
LONGEST = 15 * 60.0
_BLOCK = 256 * 1024


async def received(request: Request, *, idle: float = IDLE, longest: float = LONGEST) -> AsyncIterator[bytes]:
    """The body as it comes. Raises `InvalidRequest` for one that stops coming."""
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


class Slots:
    """At most `limit` transfers at the same time; one more is refused with 503."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self.taken = 0

    def take(self) -> None:
        """Raises `Overloaded`. What is taken must be released."""
        if self.taken >= self._limit:
            raise Overloaded(f"{self._limit} {self._name} are in progress")
        self.taken += 1

    def release(self) -> None:
        self.taken -= 1


class FileAnswer(Response):
    """A file from the store. It is closed in the end; a client that stops reading is cut off."""

    def __init__(
        self, file: Reader, size: int, content_type: str, *, done: Callable[[], None], with_body: bool = True
    ) -> None:
        """size: of the file, in bytes; done: called once it is closed."""
        self._file = file
        self._done = done
        self._with_body = with_body
        headers = {
            # Here rather than as the media type, to which the framework would add a charset.
            "Content-Type": content_type,
            "Content-Length": str(size),
            # What a recipient has sent is nothing for a browser to show as if it were ours.
            "Content-Disposition": "attachment",
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        left = size = int(self.headers["Content-Length"]) if self._with_body else 0
        outcome = "complete"
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            loop = asyncio.get_running_loop()
            deadline = loop.time() + LONGEST
            while left > 0:
                block = await self._file.read(min(left, _BLOCK))
                if not block or await request.is_disconnected():
                    # The connection is closed on an incomplete answer.
                    outcome = "cut short" if not block else "reader gone"
                    return
                left -= len(block)
                async with asyncio.timeout_at(min(loop.time() + IDLE, deadline)):
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except StoreAway as error:
            # The connection is closed on an incomplete answer.
            outcome = "store away"
            log.error("media.store_away", extra={"error": repr(error)})
        except TimeoutError:
            outcome = "reader too slow"
        finally:
            self._done()
            await self._file.close()
            extra = {"request_id": scope["state"]["request_id"], "outcome": outcome, "bytes": size - left}
            log.info("media.downloaded", extra=extra)
