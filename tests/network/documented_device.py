"""Device written from docs/device-api.md alone: WebSocket with JSON, and `tidings.e2ee` for the cryptography.

It shares no code with the network or with the project's handset. Its disk is a few dictionaries: what the page requires
to be one transaction changes here without an `await` in between.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

import websockets

from tidings import e2ee

TIMEOUT = 30.0
# Numbers of one-time pre-keys, of each kind, up to which a device uploads more.
KEEP, KEEP_KYBER = 40, 25

Frame = dict[str, Any]


def to_text(data: bytes) -> str:
    """Encode bytes for JSON."""
    return base64.b64encode(data).decode()


def to_bytes(text: str) -> bytes:
    """Decode bytes from JSON."""
    return base64.b64decode(text, validate=True)


class DocumentedDevice:
    """One device."""

    def __init__(self, url: str, number: str, *, kyber: bool) -> None:
        self._url = url
        self.number = number
        self._kyber = kyber
        self.identity = e2ee.IdentityKeyPair.generate()
        self._registration_id = 1 + secrets.randbelow(16380)
        self._next_key_id = 1
        self._signed: dict[int, e2ee.SignedPreKey] = {}
        self._prekeys: dict[int, e2ee.PreKey] = {}
        self._last_resort: dict[int, e2ee.KyberPreKey] = {}
        self._kyber_prekeys: dict[int, e2ee.KyberPreKey] = {}
        self.token = ""
        self._sessions: dict[str, e2ee.SessionRecord] = {}
        self._handled: set[tuple[str, str]] = set()
        self._lost: set[tuple[str, str]] = set()
        # Messages sent: the recipient, the frame, and the base key of the session that encrypted it.
        self._texts: dict[str, tuple[str, Frame, bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.shown: list[tuple[str, str, Frame]] = []  # (sender, id, content), in the order shown
        self.statuses: dict[str, list[str]] = {}  # kinds of receipts for each own message, in order
        self.refused: dict[str, str] = {}
        self.outbox: dict[str, Frame] = {}  # sends not yet accepted, by id, without `n`
        self.duplicates = 0
        self.frames: list[tuple[str, Frame]] = []
        self.acknowledging = True
        self._socket: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._n = 0
        self._pongs = 0
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._sent: dict[int, str] = {}
        self._refilling: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    # HTTP calls.

    async def call(self, method: str, path: str, body: Any = None, bearer: str = "") -> tuple[int, Any]:
        """Make one request and return the status and the JSON of the response."""
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        data = None if body is None else json.dumps(body).encode()

        def request() -> tuple[int, Any]:
            sent = urllib.request.Request(self._url + path, data, headers, method=method)
            try:
                with urllib.request.urlopen(sent, timeout=TIMEOUT) as response:
                    return response.status, json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, json.load(error)

        return await asyncio.to_thread(request)

    async def register(self, *, code: str = "", key: str = "", prekeys: int = 2) -> None:
        """Register the number. Keys are stored first, the token afterwards."""
        signed = e2ee.SignedPreKey.generate(self.identity, self._key_id())
        self._signed[signed.key_id] = signed
        body: dict[str, Any] = {
            "number": self.number,
            "registration_id": self._registration_id,
            "identity_key": to_text(self.identity.public),
            "signed_prekey": _signed_key(signed),
            "prekeys": self._make_prekeys(prekeys),
        }
        if self._kyber:
            last = e2ee.KyberPreKey.generate(self.identity, self._key_id())
            self._last_resort[last.key_id] = last
            body.update(kyber_prekey=_signed_key(last), kyber_prekeys=self._make_kyber_prekeys(1))
        if code:
            body["code"] = code
        status, response = await self.call("POST", "/v1/registrations", body, key)
        assert status == 201, response
        self.token = response["token"]

    async def refill(self, remaining: int, kyber_remaining: int) -> None:
        """Upload more one-time pre-keys, up to `KEEP` and `KEEP_KYBER`."""
        body: dict[str, Any] = {"prekeys": self._make_prekeys(KEEP - remaining)}
        if self._kyber:
            body["kyber_prekeys"] = self._make_kyber_prekeys(KEEP_KYBER - kyber_remaining)
        status, response = await self.call("PUT", f"/v1/keys/{self.number}", body, self.token)
        assert status == 200, response

    async def count_prekeys(self) -> int:
        status, response = await self.call("GET", f"/v1/keys/{self.number}", None, self.token)
        assert status == 200, response
        return int(response["prekeys"])

    def _key_id(self) -> int:
        self._next_key_id += 1
        return self._next_key_id - 1

    def _make_prekeys(self, count: int) -> list[dict[str, Any]]:
        made = [e2ee.PreKey.generate(self._key_id()) for _ in range(count)]
        self._prekeys.update((key.key_id, key) for key in made)
        return [{"key_id": key.key_id, "public": to_text(key.public)} for key in made]

    def _make_kyber_prekeys(self, count: int) -> list[dict[str, Any]]:
        made = [e2ee.KyberPreKey.generate(self.identity, self._key_id()) for _ in range(count)]
        self._kyber_prekeys.update((key.key_id, key) for key in made)
        return [_signed_key(key) for key in made]

    # Connection.

    async def connect(self) -> None:
        """Connect, log in, and resend what was not accepted."""
        name = websockets.Subprotocol("tidings.v1.json")
        address = self._url.replace("http", "ws", 1) + "/v1/connect"
        self._socket = await websockets.connect(address, subprotocols=[name], close_timeout=1)
        assert self._socket.subprotocol == name
        self._n = 0
        self._sent.clear()
        self._reader = asyncio.create_task(self._read())
        response = await self.request({"t": "login", "number": self.number, "token": self.token})
        assert response["t"] == "ok", response
        for send in list(self.outbox.values()):
            await self._post(send)

    async def disconnect(self) -> None:
        """Disconnect, and send nothing after that."""
        if self._reader is None:
            return
        await self._socket.close()
        reader, self._reader = self._reader, None
        await reader
        await self.refilled()

    async def refilled(self) -> None:
        """Wait until every upload that the network requested is done."""
        await asyncio.gather(*self._refilling)

    async def request(self, request: Frame) -> Frame:
        """Send a login, check or fetch, and return its response."""
        self._n += 1
        n = self._n
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[n] = future
        await self._put({**request, "n": n})
        async with asyncio.timeout(TIMEOUT):
            return await future

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. It is checked after each frame."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def ping(self) -> None:
        """Make one round trip."""
        before = self._pongs
        await self._put({"t": "ping"})
        await self.until(lambda: self._pongs > before)

    async def _put(self, frame: Frame) -> None:
        self.frames.append(("→", frame))
        await self._socket.send(json.dumps(frame))

    async def _post(self, send: Frame) -> None:
        self._n += 1
        self._sent[self._n] = send["id"]
        await self._put({**send, "n": self._n})

    async def _read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for text in self._socket:
                frame = json.loads(text)
                self.frames.append(("←", frame))
                await self._handle(frame)
                self._changed.set()

    async def _handle(self, frame: Frame) -> None:
        kind = frame["t"]
        if kind in ("ok", "failed", "checked", "bundles"):
            self._pending.pop(frame["n"]).set_result(frame)
        elif kind == "deliver":
            await self._receive(frame)
        elif kind == "accepted":
            for n in frame["n"]:
                self.outbox.pop(self._sent.pop(n), None)
        elif kind == "refused":
            message_id = self._sent.pop(frame["n"])
            self.outbox.pop(message_id, None)
            self.refused[message_id] = frame["reason"]
        elif kind == "pong":
            self._pongs += 1
        elif kind == "prekeys_low":
            task = asyncio.create_task(self.refill(frame["remaining"], frame["kyber_remaining"]))
            self._refilling.add(task)

    # Messages to and from peers.

    async def write(self, peer: str, text: str) -> str:
        """Send a text, set up a session first if none exists, and return the id of the message."""
        if peer not in self._sessions:
            response = await self.request({"t": "check", "number": self.number, "numbers": [peer]})
            assert response["registered"] == [peer], response
            await self._set_up(peer)
        content = {"type": "text", "text": {"body": text}}
        send = self._encrypt(peer, content)
        self._texts[send["id"]] = peer, content, self._sessions[peer].base_key
        await self._post(send)
        return str(send["id"])

    async def send_raw(self, peer: str, kind: str, body: str) -> None:
        """Send a message with any body, valid or not."""
        await self._post(self._store(kind, peer, body=body))

    def forget_sessions(self) -> None:
        """Delete all sessions, as a broken disk would."""
        self._sessions.clear()

    async def _set_up(self, peer: str) -> None:
        response = await self.request({"t": "fetch", "number": self.number, "numbers": [peer]})
        (bundle,) = response["bundles"]
        record = e2ee.SessionRecord.initiate(self.identity, self._registration_id, _bundle(bundle))
        self._sessions[peer] = record

    async def _mend(self, peer: str, lost: str) -> None:
        await self._set_up(peer)
        await self._post(self._encrypt(peer, {"type": "null"}))
        await self._post(self._store("retry", peer, refs=[lost]))

    async def _repeat(self, peer: str, asked_for: list[str]) -> None:
        for message_id in asked_for:
            recipient, content, session = self._texts.get(message_id, ("", {}, b""))
            if recipient == peer:
                if self._sessions[peer].base_key == session:
                    await self._set_up(peer)
                self._texts[message_id] = peer, content, self._sessions[peer].base_key
                await self._post(self._encrypt(peer, content, refs=[message_id]))

    async def read(self, peer: str, message_id: str) -> None:
        """Send a read receipt."""
        await self._post(self._store("read", peer, refs=[message_id]))

    async def _receive(self, frame: Frame) -> None:
        repeats = frame.get("refs") if frame["kind"] in ("prekey", "message") else None
        key = (frame["from"], repeats[0] if repeats else frame["id"])
        responses: list[Frame] = []
        later: list[Coroutine[Any, Any, None]] = []
        if key in self._handled and not (repeats and key in self._lost):
            self.duplicates += 1
        else:
            # No `await` from here to `add`: this is the transaction.
            if frame["kind"] in ("prekey", "message"):
                try:
                    responses = self._decrypt(frame, key[1])
                    self._lost.discard(key)
                except e2ee.E2EEError:
                    self._lost.add(key)
                    later.append(self._mend(*key))
            elif frame["kind"] == "retry":
                later.append(self._repeat(frame["from"], frame["refs"]))
            elif frame["kind"] in ("delivered", "read", "expired"):
                for message_id in frame["refs"]:
                    self.statuses.setdefault(message_id, []).append(frame["kind"])
            elif frame["kind"] == "identity":
                self._sessions.pop(frame["from"], None)
            self._handled.add(key)
        if not self.acknowledging:
            return
        await self._put({"t": "ack", "n": [frame["n"]]})
        for response in responses:
            await self._post(response)
        # These tasks send requests to the network, and this loop reads the responses, so it must not wait for them.
        self._tasks |= {asyncio.create_task(work) for work in later}

    def _decrypt(self, frame: Frame, message_id: str) -> list[Frame]:
        """Decrypt a message and return the frames to send in response. They are in the outbox already."""
        peer, body = frame["from"], to_bytes(frame["body"])
        record, fresh = self._sessions.get(peer), False
        kind = e2ee.MESSAGE
        if frame["kind"] == "prekey":
            kind = e2ee.PREKEY
            first = e2ee.PreKeySignalMessage.parse(body)
            if record is None or record.needs_setup(first):
                record, fresh = self._respond(record, first), True
        if record is None:
            raise e2ee.NoSession("a message without a session")
        content = json.loads(record.decrypt(kind, body))
        self._sessions[peer] = record
        if fresh:
            self._prekeys.pop(first.prekey_id or 0, None)
            self._kyber_prekeys.pop(first.kyber_prekey_id or 0, None)
        responses = [self._encrypt(peer, {"type": "null"})] if fresh else []
        if content["type"] != "null":
            self.shown.append((peer, message_id, content))
            responses.append(self._store("delivered", peer, refs=[message_id]))
        return responses

    def _respond(self, existing: e2ee.SessionRecord | None, first: e2ee.PreKeySignalMessage) -> e2ee.SessionRecord:
        kyber = self._kyber_prekeys | self._last_resort
        return e2ee.SessionRecord.respond(
            existing,
            self.identity,
            first,
            self._signed[first.signed_prekey_id],
            self._prekeys.get(first.prekey_id or 0),
            kyber.get(first.kyber_prekey_id or 0),
        )

    def _encrypt(self, peer: str, content: Frame, **more: Any) -> Frame:
        kind, body = self._sessions[peer].encrypt(json.dumps(content).encode())
        return self._store("prekey" if kind == e2ee.PREKEY else "message", peer, body=to_text(body), **more)

    def _store(self, kind: str, to: str, **more: Any) -> Frame:
        send = {"t": "send", "from": self.number, "to": to, "id": secrets.token_hex(16), "kind": kind, **more}
        self.outbox[send["id"]] = send
        return send


def _signed_key(key: e2ee.SignedPreKey | e2ee.KyberPreKey) -> dict[str, Any]:
    return {"key_id": key.key_id, "public": to_text(key.public), "signature": to_text(key.signature)}


def _bundle(fields: Frame) -> e2ee.PreKeyBundle:
    def optional(name: str) -> bytes | None:
        return to_bytes(fields[name]) if name in fields else None

    return e2ee.PreKeyBundle(
        registration_id=fields["registration_id"],
        identity_key=to_bytes(fields["identity_key"]),
        signed_prekey_id=fields["signed_prekey_id"],
        signed_prekey=to_bytes(fields["signed_prekey"]),
        signed_prekey_signature=to_bytes(fields["signed_prekey_signature"]),
        prekey_id=fields.get("prekey_id"),
        prekey=optional("prekey"),
        kyber_prekey_id=fields.get("kyber_prekey_id"),
        kyber_prekey=optional("kyber_prekey"),
        kyber_prekey_signature=optional("kyber_prekey_signature"),
    )
