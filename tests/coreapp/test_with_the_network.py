"""The Coreapp with our own network between it and a recipient."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx

from network import services as network_services
from network.settings import Blobs
from network.settings import Settings as NetworkSettings
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.phones import Phone
from tests.coreapp.signals import TIMEOUT, Signals
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"


class LivePhone(Phone):
    """A phone that is registered and connected; it reads everything and answers each text with its echo."""

    def __init__(self, number: str) -> None:
        super().__init__(number)
        self.signals = Signals()
        self.shown: list[object] = []
        self.token = ""

    async def register(self, http: str, key: str) -> None:
        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        assert self.kyber is not None
        body = {
            "number": self.number,
            "registration_id": self.registration_id,
            "identity_key": text(self.identity.public),
            "signed_prekey": {
                "key_id": 1,
                "public": text(self.signed.public),
                "signature": text(self.signed.signature),
            },
            "kyber_prekey": {"key_id": 1, "public": text(self.kyber.public), "signature": text(self.kyber.signature)},
            "prekeys": [{"key_id": key.key_id, "public": text(key.public)} for key in self.prekeys.values()],
        }
        async with httpx.AsyncClient(base_url=http, trust_env=False) as client:
            answer = await client.post("/v1/registrations", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.is_success, answer.text
        self.token = answer.json()["token"]

    def opened(self, connection: wire.Connection) -> None:
        connection.send(frames.Login(1, self.number, self.token))

    def received(self, connection: wire.Connection, frame: Any) -> None:
        assert not isinstance(frame, frames.Failed | frames.Closing), frame
        if isinstance(frame, frames.Deliver):
            connection.send(frames.Ack([frame.n]))
            if frame.kind in (frames.PREKEY, frames.MESSAGE):
                self.shown.append(self.read(frame.kind, frame.body))
                for n, kind in ((1, frames.DELIVERED), (2, frames.READ)):
                    self.send(connection, 10 * frame.n + n, f"{kind}-{frame.id}", kind, refs=[frame.id])
                kind, body = self.write(b'{"type":"text","text":{"body":"echo"}}')
                self.send(connection, 10 * frame.n + 3, f"echo-{frame.id}", kind, body)
        self.signals.changed()

    def send(
        self, connection: wire.Connection, n: int, id: str, kind: str, body: bytes = b"", refs: list[str] | None = None
    ) -> None:
        connection.send(frames.Send(n, self.number, BUSINESS, id, kind, body, refs or []))

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.signals.changed()


async def test_messages_statuses_and_answers_go_through_the_real_network(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    database = await database_factory("network")
    secrets = world.settings.secrets
    settings = NetworkSettings(
        database=database.settings,
        secrets=secrets,
        blobs=Blobs(tmp_path / "blobs"),
        http_address=("127.0.0.1", 0),
        tcp_address=("127.0.0.1", 0),
        embedded=True,
    )
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(network_services.run(settings, stop, ready.set_result))
    try:
        async with asyncio.timeout(TIMEOUT):
            addresses = await ready
        http = f"http://{addresses.http[0]}:{addresses.http[1]}"
        phone = LivePhone(NUMBER)
        await phone.register(http, secrets.registration_key)
        connection = await wire.connect(*addresses.tcp, frames.FromNetwork, phone)

        running = await world.start(network_tcp=addresses.tcp, network_http=http)
        contacts = await running.client.check("+" + NUMBER, "15550119999")
        while contacts[0].status == "failed":
            # Not logged in yet.
            contacts = await running.client.check("+" + NUMBER, "15550119999")
        assert [contact.status for contact in contacts] == ["valid", "invalid"]
        answers = [await running.client.send(NUMBER, str(n)) for n in range(5)]
        assert all(isinstance(answer, core.Accepted) for answer in answers)
        await world.sink.signals.until(lambda: len(world.sink.taken()) == 20)
        assert phone.shown == [{"type": "text", "text": {"body": str(n)}} for n in range(5)]
        for answer in answers:
            assert world.sink.statuses_of(answer.id) == ["sent", "delivered", "read"]
            assert world.sink.statuses_of(f"echo-{answer.id}") == ["received"]
        await running.stopped()
        connection.close("test")
    finally:
        stop.set()
        await serving
