"""Network scripted by a test, over a real socket: it delivers, drops, forgets and repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from handset.devices import keys
from handset.devices.device import Device
from tidings import e2ee
from tidings.client.keys import KeySet
from tidings.wire import connection
from tidings.wire import device as wire

BUSINESS = "15550000000"


class Business:
    """Other end of the encryption: one session with each device, set up from its keys."""

    def __init__(self, number: str = BUSINESS, *, sent: int = 0) -> None:
        """Create the business.

        sent: number of earlier texts, from which the ids continue.
        """
        self.number = number
        self.identity = e2ee.IdentityKeyPair.generate()
        self.sessions: dict[str, e2ee.SessionRecord] = {}
        self._count = sent

    def open(self, device: Device, key_set: KeySet, *, one_time: int | None = 0) -> None:
        """Set up a session.

        one_time: index of the one-time pre-key; None for none.
        """
        assert key_set.signed is not None
        assert key_set.kyber_last is not None
        prekey = key_set.one_time[one_time] if one_time is not None else None
        bundle = e2ee.PreKeyBundle(
            registration_id=device.registration_id,
            identity_key=device.identity.public,
            signed_prekey_id=key_set.signed.key_id,
            signed_prekey=key_set.signed.public,
            signed_prekey_signature=key_set.signed.signature,
            prekey_id=prekey.key_id if prekey else None,
            prekey=prekey.public if prekey else None,
            kyber_prekey_id=key_set.kyber_last.key_id,
            kyber_prekey=key_set.kyber_last.public,
            kyber_prekey_signature=key_set.kyber_last.signature,
        )
        self.sessions[device.number] = e2ee.SessionRecord.initiate(self.identity, 1, bundle)

    def seal(self, number: str, text: str) -> wire.Deliver:
        """Return a text as it is delivered, without its delivery number."""
        self._count += 1
        return self.seal_raw(number, msgspec.json.encode({"type": "text", "text": {"body": text}}), f"m{self._count}")

    def seal_raw(self, number: str, plaintext: bytes, message_id: str) -> wire.Deliver:
        kind, body = self.sessions[number].encrypt(plaintext)
        name = wire.PREKEY if kind == e2ee.PREKEY else wire.MESSAGE
        return wire.Deliver(0, number, self.number, message_id, name, 1_700_000_000_000, body)

    def open_sealed(self, frame: wire.Send) -> Any:
        """Return the content of what a device has sent."""
        kind = e2ee.PREKEY if frame.kind == wire.PREKEY else e2ee.MESSAGE
        return msgspec.json.decode(self.sessions[frame.sender].decrypt(kind, frame.body))


class ScriptedNetwork:
    """Network that accepts all logins, and every send unless scripted otherwise."""

    def __init__(self) -> None:
        self.sends: list[wire.Send] = []
        self.acked: set[int] = set()
        self.deliveries: dict[int, wire.Deliver] = {}
        self.online: set[str] = set()
        self.connections: list[connection.Connection] = []
        # Returns the response to a send; None for no response.
        self.respond: Callable[[wire.Send], Any] = lambda frame: wire.Accepted([frame.n])
        # Envelopes delivered at each login until they are acknowledged, as by the real network.
        self.mail: list[wire.Deliver] = []
        self.bundles: list[wire.Bundle] = []
        self.refuse_logins: set[str] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._last = 0

    async def start(self) -> tuple[str, int]:
        self._server = await connection.listen("127.0.0.1", 0, wire.FromDevice, lambda: self)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address

    async def close(self) -> None:
        for each in self.connections:
            each.abort("test over")
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def drop(self) -> None:
        """Cut every connection."""
        for each in self.connections:
            each.abort("cut")
        self.connections.clear()
        self.online.clear()

    def deliver(self, frame: wire.Deliver) -> int:
        """Deliver on the newest connection. Returns the delivery number that the device must acknowledge."""
        self._last += 1
        copy = msgspec.structs.replace(frame, n=self._last)
        self.deliveries[self._last] = copy
        self.connections[-1].send(copy)
        return self._last

    def post(self, *frames: wire.Deliver) -> None:
        """Deliver now if the device is connected, and again at each login until it is acknowledged."""
        self.mail += frames
        for frame in frames:
            if frame.to in self.online:
                self.deliver(frame)

    def send(self, frame: Any) -> None:
        self.connections[-1].send(frame)

    async def until(self, condition: Callable[[], bool], *, timeout: float = 30.0) -> None:
        """Wait for a condition that frames bring about."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_online(self, *numbers: str) -> None:
        await self.until(lambda: self.online.issuperset(numbers))

    async def until_acked(self, *numbers: int) -> None:
        await self.until(lambda: self.acked.issuperset(numbers))

    async def until_sent(self, count: int, *, timeout: float = 30.0) -> list[wire.Send]:
        await self.until(lambda: len(self.sends) >= count, timeout=timeout)
        return self.sends

    # Methods that the connections call.

    def opened(self, each: connection.Connection) -> None:
        self.connections.append(each)

    def received(self, each: connection.Connection, frame: Any) -> None:
        self._handle(each, frame)
        self._changed.set()

    def _handle(self, each: connection.Connection, frame: Any) -> None:
        if isinstance(frame, wire.Login):
            if frame.number in self.refuse_logins:
                each.send(wire.Failed(frame.n, wire.UNAUTHORIZED))
            else:
                self.online.add(frame.number)
                each.send(wire.Ok(frame.n))
                for waiting in self.mail:
                    if waiting.to == frame.number:
                        self.deliver(waiting)
        elif isinstance(frame, wire.Ack):
            self.acked.update(frame.n)
            done = {self.deliveries[n].id for n in frame.n}
            self.mail = [waiting for waiting in self.mail if waiting.id not in done]
        elif isinstance(frame, wire.Send):
            self.sends.append(frame)
            response = self.respond(frame)
            if response is not None:
                each.send(response)
        elif isinstance(frame, wire.Fetch):
            each.send(wire.Bundles(frame.n, [b for b in self.bundles if b.number in frame.numbers]))
        elif isinstance(frame, wire.Ping):
            each.send(wire.Pong())

    def closed(self, each: connection.Connection, reason: str) -> None:
        if each in self.connections:
            self.connections.remove(each)
            self.online.clear()
        self._changed.set()


def make_device(number: str, *, one_time: int = 2) -> tuple[Device, KeySet]:
    """Return a registered device and the keys that it has uploaded."""
    device = keys.new_device(number)
    key_set = keys.make(device, one_time=one_time, lasting=True)
    device.token = f"token of {number}"
    return device, key_set
