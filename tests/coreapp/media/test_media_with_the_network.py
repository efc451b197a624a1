"""Files in both directions with our own network between the Coreapp and a recipient."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene as scene
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import World
from tests.coreapp.real_network import real_network
from tests.coreapp.signals import TIMEOUT
from tests.coreapp.test_with_the_network import LivePhone
from tidings.e2ee import attachments
from tidings.objects.store import MARKER
from tidings.wire import connection as wire
from tidings.wire import device as frames

NUMBER = "15550110001"
LARGE = bytes(range(256)) * 4 * 1024 * 12  # 12 MiB, in bytes


class MediaPhone(LivePhone):
    """Phone that keeps the contents it receives, and sends what a test names."""

    def __init__(self, number: str, http: str) -> None:
        super().__init__(number)
        self.http = http
        self.contents: list[Any] = []
        self._connection: wire.Connection | None = None
        self._sent = 100

    def opened(self, connection: wire.Connection) -> None:
        super().opened(connection)
        self._connection = connection

    def received(self, connection: wire.Connection, frame: Any) -> None:
        assert not isinstance(frame, frames.Failed | frames.Closing), frame
        if isinstance(frame, frames.Deliver):
            connection.send(frames.Ack([frame.n]))
            if frame.kind in (frames.PREKEY, frames.MESSAGE):
                self.contents.append(self.read(frame.kind, frame.body))
        self.signals.changed()

    def say(self, message_id: str, content: dict[str, Any]) -> None:
        assert self._connection is not None
        kind, body = self.write(json.dumps(content).encode())
        self._sent += 1
        self.send(self._connection, self._sent, message_id, kind, body)

    async def fetch(self, pointer: dict[str, Any]) -> bytes:
        """Return the file that a pointer refers to."""
        async with self._client() as client:
            response = await client.get(f"/v1/blobs/{self.number}/{pointer['blob']}")
        assert response.is_success, response.text
        key, digest = base64.b64decode(pointer["key"]), base64.b64decode(pointer["digest"])
        return attachments.decrypt(key, digest, response.content)

    async def store(self, plaintext: bytes, mime_type: str) -> dict[str, Any]:
        """Store a file on the network and return a pointer to it."""
        key = attachments.generate_key()
        blob, digest = attachments.encrypt(key, plaintext)
        async with self._client() as client:
            response = await client.post(f"/v1/blobs/{self.number}", content=blob)
        assert response.status_code == 201, response.text
        return {
            "blob": response.json()["id"],
            "key": base64.b64encode(key).decode(),
            "digest": base64.b64encode(digest).decode(),
            "size": len(plaintext),
            "mime_type": mime_type,
            "sha256": hashlib.sha256(plaintext).hexdigest(),
        }

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(base_url=self.http, headers=headers, verify=False, trust_env=False, timeout=TIMEOUT)


async def test_files_pass_encrypted_both_ways_through_the_real_network(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with real_network(world, database_factory, tmp_path) as network:
        phone = MediaPhone(NUMBER, network.http)
        phone.token = await network.register(phone)
        connection = await wire.connect(*network.tcp, frames.FromNetwork, phone)
        running = await world.start(network_tcp=network.tcp, network_http=network.http)
        while (await running.client.check("+" + NUMBER))[0].status != "valid":
            # The Coreapp has not logged in yet.
            pass

        medium = await scene.upload(world, LARGE, kind="document", mime_type="application/zip", filename="a.zip")
        for _ in range(3):
            await scene.send(running, NUMBER, {"type": "document", "document": {"id": medium.id}})
        await running.client.send(NUMBER, "after")
        await phone.signals.until(lambda: len(phone.contents) == 4)
        assert [content["type"] for content in phone.contents] == ["document"] * 3 + ["text"]
        pointers = [content["document"] for content in phone.contents[:3]]
        assert len({pointer["blob"] for pointer in pointers}) == 1
        assert await phone.fetch(pointers[0]) == LARGE
        # The network stores ciphertext, not the file.
        (stored,) = [path for path in (tmp_path / "blobs").iterdir() if path.name != MARKER]
        assert LARGE[:1024] not in stored.read_bytes()

        phone.say("in-1", {"type": "document", "document": await phone.store(LARGE[1:], "application/zip")})
        await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
        (post,) = [post for post in world.sink.posts if post.label == ("in-1", "received")]
        webhook_schemas.check(post.body)
        document = post.body["messages"][0]["document"]
        assert document["status"] == "downloaded"
        assert scene.read(document["file"]) == LARGE[1:]
        # A file that a recipient sent can be forwarded.
        await scene.send(running, NUMBER, {"type": "document", "document": {"id": document["id"]}})
        await phone.signals.until(lambda: len(phone.contents) == 5)
        assert await phone.fetch(phone.contents[4]["document"]) == LARGE[1:]
        await running.stopped()
        connection.close("test")
