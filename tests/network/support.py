"""Network process on this event loop, and devices that connect to it over each transport."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec
import sqlalchemy as sa
import websockets

from harness import polling
from network import services
from network.services import NodeAddresses
from network.settings import BlobSettings, Cluster, Limits, Quotas, Settings
from tidings.aio.clock import Clock
from tidings.e2ee.prekeys import KyberPreKey, PreKey, SignedPreKey
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.installation.settings import DatabaseSettings
from tidings.secrets.process_secrets import NetworkSecrets
from tidings.storage.database import Connection, Database
from tidings.storage.network import group_messages, mailbox
from tidings.wire import device

REGISTRATION_KEY = "the registration key of these tests"
TIMEOUT = 30.0
ALICE, BOB, CAROL, DAVE = "15550000001", "15550000002", "15550000003", "15550000004"

FrameType = TypeVar("FrameType", bound=msgspec.Struct)


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def registration(
    number: str,
    *,
    prekeys: int = 25,
    kyber_prekeys: int = 0,
    kyber: bool = True,
    identity: IdentityKeyPair | None = None,
) -> dict[str, Any]:
    """Return the body of a registration with real keys."""
    me = identity or IdentityKeyPair.generate()
    body: dict[str, Any] = {
        "number": number,
        "registration_id": 4711,
        "identity_key": base64_text(me.public),
        "signed_prekey": signed_prekey(me, 1),
        "prekeys": [one_time_prekey(key_id) for key_id in range(1, prekeys + 1)],
    }
    if kyber:
        body["kyber_prekey"] = kyber_prekey(me, 900)
    if kyber_prekeys:
        body["kyber_prekeys"] = [kyber_prekey(me, key_id) for key_id in range(1, kyber_prekeys + 1)]
    return body


def signed_prekey(identity: IdentityKeyPair, key_id: int) -> dict[str, Any]:
    key = SignedPreKey.generate(identity, key_id)
    return {"key_id": key_id, "public": base64_text(key.public), "signature": base64_text(key.signature)}


def kyber_prekey(identity: IdentityKeyPair, key_id: int) -> dict[str, Any]:
    key = KyberPreKey.generate(identity, key_id)
    return {"key_id": key_id, "public": base64_text(key.public), "signature": base64_text(key.signature)}


def one_time_prekey(key_id: int) -> dict[str, Any]:
    return {"key_id": key_id, "public": base64_text(PreKey.generate(key_id).public)}


class Link(Protocol):
    """One open connection of either transport."""

    def send(self, frame: msgspec.Struct) -> None: ...

    async def send_raw(self, data: bytes) -> None:
        """Send the bytes of one frame, valid or not."""
        ...

    def stop_reading(self) -> None:
        """Stop reading. Later bytes stay in the buffers of the operating system."""
        ...

    async def close(self) -> None: ...


class TcpLink:
    """Frames on a TCP socket as docs/device-api.md defines them: four bytes of length, then MessagePack."""

    def __init__(self, received: Callable[[Any], None], closed: Callable[[], None]) -> None:
        self._received, self._closed = received, closed
        self._decode = msgspec.msgpack.Decoder(device.FromNetwork).decode

    async def open(self, addresses: NodeAddresses) -> TcpLink:
        self._reader, self._writer = await asyncio.open_connection(*addresses.tcp)
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                self._received(self._decode(await self._reader.readexactly(size)))
        self._writer.close()
        self._closed()

    def send(self, frame: msgspec.Struct) -> None:
        self._write(msgspec.msgpack.encode(frame))

    async def send_raw(self, data: bytes) -> None:
        self._write(data)

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def close(self) -> None:
        self._writer.close()

    def _write(self, data: bytes) -> None:
        self._writer.write(len(data).to_bytes(4, "big") + data)


class WebSocketLink:
    """Frames on a WebSocket, as JSON or MessagePack."""

    def __init__(self, received: Callable[[Any], None], closed: Callable[[], None], *, as_json: bool) -> None:
        self._received, self._closed, self._as_json = received, closed, as_json
        codec: Any = msgspec.json if as_json else msgspec.msgpack
        self._encode, self._decode = codec.encode, codec.Decoder(device.FromNetwork).decode
        self._outgoing: asyncio.Queue[bytes | str] = asyncio.Queue()

    async def open(self, addresses: NodeAddresses) -> WebSocketLink:
        host, port = addresses.http
        name = websockets.Subprotocol("tidings.v1.json" if self._as_json else "tidings.v1.msgpack")
        self._socket = await websockets.connect(
            f"ws://{host}:{port}/v1/connect", subprotocols=[name], max_size=None, close_timeout=1
        )
        assert self._socket.subprotocol == name
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        return self

    async def _read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for data in self._socket:
                self._received(self._decode(data))
        self._closed()

    async def _write(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self._socket.send(await self._outgoing.get())

    def send(self, frame: msgspec.Struct) -> None:
        data = self._encode(frame)
        self._outgoing.put_nowait(data.decode() if self._as_json else data)

    async def send_raw(self, data: bytes) -> None:
        self._outgoing.put_nowait(data.decode(errors="replace") if self._as_json else data)

    def stop_reading(self) -> None:
        self._socket.transport.pause_reading()  # type: ignore[attr-defined]

    async def close(self) -> None:
        await self._socket.close()
        self._tasks[1].cancel()


class Client:
    """Connection with the frames that have arrived and that the test has not read yet."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[Any] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self.closed = asyncio.Event()
        self.link: Link

    async def open(self, addresses: NodeAddresses, transport: str) -> Client:
        if transport == "tcp":
            self.link = await TcpLink(self._frames.put_nowait, self.closed.set).open(addresses)
        else:
            link = WebSocketLink(self._frames.put_nowait, self.closed.set, as_json=transport == "json")
            self.link = await link.open(addresses)
        return self

    async def next_frame(self) -> Any:
        """Return the next frame of any kind."""
        async with asyncio.timeout(TIMEOUT):
            return await self._frames.get()

    async def next(self, kind: type[FrameType]) -> FrameType:
        """Return the next frame, which must be of this kind."""
        frame = await self.next_frame()
        assert isinstance(frame, kind), f"{frame} instead of a {kind.__name__}"
        return frame

    async def accepted(self, count: int) -> list[int]:
        """Return the numbers of the next `count` accepted sends, in order, from as many frames as they take."""
        numbers: list[int] = []
        while len(numbers) < count:
            numbers += (await self.next(device.Accepted)).n
        assert len(numbers) == count
        return numbers

    async def deliveries(self, count: int) -> list[device.Deliver]:
        return [await self.next(device.Deliver) for _ in range(count)]

    async def nothing_came(self) -> None:
        """Make a round trip, which shows that no frame was on its way before it."""
        self.link.send(device.Ping())
        await self.next(device.Pong)

    async def login(self, number: str, token: str) -> None:
        n = next(self._numbers)
        self.link.send(device.Login(n=n, number=number, token=token))
        assert (await self.next(device.Ok)).n == n

    async def request(self, make: Callable[[int], msgspec.Struct]) -> Any:
        """Send a request and return the next frame."""
        self.link.send(make(next(self._numbers)))
        return await self.next_frame()

    def send(self, sender: str, to: str, id: str, **more: Any) -> int:
        n = next(self._numbers)
        more = {"kind": device.MESSAGE, "body": b"sealed", **more}
        self.link.send(device.Send(n=n, sender=sender, to=to, id=id, **more))
        return n

    def ack(self, *deliveries: device.Deliver) -> None:
        self.link.send(device.Ack(n=[delivery.n for delivery in deliveries]))

    async def close(self) -> None:
        await self.link.close()
        async with asyncio.timeout(TIMEOUT):
            await self.closed.wait()


# Quotas that are never reached, for tests of other things.
ROOMY = Quotas(share=10**6, share_bytes=10**9, pair_burst=10**6)


class Network:
    """Network on this event loop that can be restarted on the same database: one process, or several nodes.

    With several nodes, connections go to them in round robin, so that sender and recipient are on different nodes. HTTP
    calls go to the last node.
    """

    def __init__(self, database: DatabaseSettings, transport: str, *, nodes: int = 1, redis: str = "") -> None:
        """Create the network.

        redis: URL of the Redis server; each network uses its own key prefix in it.
        """
        self.database = database
        self.transport = transport
        self.cluster = Cluster(url=redis, prefix=f"test-{secrets.token_hex(6)}", heartbeat_timeout=2.0)
        self._directory = tempfile.TemporaryDirectory()
        self.blobs = BlobSettings(directory=Path(self._directory.name))
        self.tokens: dict[str, str] = {}
        self.nodes = [Node() for _ in range(nodes)]
        self._clients: list[Client] = []
        self._turn = 0
        self._http: aiohttp.ClientSession | None = None

    @property
    def addresses(self) -> NodeAddresses:
        """Addresses of the first node."""
        return self.nodes[0].addresses

    async def start(self, *, clock: Clock | None = None, limits: Limits | None = None, **changes: Any) -> None:
        for node in self.nodes:
            await self.start_node(node, clock=clock, limits=limits, **changes)
        self._http = aiohttp.ClientSession(f"http://127.0.0.1:{self.nodes[-1].addresses.http[1]}")

    async def start_node(
        self, node: Node, *, clock: Clock | None = None, limits: Limits | None = None, **changes: Any
    ) -> None:
        settings = Settings(
            database=self.database,
            secrets=NetworkSecrets(registration_key=REGISTRATION_KEY),
            data_dir=self.blobs.directory,
            blobs=self.blobs,
            http_address=("127.0.0.1", 0),
            tcp_address=("127.0.0.1", 0),
            limits=limits or Limits(),
            quotas=ROOMY,
            cluster=self.cluster,
            drain=0.0,
        )
        await node.start(settings.model_copy(update=changes), clock)

    async def stop(self) -> None:
        await asyncio.gather(*[node.stop() for node in self.nodes])
        if self._http is not None:
            await self._http.close()

    async def remove(self) -> None:
        for client in self._clients:
            if not client.closed.is_set():
                await client.close()
        await self.stop()
        self._directory.cleanup()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Open a reading connection to the network's database, whether the network runs or not."""
        database = Database(self.database, "network")
        try:
            async with database.reading() as connection:
                yield connection
        finally:
            await database.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None
        return self._http

    async def request(
        self, method: str, path: str, body: Any = None, *, token: str = "", **more: Any
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            more["json"] = body
        async with self.http.request(method, path, headers=headers, **more) as response:
            return response.status, await response.json()

    async def register(self, *numbers: str, **options: Any) -> None:
        """Register numbers with real keys and keep their tokens."""
        body = {"registrations": [registration(number, **options) for number in numbers]}
        status, response = await self.request("POST", "/v1/registrations/bulk", body, token=REGISTRATION_KEY)
        assert status == 201, response
        self.tokens.update((entry["number"], entry["token"]) for entry in response["registrations"])

    async def connect(self, *numbers: str, transport: str = "", node: int | None = None) -> Client:
        """Open a connection on which these registered numbers are logged in.

        node: index of the node; None for the next one in round robin.
        """
        if node is None:
            node, self._turn = self._turn % len(self.nodes), self._turn + 1
        client = await Client().open(self.nodes[node].addresses, transport or self.transport)
        self._clients.append(client)
        for number in numbers:
            await client.login(number, self.tokens[number])
        return client


class Node:
    """One network process on this event loop."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.addresses: NodeAddresses

    async def start(self, settings: Settings, clock: Clock | None = None) -> None:
        self._stop = asyncio.Event()
        ready: asyncio.Future[NodeAddresses] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(services.run(settings, self._stop, ready.set_result, clock=clock))
        both: list[asyncio.Future[Any]] = [self._task, ready]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            failed, self._task = self._task, None
            failed.result()
        self.addresses = ready.result()

    async def stop(self) -> None:
        """Stop the process in an orderly way."""
        if self._task is not None:
            self._stop.set()
            task, self._task = self._task, None
            await task


def ids(deliveries: list[device.Deliver]) -> list[str]:
    return [delivery.id for delivery in deliveries]


async def stored(network: Network) -> list[str]:
    """Return the ids of the envelopes in the mailboxes."""
    return await _ids_in(network, mailbox.table)


async def kept(network: Network) -> list[str]:
    """Return the ids of the group messages that are kept for copies in memory."""
    return await _ids_in(network, group_messages.table)


async def until_there_are(network: Network, *, rows: list[str], messages: list[str]) -> None:
    """Wait for these rows in the mailboxes and these kept messages."""

    async def are_there() -> bool:
        return (await stored(network), await kept(network)) == (rows, messages)

    await polling.until(are_there, seconds=TIMEOUT, pause=0.02)


async def _ids_in(network: Network, table: sa.Table) -> list[str]:
    async with network.reading() as connection:
        return list((await connection.execute(sa.select(table.c.id).order_by(table.c.seq))).scalars())


def reason(response: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    """Return the status and the reason of a refusal."""
    status, body = response
    assert set(body) == {"error"}
    assert body["error"]["detail"]
    return status, body["error"]["reason"]
