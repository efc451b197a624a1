"""Network that acts as a test scripts it: the device API on a real socket, registration over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.coreapp.phones import Phone
from tests.coreapp.scripted_blobs import ScriptedBlobs
from tests.coreapp.signals import Signals
from tests.web_server import serving
from tidings import e2ee
from tidings.wire import connection as wire
from tidings.wire import device as frames

TOKEN = "token-of-the-business"
HOLD = "hold"  # response of a policy: do not respond yet


class ScriptedNetwork:
    """Network that knows some phones and serves the business's Coreapp."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.blobs = ScriptedBlobs(self.signals)
        self.phones: dict[str, Phone] = {}
        # Returns None to accept a send, `HOLD` not to respond, otherwise the reason of a refusal.
        self.policy: Callable[[frames.Send], str | None] = lambda send: None
        self.receipts: tuple[str, ...] = ()  # kinds delivered for each accepted message
        # Events that frames of a type wait for. The response shows the state at the frame's arrival.
        self.gates: dict[type, asyncio.Event] = {}
        self.failures: dict[type, str] = {}
        self.sends: list[frames.Send] = []
        self.connections_of_sends: list[wire.Connection] = []
        self.checks: list[list[str]] = []
        self.fetches: list[list[str]] = []
        self.logins = 0
        self.registrations: list[dict[str, Any]] = []
        self.uploads: list[dict[str, Any]] = []
        self.codes: list[str] = []
        self.statuses: dict[str, int] = {}  # HTTP statuses for calls of `codes` and `registrations`
        self.mailbox: dict[str, frames.Deliver] = {}
        self.acknowledged: list[str] = []
        self.live: wire.Connection | None = None
        self.number = ""
        self._deliveries: dict[int, str] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._web = contextlib.AsyncExitStack()
        self.tcp = ("127.0.0.1", 0)
        self.http = ""

    def add(self, *phones: Phone) -> None:
        self.phones.update({phone.number: phone for phone in phones})

    async def start(self) -> None:
        await self.listen()
        app = web.Application()
        app.router.add_post("/v1/registrations", self._register)
        app.router.add_post("/v1/codes", self._send_code)
        app.router.add_put("/v1/keys/{number}", self._upload)
        self.blobs.add_routes(app)
        self.http = await self._web.enter_async_context(serving(app))

    async def listen(self) -> None:
        """Accept connections (again), on the same port."""
        self._server = await wire.listen(*self.tcp, frames.FromDevice, lambda: self)
        self.tcp = self._server.sockets[0].getsockname()[:2]

    def away(self) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
        self.drop()

    def drop(self) -> None:
        if self.live is not None:
            self.live.abort("scripted")

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.away()
        await self._web.aclose()

    # Actions of a test.

    def deliver(
        self,
        sender: str,
        kind: str,
        *,
        id: str,
        body: bytes = b"",
        refs: list[str] | None = None,
        timestamp: int = 0,
        trace: str = "",
        group: str = "",
    ) -> None:
        """Put an envelope into the business's mailbox. It is delivered at each login until it is acknowledged."""
        frame = frames.Deliver(
            next(self._numbers),
            self.number,
            sender,
            id,
            kind,
            timestamp or 1_700_000_000_000,
            body,
            refs or [],
            trace=trace,
            group=group,
        )
        self.mailbox[id] = frame
        self._push(frame)

    def accept(self, *ids: str) -> None:
        """Accept sends that a policy held back."""
        assert self.live is not None
        numbers = [
            send.n
            for send, connection in zip(self.sends, self.connections_of_sends, strict=True)
            if send.id in ids and connection is self.live
        ]
        self.live.send(frames.Accepted(numbers))

    def send_frame(self, frame: Any) -> None:
        assert self.live is not None
        self.live.send(frame)

    def business_bundle(self, *, one_time: int | None = 0) -> e2ee.PreKeyBundle:
        """Return the business's keys as registered.

        one_time: index of the one-time pre-key; None for a bundle without one.
        """
        keys = self.registrations[-1]
        prekey = keys["prekeys"][one_time] if one_time is not None else None
        decode = base64.b64decode
        return e2ee.PreKeyBundle(
            registration_id=keys["registration_id"],
            identity_key=decode(keys["identity_key"]),
            signed_prekey_id=keys["signed_prekey"]["key_id"],
            signed_prekey=decode(keys["signed_prekey"]["public"]),
            signed_prekey_signature=decode(keys["signed_prekey"]["signature"]),
            prekey_id=prekey["key_id"] if prekey else None,
            prekey=decode(prekey["public"]) if prekey else None,
            kyber_prekey_id=keys["kyber_prekey"]["key_id"],
            kyber_prekey=decode(keys["kyber_prekey"]["public"]),
            kyber_prekey_signature=decode(keys["kyber_prekey"]["signature"]),
        )

    def ids_sent(self) -> list[str]:
        return [send.id for send in self.sends]

    # Methods that the connection calls.

    def opened(self, connection: wire.Connection) -> None:
        pass

    def received(self, connection: wire.Connection, frame: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._respond(connection, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        if self.live is connection:
            self.live = None
        self.signals.changed()

    async def _respond(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, frames.Check):
            self.checks.append(frame.numbers)
        elif isinstance(frame, frames.Fetch):
            self.fetches.append(frame.numbers)
            found = [self.phones[n].bundle() for n in frame.numbers if n in self.phones]
        self.signals.changed()
        if type(frame) in self.gates:
            await self.gates[type(frame)].wait()
        if type(frame) in self.failures:
            connection.send(frames.Failed(frame.n, self.failures[type(frame)]))
        elif isinstance(frame, frames.Login):
            assert frame.token == TOKEN
            self.live, self.number = connection, frame.number
            self.logins += 1
            connection.send(frames.Ok(frame.n))
            for delivery in self.mailbox.values():
                self._push(delivery)
        elif isinstance(frame, frames.Check):
            connection.send(frames.Checked(frame.n, [n for n in frame.numbers if n in self.phones]))
        elif isinstance(frame, frames.Fetch):
            connection.send(frames.Bundles(frame.n, found))
        elif isinstance(frame, frames.Send):
            self._take(connection, frame)
        elif isinstance(frame, frames.Ack):
            for number in frame.n:
                envelope = self._deliveries.pop(number, None)
                if envelope is not None:
                    self.mailbox.pop(envelope, None)
                    self.acknowledged.append(envelope)
        elif isinstance(frame, frames.Ping):
            connection.send(frames.Pong())
        self.signals.changed()

    def _take(self, connection: wire.Connection, send: frames.Send) -> None:
        self.sends.append(send)
        self.connections_of_sends.append(connection)
        verdict = self.policy(send)
        if verdict == HOLD:
            return
        if verdict is not None:
            connection.send(frames.Refused(send.n, verdict))
            return
        connection.send(frames.Accepted([send.n]))
        for kind in self.receipts:
            self.deliver(send.to, kind, id=f"{kind}-{send.id}", refs=[send.id])

    def _push(self, frame: frames.Deliver) -> None:
        if self.live is not None:
            self._deliveries[frame.n] = frame.id
            self.live.send(frame)

    async def _send_code(self, request: web.Request) -> web.Response:
        self.codes.append((await request.json())["number"])
        return self._status_response("codes", 202)

    def _status_response(self, call: str, status: int = 200) -> web.Response:
        status = self.statuses.get(call, status)
        error = {"reason": "rate_limited"} if status == 429 else {}
        return web.json_response({"error": error}, status=status)

    async def _register(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "registrations" in self.statuses:
            return self._status_response("registrations")
        proofs = ("code" in body) + ("Authorization" in request.headers)
        if not proofs and all(body["token"] != made["token"] for made in self.registrations):
            return web.json_response({}, status=401)
        self.registrations.append(body)
        self.signals.changed()
        return web.json_response({"token": TOKEN}, status=201)

    async def _upload(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        self.uploads.append(await request.json())
        self.signals.changed()
        return web.json_response({})
