"""Announcements of an operator: to one device, or to all attached devices."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from prometheus_client import Counter

from network import errors, http
from network.context import NetworkContext
from network.routing.reservations import Notice
from tidings.aio.batcher import Batcher, BatcherFull
from tidings.http.limited_protocol import mark_authenticated
from tidings.storage.database import Connection
from tidings.storage.network import directory, mailbox
from tidings.wire import addresses, device

log = logging.getLogger(__name__)

ANNOUNCED = Counter("tidings_network_announcements_total", "Operators' announcements delivered or stored", ["to"])

# Maximum size of an announcement, bytes of UTF-8.
MAX_TEXT = 4096
# Broadcasts that may wait for the one before them; one more is refused.
WAITING = 8
# Announcements to single devices that may wait for the database; one more is refused.
STORING = 2000

# Announces (id, text) to all attached devices of all nodes; returns the number of devices and the number of nodes.
Broadcast = Callable[[str, bytes], Awaitable[tuple[int, int]]]


class Announcement(msgspec.Struct):
    """Body of a request."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]


@dataclasses.dataclass(slots=True, eq=False)
class OperatorEndpoints:
    """HTTP endpoints for announcements; they require the operator's key."""

    context: NetworkContext
    broadcast: Broadcast
    _storing: Batcher[Notice, bool] = dataclasses.field(init=False)
    _lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    _waiting: int = 0

    def __post_init__(self) -> None:
        self._storing = Batcher("announcements", self._store, max_pending=STORING)

    def routes(self) -> APIRouter:
        """Return the router with all endpoints."""
        router = APIRouter(prefix="/v1/announcements")
        router.add_api_route("", self.to_all, methods=["POST"])
        router.add_api_route("/{number}", self.to_one, methods=["POST"])
        return router

    async def to_one(self, request: Request, number: str) -> JSONResponse:
        """Announce to the device of one number, at once or when it attaches."""
        text = await self._read(request)
        if not addresses.is_number(number):
            raise errors.NotFound(f"{number!r} is not a number of 7 to 15 digits")
        notice = Notice(device.ANNOUNCEMENT, number, number, body=text, id=_make_id())
        try:
            stored = await self._storing.submit(notice)
        except BatcherFull:
            raise errors.Unavailable("too many announcements wait for the database", retry_after=1) from None
        if not stored:
            raise errors.NotFound(f"+{number} is not registered")
        ANNOUNCED.labels("one").inc()
        return JSONResponse({"number": number}, 202)

    async def _store(self, notices: Sequence[Notice]) -> Sequence[bool]:
        """Store the announcements to registered numbers in one transaction; return for each whether it was stored."""
        with self.context.reservations() as reservations:

            async def work(connection: Connection) -> tuple[set[str], Sequence[mailbox.Envelope]]:
                registered = await directory.list_registered(connection, {notice.recipient for notice in notices})
                known = [notice for notice in notices if notice.recipient in registered]
                return registered, await reservations.store(connection, known)

            registered, rows = await self.context.database.persist(work, retry_seconds=20)
            # Attached devices receive them without a read of their mailboxes.
            reservations.stored = {row.seq: row for row in rows}
        return [notice.recipient in registered for notice in notices]

    async def to_all(self, request: Request) -> JSONResponse:
        """Announce to all devices that are attached now, on all nodes."""
        text = await self._read(request)
        if self._waiting > WAITING:
            raise errors.Unavailable("too many broadcasts wait", retry_after=1)
        self._waiting += 1
        try:
            async with self._lock:
                devices, nodes = await self.broadcast(_make_id(), text)
        finally:
            self._waiting -= 1
        ANNOUNCED.labels("all").inc(devices)
        log.info("announcement.broadcast", extra={"devices": devices, "nodes": nodes})
        return JSONResponse({"devices": devices, "nodes": nodes}, 202)

    async def _read(self, request: Request) -> bytes:
        if not self.context.settings.operator_key.is_given(request.headers.get("authorization", "").encode("latin-1")):
            raise errors.Unauthorized("announcements require the key of TIDINGS_OPERATOR_KEY: Authorization: Apikey …")
        mark_authenticated(request.scope)
        text = (await http.read_body(request, Announcement)).text.encode()
        if len(text) > MAX_TEXT:
            raise errors.TooLarge(f"a text may have at most {MAX_TEXT} bytes")
        return text


def _make_id() -> str:
    return f"{device.ANNOUNCEMENT}.{secrets.token_hex(12)}"
