"""A Coreapp, our own network, and people in groups with real keys."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import Signals
from tidings import e2ee
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames

ANN, BEN, CAT = "15550110001", "15550110002", "15550110003"
DISTRIBUTION = b"0123456789abcdef"


class Member(Phone):
    """Phone of a person on our network. It reads what it can, and sends the receipts of each group message."""

    def __init__(self, number: str, scene: Scene) -> None:
        super().__init__(number)
        self.scene = scene
        self.signals = Signals()
        self.shown: list[tuple[str, str]] = []  # (id, text or content) of the group messages that could be read
        self.heard: list[bytes] = []  # ciphertexts of all group messages of the business
        self.lost: list[str] = []  # ids of the group messages that could not be read
        self.keys = 0  # number of times that the business has sent its sender key
        self.key_requests = 0
        self.reads: list[frames.Deliver] = []
        self.changes: list[str] = []
        self.receipts: tuple[str, ...] = (frames.DELIVERED, frames.READ)
        self.token = ""
        self.business_key: e2ee.SenderKeyRecord | None = None
        self.own_key = e2ee.SenderKeyRecord.create(DISTRIBUTION)
        self._connection: wire.Connection | None = None
        self._n = 1

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        async with httpx.AsyncClient(base_url=self.scene.http, verify=False, trust_env=False) as client:
            headers = {"Authorization": f"Bearer {self.token}"}
            response = await client.request(method, f"/v1/groups/{self.number}{path}", json=body, headers=headers)
        assert response.is_success, response.text
        return response.json()

    async def register(self) -> None:
        self.token = await self.scene.network.register(self)

    async def connect(self) -> None:
        await wire.connect(*self.scene.network.tcp, frames.FromNetwork, self)

    def disconnect(self) -> None:
        assert self._connection is not None
        self._connection.close("test")

    async def join(self, group: str) -> None:
        code = (await self.scene.running.client.call(lambda n: core.GetGroupInvite(n, BUSINESS, group))).link
        await self.call("POST", "/join", {"code": code.rsplit("/", 1)[1]})

    def opened(self, connection: wire.Connection) -> None:
        self._connection = connection
        connection.send(frames.Login(1, self.number, self.token))

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.signals.changed()

    def received(self, connection: wire.Connection, frame: Any) -> None:
        assert not isinstance(frame, frames.Failed | frames.Closing | frames.Refused), frame
        if isinstance(frame, frames.Deliver):
            self._take(frame)
            connection.send(frames.Ack([frame.n]))
        self.signals.changed()

    def _take(self, frame: frames.Deliver) -> None:
        if frame.kind in (frames.PREKEY, frames.MESSAGE):
            content = self.read(frame.kind, frame.body)
            if content["type"] == "sender_key":
                self._take_key(content["sender_key"])
            elif content["type"] == "sender_key_request":
                self.key_requests += 1
                self.give_key(content["sender_key_request"]["group"])  # type: ignore[index]
        elif frame.kind == frames.GROUP and frame.sender == BUSINESS:
            self._read_group(frame)
        elif frame.kind == frames.READ:
            self.reads.append(frame)
        elif frame.kind == frames.GROUP_CHANGED:
            self.changes.append(json.loads(frame.body)["change"])

    def _take_key(self, content: Any) -> None:
        self.keys += 1
        distribution = base64.b64decode(content["distribution"])
        parsed = e2ee.DistributionMessage.parse(distribution)
        if self.business_key is None or self.business_key.distribution_id != parsed.distribution_id:
            self.business_key = e2ee.SenderKeyRecord(parsed.distribution_id)
        self.business_key.process(distribution)

    def _read_group(self, frame: frames.Deliver) -> None:
        self.heard.append(frame.body)
        try:
            if self.business_key is None:
                raise e2ee.NoSession("no key")
            content = json.loads(self.business_key.decrypt(frame.body))
        except e2ee.E2EEError:
            self.lost.append(frame.id)
            return
        self.shown.append((frame.id, content["text"]["body"] if content["type"] == "text" else content))
        for kind in self.receipts:
            self.send(BUSINESS, f"{kind}-{self.number}-{frame.id}", kind, refs=[frame.id], group=frame.group)

    def send(self, to: str, id: str, kind: str, body: bytes = b"", **more: Any) -> None:
        assert self._connection is not None
        self._n += 1
        self._connection.send(frames.Send(self._n, self.number, to, id, kind, body, **more))

    def send_to_business(self, id: str, content: Any) -> None:
        """Send to the business alone."""
        kind, body = self.write(json.dumps(content).encode())
        self.send(BUSINESS, id, kind, body)

    def give_key(self, group: str) -> None:
        distribution = base64.b64encode(self.own_key.distribution()).decode()
        self._n += 1
        content = {"type": "sender_key", "sender_key": {"group": group, "distribution": distribution}}
        self.send_to_business(f"key-{self.number}-{self._n}", content)

    async def send_to_group(self, group: str, id: str, content: Any) -> None:
        """Send to the group, under the sender key that the business may have."""
        epoch = (await self.call("GET", f"/{group}"))["epoch"]
        body = self.own_key.encrypt(json.dumps(content).encode())
        self.send(group, id, frames.GROUP, body, epoch=epoch)


class Scene:
    """The processes of a test, and the group members."""

    def __init__(self, world: World, running: Running, network: RealNetwork) -> None:
        self.world = world
        self.running = running
        self.network = network
        self.http = network.http
        self.network_db = network.database
        self.members: list[Member] = []

    async def member(self, number: str) -> Member:
        member = Member(number, self)
        await member.register()
        await member.connect()
        self.members.append(member)
        return member

    async def restart(self, **settings: Any) -> None:
        """Kill the Coreapp and start another that takes over."""
        if not self.running.task.done():
            await self.running.killed()
        self.running = await self.world.start(
            node=f"node-{len(self.world.running)}", network_tcp=self.network.tcp, network_http=self.http, **settings
        )

    async def call(self, make: Any) -> Any:
        return await self.running.client.call(make)

    async def create(self, subject: str = "Lunch") -> str:
        response = await self.call(lambda n: core.CreateGroup(n, BUSINESS, subject))
        assert isinstance(response, core.GroupList), response
        return response.groups[0].id

    async def describe(self, group: str) -> core.GroupDescription:
        response = await self.call(lambda n: core.GetGroup(n, BUSINESS, group))
        assert isinstance(response, core.GroupDescription), response
        return response

    async def change(self, group: str, action: str, **more: Any) -> Any:
        return await self.call(lambda n: core.ChangeGroup(n, BUSINESS, group, action, **more))

    async def post(self, group: str, text: str = "hello") -> Any:
        content = json.dumps({"type": "text", "text": {"body": text}}).encode()
        return await self.call(
            lambda n: core.AcceptMessage(n, BUSINESS, group, "text", content, recipient_type="group")
        )

    async def sent(self, group: str, text: str = "hello") -> str:
        response = await self.post(group, text)
        assert isinstance(response, core.Accepted), response
        return response.id

    async def joined(self, group: str, *numbers: str) -> list[Member]:
        """Add new people to a group and wait until the business knows of them."""
        found = [await self.member(number) for number in numbers]
        for member in found:
            await member.join(group)
        await self.until_joined(group, *numbers)
        return found

    async def until_joined(self, group: str, *numbers: str, without: tuple[str, ...] = ()) -> None:
        """Wait until the business's webhook was notified of these joins and its replica of the group contains them.

        without: numbers that must have left the replica.
        """

        def is_current() -> bool:
            known = self.running.shard.groups.replicas.find(group)
            present = {number for number, _ in known.participants} if known else set()
            return set(numbers) <= present and not present & set(without)

        await self.world.sink.signals.until(is_current)

    def bodies(self, key: str) -> list[dict[str, Any]]:
        """Return the entries of `messages` or `statuses` that the webhook has accepted, each event once."""
        posts = {post.event_id: post for post in self.world.sink.taken() if key in post.body}
        return [post.body[key][0] for post in posts.values()]

    def statuses(self, message_id: str) -> list[tuple[str, str, str | None]]:
        return [
            (entry["status"], entry["recipient_id"], entry.get("group_id"))
            for entry in self.bodies("statuses")
            if entry["id"] == message_id
        ]

    def system(self) -> list[dict[str, Any]]:
        return [entry["system"] for entry in self.bodies("messages") if entry["type"] == "system"]

    async def until_webhook(self, predicate: Any) -> None:
        await self.world.sink.signals.until(predicate)


@contextlib.asynccontextmanager
async def group_scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    """Network and a Coreapp that is logged in to it."""
    async with real_network(world, database_factory, tmp_path) as network:
        yield Scene(world, await world.start(network_tcp=network.tcp, network_http=network.http), network)
        await world.close()
