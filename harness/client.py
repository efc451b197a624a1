"""A business that sends as fast as it is told to: HTTP over kept-alive connections, 30 to 50 µs a request."""

from __future__ import annotations

import asyncio
import base64
import collections
import dataclasses
import secrets
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from harness import ledger
from harness.http_connection import Connection, NoAnswer

PASSWORD = "Tidings-2026!"


class Unexpected(Exception):
    """The server answered something that the run cannot go on with."""


class _MessageId(msgspec.Struct):
    id: str


class _Accepted(msgspec.Struct):
    messages: list[_MessageId]


class _Stored(msgspec.Struct):
    media: list[_MessageId]


_accepted = msgspec.json.Decoder(_Accepted).decode
_stored = msgspec.json.Decoder(_Stored).decode

# In the body of a message with a file, where the id goes under which the file was stored.
FILE_ID = b"{file id}"


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message to send.

    body:      of `POST /v1/messages`.
    digest:    of what its recipient shows.
    file:      stored before, `FILE_ID` in the body becoming its id; empty for none.
    mime_type: of the file.
    """

    number: str
    body: bytes
    digest: str
    file: bytes = b""
    mime_type: str = ""


def text_message(number: str, text: str) -> Message:
    """A text to one number."""
    body = msgspec.json.encode({"to": number, "type": "text", "text": {"body": text}})
    return Message(number, body, ledger.digest(text))


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """One message: what goes into the ledger, and when. started: Unix seconds; took: seconds."""

    request: ledger.Request
    started: float
    took: float


class Business:
    """One account of the API."""

    def __init__(self, *ports: int, tls: ssl.SSLContext | None = None) -> None:
        """ports: of Webapps, on which connections are made by turns. tls: how the API is checked over HTTPS; `None` for
        plain HTTP."""
        self._ports = collections.deque(ports)
        self._tls = tls
        # Whether each message has an idempotency key that no other has.
        self.fresh_keys = False
        self.token = ""
        self._authorization = b""

    @property
    def port(self) -> int:
        """Of the Webapp whose turn is next."""
        return self._ports[0]

    async def connect(self) -> Connection:
        """To the next Webapp that takes one. Raises `NoAnswer`."""
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
        raise NoAnswer(errors[-1])

    async def log_in(self, password: str = PASSWORD) -> None:
        """Log in as admin, changing the default password when it is still there. Raises `Unexpected`."""
        status, answer = await self.call("POST", "/v1/users/login", {}, authorization=_basic(password))
        if status != 200:
            status, answer = await self.call("POST", "/v1/users/login", {}, authorization=_basic("secret"))
            if status == 200 or answer["errors"][0]["code"] != 1024:
                raise Unexpected(f"login with the default password: {status} {answer}")
            change = {"new_password": password}
            status, answer = await self.call("POST", "/v1/users/login", change, authorization=_basic("secret"))
        if status != 200:
            raise Unexpected(f"login: {status} {answer}")
        self.use(answer["users"][0]["token"])

    def use(self, token: str) -> None:
        """Go on with a token that somebody else has got."""
        self.token = token
        self._authorization = f"Bearer {token}".encode()

    async def call(
        self, method: str, path: str, body: Any = None, *, authorization: bytes | None = None
    ) -> tuple[int, Any]:
        """One request on a connection of its own; status and decoded body. Raises `NoAnswer`."""
        connection = await self.connect()
        try:
            payload = b"" if body is None else msgspec.json.encode(body)
            status, raw = await connection.ask(self.request(method, path, payload, authorization))
        finally:
            connection.close()
        return status, msgspec.json.decode(raw) if raw else None

    async def must(self, method: str, path: str, body: Any = None) -> Any:
        """A call that has to succeed. Raises `Unexpected`."""
        status, answer = await self.call(method, path, body)
        if not 200 <= status < 300:
            raise Unexpected(f"{method} {path}: {status} {answer}")
        return answer

    async def set_webhook(self, url: str) -> None:
        """All three statuses to this address, 24 requests at a time."""
        webhooks = {
            "url": url,
            "max_concurrent_requests": 24,
            "message": {"sent": True, "delivered": True, "read": True},
        }
        await self.must("PATCH", "/v1/settings/application", {"webhooks": webhooks, "sent_status": True})

    async def check_contacts(self, numbers: Sequence[str]) -> None:
        """All must be valid. Raises `Unexpected`."""
        for start in range(0, len(numbers), 1000):
            page = numbers[start : start + 1000]
            answer = await self.must("POST", "/v1/contacts", {"blocking": "wait", "contacts": page})
            wrong = [contact for contact in answer["contacts"] if contact["status"] != "valid"]
            if wrong:
                raise Unexpected(f"contacts: {wrong[:3]}")

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
        """The bytes of one request. key: its idempotency key, empty for none."""
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

    async def send(self, connection: Connection, number: str, text: str) -> Sent:
        """One text message; no answer is an outcome too."""
        return await self.post(connection, text_message(number, text))

    async def post(self, connection: Connection, message: Message) -> Sent:
        """One message, its file first; no answer is an outcome too."""
        wall, started = time.time(), time.perf_counter()
        status: int | None = None
        message_id, body = "", message.body
        try:
            if message.file:
                status, raw = await connection.ask(
                    self.request("POST", "/v1/media", message.file, mime_type=message.mime_type)
                )
                if 200 <= status < 300:
                    body = body.replace(FILE_ID, _stored(raw).media[0].id.encode())
            if status is None or 200 <= status < 300:
                status = None
                key = secrets.token_hex(16) if self.fresh_keys else ""
                status, raw = await connection.ask(self.request("POST", "/v1/messages", body, key=key))
                if 200 <= status < 300:
                    message_id = _accepted(raw).messages[0].id
        except NoAnswer:
            pass
        request = ledger.Request(message.number, message.digest, status, message_id)
        return Sent(request, wall, time.perf_counter() - started)


# Answers after which a patient client tries again, and the seconds after which it does.
BUSY, PATIENCE = (429, 503), 0.1


@dataclasses.dataclass(slots=True)
class Load:
    """What a run of load did. contacts_took: seconds of each contacts call that was answered; refused: how often each
    status made a client try again, which is none of `sent`. written, received: bytes of HTTP."""

    sent: list[Sent]
    contacts_took: list[float]
    refused: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    written: int = 0
    received: int = 0

    def ended(self, connection: Connection) -> None:
        """Close a connection, and count what went over it."""
        connection.close()
        self.written += connection.written
        self.received += connection.received


async def closed_loop(
    business: Business,
    work: Iterable[Message],
    clients: int,
    *,
    contacts_first: bool = False,
    patient: bool = False,
    load: Load | None = None,
) -> Load:
    """`clients` clients share `work`; each waits for its answer before it sends the next.

    contacts_first: a contacts call before each message. patient: who is refused with 429 or 503 tries again.
    load: to be filled while it goes on. Raises `Unexpected` at any other answer but success, and `NoAnswer`.
    """
    load = Load([], []) if load is None else load
    queue = iter(work)

    async def client() -> None:
        connection = await business.connect()
        try:
            for message in queue:
                if contacts_first:
                    load.contacts_took.append(await _check_one(business, connection, message.number, load, patient))
                sent = await business.post(connection, message)
                while patient and sent.request.status in BUSY:
                    load.refused[sent.request.status] += 1
                    await asyncio.sleep(PATIENCE)
                    sent = await business.post(connection, message)
                load.sent.append(sent)
                if not sent.request.accepted:
                    raise Unexpected(f"message to {message.number}: status {sent.request.status}")
        finally:
            load.ended(connection)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return load


async def _check_one(business: Business, connection: Connection, number: str, load: Load, patient: bool) -> float:
    """Seconds that the call took which was answered."""
    body = b'{"blocking":"wait","contacts":["+%s"]}' % number.encode()
    request = business.request("POST", "/v1/contacts", body)
    started = time.perf_counter()
    status, raw = await connection.ask(request)
    while patient and status in BUSY:
        load.refused[status] += 1
        await asyncio.sleep(PATIENCE)
        started = time.perf_counter()
        status, raw = await connection.ask(request)
    if status != 200 or b'"valid"' not in raw:
        raise Unexpected(f"contacts {number}: {status} {raw[:200]!r}")
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
    """Send `work` at `rate` messages a second, whatever becomes of the ones before; nothing is sent again.

    limit: requests in flight; beyond it the sender falls behind and catches up later. load: as for `closed_loop`.
    """
    load = Load([], []) if load is None else load
    idle: list[Connection] = []
    slots = asyncio.Semaphore(limit)

    async def one(number: str, text: str) -> None:
        try:
            connection = await _idle_or_new(business, idle)
        except NoAnswer:
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
