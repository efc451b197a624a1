"""Business that sends at a given load: HTTP over kept-alive connections, 30 to 50 µs per request."""

from __future__ import annotations

import asyncio
import base64
import collections
import dataclasses
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from harness import ledger
from harness.http_connection import Connection, NoResponse

PASSWORD = "Tidings-2026!"


class UnexpectedResponse(Exception):
    """The server gave a response that the run cannot continue with."""


class _MessageId(msgspec.Struct):
    id: str


class _Accepted(msgspec.Struct):
    messages: list[_MessageId]


class _Stored(msgspec.Struct):
    media: list[_MessageId]


_accepted = msgspec.json.Decoder(_Accepted).decode
_stored = msgspec.json.Decoder(_Stored).decode

# Placeholder in the body of a message with a file, to be replaced by the id of the stored file.
FILE_ID = b"{file id}"


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message to send."""

    number: str
    # Body of `POST /v1/messages`.
    body: bytes
    # Digest of what its recipient shows.
    digest: str
    # File that is stored before; its id replaces `FILE_ID` in the body. Empty for none.
    file: bytes = b""
    # Type of the file.
    mime_type: str = ""


def text_message(number: str, text: str) -> Message:
    """Return a text message to one number."""
    body = msgspec.json.encode({"to": number, "type": "text", "text": {"body": text}})
    return Message(number, body, ledger.digest(text))


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent."""

    # Entry for the ledger.
    request: ledger.Request
    # Unix seconds.
    started: float
    # Seconds.
    took: float


class Business:
    """Client with one account of the API."""

    def __init__(self, *ports: int, tls: ssl.SSLContext | None = None) -> None:
        """ports: of Webapps, to which it connects round robin.
        tls: verifies the API over HTTPS; `None` for plain HTTP.
        """
        self._ports = collections.deque(ports)
        self._tls = tls
        # Whether each message gets a new idempotency key.
        self.fresh_keys = False
        self.token = ""
        self._authorization = b""

    @property
    def port(self) -> int:
        """Port of the Webapp to which it connects next."""
        return self._ports[0]

    async def connect(self) -> Connection:
        """Connect to the next Webapp that accepts. Raises `NoResponse`."""
        loop, errors = asyncio.get_running_loop(), []
        for _ in range(len(self._ports)):
            port = self._ports[0]
            self._ports.rotate(-1)
            try:
                _, connection = await loop.create_connection(Connection, "127.0.0.1", port, ssl=self._tls)
            except OSError as error:
                errors.append(str(error))
            else:
                return connection
        raise NoResponse(errors[-1])

    async def log_in(self, password: str = PASSWORD) -> None:
        """Log in as admin, and change the default password if it is still set. Raises `UnexpectedResponse`."""
        status, response = await self.call("POST", "/v1/users/login", {}, authorization=_basic(password))
        if status != 200:
            status, response = await self.call("POST", "/v1/users/login", {}, authorization=_basic("secret"))
            if status == 200 or response["errors"][0]["code"] != 1024:
                raise UnexpectedResponse(f"login with the default password: {status} {response}")
            change = {"new_password": password}
            status, response = await self.call("POST", "/v1/users/login", change, authorization=_basic("secret"))
        if status != 200:
            raise UnexpectedResponse(f"login: {status} {response}")
        self.use(response["users"][0]["token"])

    def use(self, token: str) -> None:
        """Use a token from another login."""
        self.token = token
        self._authorization = f"Bearer {token}".encode()

    async def call(
        self, method: str, path: str, body: Any = None, *, authorization: bytes | None = None
    ) -> tuple[int, Any]:
        """Send one request on a new connection; returns status and decoded body. Raises `NoResponse`."""
        connection = await self.connect()
        try:
            payload = b"" if body is None else msgspec.json.encode(body)
            status, raw = await connection.request(self.request(method, path, payload, authorization))
        finally:
            connection.close()
        return status, msgspec.json.decode(raw) if raw else None

    async def check_call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that has to succeed. Raises `UnexpectedResponse`."""
        status, response = await self.call(method, path, body)
        if not 200 <= status < 300:
            raise UnexpectedResponse(f"{method} {path}: {status} {response}")
        return response

    async def set_webhook(self, url: str) -> None:
        """Set the webhook: all three statuses go to this URL, with at most 24 concurrent requests."""
        webhooks = {
            "url": url,
            "max_concurrent_requests": 24,
            "message": {"sent": True, "delivered": True, "read": True},
        }
        await self.check_call("PATCH", "/v1/settings/application", {"webhooks": webhooks, "sent_status": True})

    async def check_contacts(self, numbers: Sequence[str]) -> None:
        """Check contacts, all of which must be valid. Raises `UnexpectedResponse`."""
        for start in range(0, len(numbers), 1000):
            page = numbers[start : start + 1000]
            response = await self.check_call("POST", "/v1/contacts", {"blocking": "wait", "contacts": page})
            wrong = [contact for contact in response["contacts"] if contact["status"] != "valid"]
            if wrong:
                raise UnexpectedResponse(f"contacts: {wrong[:3]}")

    def request(
        self,
        method: str,
        path: str,
        body: bytes,
        authorization: bytes | None = None,
        *,
        mime_type: str = "application/json",
        key: str = "",
    ) -> bytes:
        """Return the bytes of one request. key: idempotency key, empty for none."""
        return (
            b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: %s\r\n"
            b"Content-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s"
        ) % (
            method.encode(),
            path.encode(),
            authorization or self._authorization,
            mime_type.encode(),
            b"Idempotency-Key: %s\r\n" % key.encode() if key else b"",
            len(body),
            body,
        )

    def message_request(self, body: bytes, key: str) -> bytes:
        """Return the request that sends a message. key: idempotency key, empty for none."""
        return self.request("POST", "/v1/messages", body, key=key)

    def outcome(self, status: int, response: bytes) -> int:
        """Return the HTTP status of v1 that means the same as a response to a message."""
        return status

    def accepted_id(self, response: bytes) -> str:
        """Return the id of a message from the response that accepts it."""
        return _accepted(response).messages[0].id

    async def send(self, connection: Connection, number: str, text: str) -> Sent:
        """Send one text message. Without a response the result has no status."""
        return await self.post(connection, text_message(number, text))

    async def post(self, connection: Connection, message: Message) -> Sent:
        """Send one message, its file first. Without a response the result has no status."""
        wall, started = time.time(), time.perf_counter()
        status: int | None = None
        message_id, body = "", message.body
        try:
            if message.file:
                status, raw = await connection.request(
                    self.request("POST", "/v1/media", message.file, mime_type=message.mime_type)
                )
                if 200 <= status < 300:
                    body = body.replace(FILE_ID, _stored(raw).media[0].id.encode())
            if status is None or 200 <= status < 300:
                status = None
                key = secrets.token_hex(16) if self.fresh_keys else ""
                status, raw = await connection.request(self.message_request(body, key))
                status = self.outcome(status, raw)
                if 200 <= status < 300:
                    message_id = self.accepted_id(raw)
        except NoResponse:
            pass
        request = ledger.Request(message.number, message.digest, status, message_id)
        return Sent(request, wall, time.perf_counter() - started)


# Statuses after which a patient client retries, and seconds until it does.
BUSY, RETRY_SECONDS = (429, 503), 0.1


@dataclasses.dataclass(slots=True)
class Load:
    """Result of a run of load."""

    sent: list[Sent]
    # Seconds of each contacts call that got a response.
    contacts_took: list[float]
    # Responses by status after which a client retried; not contained in `sent`.
    refused: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    # Bytes of HTTP.
    written: int = 0
    received: int = 0

    def ended(self, connection: Connection) -> None:
        """Close a connection and add its bytes."""
        connection.close()
        self.written += connection.written
        self.received += connection.received


@dataclasses.dataclass(frozen=True, slots=True)
class ContactChecks:
    """Contacts calls of `closed_loop`, one for each message."""

    # `wait` or `no_wait`, whose response comes before the network's result is known.
    blocking: str = "wait"
    # Messages of all clients between the call for a recipient and the message to it.
    ahead: int = 0


def pair_checks(work: Iterable[Message], ahead: int) -> Iterator[tuple[str, Message | None]]:
    """Yield iterations of clients: a number to check, and a message to the number checked `ahead` iterations earlier.

    The first `ahead` iterations have no message, the last ones an empty number.
    """
    waiting: collections.deque[Message] = collections.deque()
    for message in work:
        waiting.append(message)
        yield message.number, waiting.popleft() if len(waiting) > ahead else None
    for message in waiting:
        yield "", message


async def closed_loop(
    business: Business,
    work: Iterable[Message],
    clients: int,
    *,
    contacts_first: bool | ContactChecks = False,
    patient: bool = False,
    load: Load | None = None,
) -> Load:
    """Send `work` from `clients` clients, each of which waits for its response before it sends the next message.

    Raises `UnexpectedResponse` for any response other than success, and `NoResponse`.

    contacts_first: make a contacts call before each message; `ContactChecks` for another kind of call than `wait`.
    patient: retry after 429 or 503.
    load: filled during the run; `None` for a new one.
    """
    load = Load([], []) if load is None else load
    checks = contacts_first if isinstance(contacts_first, ContactChecks) else ContactChecks()
    queue = pair_checks(work, checks.ahead)

    async def client() -> None:
        connection = await business.connect()
        try:
            for number, message in queue:
                if contacts_first and number:
                    request = _contacts_request(business, number, checks.blocking)
                    load.contacts_took.append(await _check_one(connection, request, load, patient))
                if message is None:
                    continue
                sent = await business.post(connection, message)
                while patient and sent.request.status in BUSY:
                    load.refused[sent.request.status] += 1
                    await asyncio.sleep(RETRY_SECONDS)
                    sent = await business.post(connection, message)
                load.sent.append(sent)
                if not sent.request.accepted:
                    raise UnexpectedResponse(f"message to {message.number}: status {sent.request.status}")
        finally:
            load.ended(connection)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return load


def _contacts_request(business: Business, number: str, blocking: str) -> bytes:
    body = b'{"blocking":"%s","contacts":["+%s"]}' % (blocking.encode(), number.encode())
    return business.request("POST", "/v1/contacts", body)


async def _check_one(connection: Connection, request: bytes, load: Load, patient: bool) -> float:
    """Return the seconds of the contacts call that succeeded."""
    started = time.perf_counter()
    status, raw = await connection.request(request)
    while patient and status in BUSY:
        load.refused[status] += 1
        await asyncio.sleep(RETRY_SECONDS)
        started = time.perf_counter()
        status, raw = await connection.request(request)
    # `wait` always has the network's result, so that `processing` is a response to `no_wait` only.
    if status != 200 or not (b'"valid"' in raw or b'"processing"' in raw):
        raise UnexpectedResponse(f"contacts: {status} {raw[:200]!r}")
    return time.perf_counter() - started


async def open_loop(
    business: Business,
    work: Iterable[tuple[str, str]],
    rate: float,
    *,
    limit: int = 2000,
    progress: Callable[[int], None] = lambda count: None,
    load: Load | None = None,
) -> Load:
    """Send `work` at `rate` messages per second, regardless of earlier results; nothing is sent again.

    limit: requests in flight; at the limit the sender falls behind and catches up later.
    load: as for `closed_loop`.
    """
    load = Load([], []) if load is None else load
    idle: list[Connection] = []
    slots = asyncio.Semaphore(limit)

    async def one(number: str, text: str) -> None:
        try:
            connection = await _idle_or_new(business, idle)
        except NoResponse:
            load.sent.append(Sent(ledger.Request(number, ledger.digest(text), None), time.time(), 0.0))
        else:
            load.sent.append(await business.send(connection, number, text))
            if connection.usable:
                idle.append(connection)
        finally:
            slots.release()

    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as group:
        for position, (number, text) in enumerate(work):
            wait = begun + position / rate - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            await slots.acquire()
            group.create_task(one(number, text))
            progress(position + 1)
    for connection in idle:
        connection.close()
    return load


async def _idle_or_new(business: Business, idle: list[Connection]) -> Connection:
    while idle:
        connection = idle.pop()
        if connection.usable:
            return connection
    return await business.connect()


def _basic(password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"admin:{password}".encode())
