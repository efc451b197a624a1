"""The Coreapp with our own network between it and a recipient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.phones import Phone
from tests.coreapp.real_network import real_network
from tests.coreapp.signals import Signals
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"


class LivePhone(Phone):
    """Phone that is registered and connected. It reads everything and replies to each text with an echo."""

    def __init__(self, number: str) -> None:
        super().__init__(number)
        self.signals = Signals()
        self.shown: list[object] = []
        self.token = ""

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


async def test_messages_statuses_and_replies_pass_through_the_real_network(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with real_network(world, database_factory, tmp_path) as network:
        phone = LivePhone(NUMBER)
        phone.token = await network.register(phone)
        connection = await wire.connect(*network.tcp, frames.FromNetwork, phone)

        running = await world.start(network_tcp=network.tcp, network_http=network.http)
        contacts = await running.client.check("+" + NUMBER, "15550119999")
        while contacts[0].status == "failed":
            # The Coreapp has not logged in yet.
            contacts = await running.client.check("+" + NUMBER, "15550119999")
        assert [contact.status for contact in contacts] == ["valid", "invalid"]
        responses = [await running.client.send(NUMBER, str(n)) for n in range(5)]
        assert all(isinstance(response, core.Accepted) for response in responses)
        await world.sink.signals.until(lambda: len(world.sink.taken()) == 20)
        assert phone.shown == [{"type": "text", "text": {"body": str(n)}} for n in range(5)]
        for response in responses:
            assert world.sink.statuses_of(response.id) == ["sent", "delivered", "read"]
            assert world.sink.statuses_of(f"echo-{response.id}") == ["received"]
        await running.stopped()
        connection.close("test")
