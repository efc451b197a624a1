"""Effects of unauthenticated clients, and of one misbehaving device, on the live connections of the network."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence

import aiohttp
import msgspec
import pytest

from tests.network.support import registration
from tests.security.attack import CPU_PERCENT, Attack
from tests.security.figures import Form
from tests.security.scene import Target
from tidings.wire import device
from tidings.wire.connection import framed

OTHERS = ("network", "device")
TCP, WEBSOCKET = "TCP", "WebSocket"
UPGRADE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: tidings.v1.msgpack\r\n\r\n"
)
TEXT, BINARY, PING = 1, 2, 9
both = pytest.mark.parametrize("carrier", [TCP, WEBSOCKET])


class Line:
    """Raw live connection."""

    def __init__(self, carrier: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.carrier = carrier
        self.reader = reader
        self.writer = writer

    def frame(self, frame: msgspec.Struct) -> bytes:
        return framed(frame) if self.carrier == TCP else message(BINARY, msgspec.msgpack.encode(frame))

    def start_of(self, size: int) -> bytes:
        """Return the start of a frame of `size` bytes."""
        return size.to_bytes(4, "big") if self.carrier == TCP else b"\x82\xff" + struct.pack("!Q", size) + bytes(4)

    async def pour(self, data: bytes, seconds: float) -> None:
        """Write the data repeatedly for `seconds`, as fast as it is read."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self.writer.write(data)
                    await self.writer.drain()

    async def swallow(self) -> None:
        """Read and discard."""
        with contextlib.suppress(OSError):
            while await self.reader.read(2**20):
                pass

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof() and not self.writer.transport.is_closing()


def message(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """Return one WebSocket frame, with a mask of zeros."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = b"\xfe" + struct.pack("!H", size) if size < 2**16 else b"\xff" + struct.pack("!Q", size)
    return bytes([opcode | (0x80 if last else 0)]) + length + bytes(4) + data


async def dial(target: Target, carrier: str, addresses: Sequence[str] = ("",)) -> list[Line]:
    """Open a connection from each address, or from a new one where it is empty. Refused connections are left out."""
    lines = []
    for address in addresses:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            lines.append(await dial_one(target, carrier, address))
    return lines


async def dial_one(target: Target, carrier: str, address: str = "") -> Line:
    """Open one connection. Raises `OSError` and `IncompleteReadError`."""
    reader, writer = await target.dial("connections" if carrier == TCP else "network", address or None)
    if carrier == WEBSOCKET:
        writer.write(UPGRADE)
        if b" 101 " not in await reader.readuntil(b"\r\n\r\n"):
            raise ConnectionRefusedError("no WebSocket")
    return Line(carrier, reader, writer)


async def dial_all(target: Target, carrier: str, count: int) -> list[Line]:
    """Open `count` connections, each from a new address. Waits when an earlier attack has exhausted the common
    limit."""
    lines: list[Line] = []
    async with asyncio.timeout(30):
        while len(lines) < count:
            lines += await dial(target, carrier, [""] * (count - len(lines)))
            for line in lines:
                line.writer.write(line.frame(device.Ping()))
            heard = await asyncio.gather(*(line.reader.read(1000) for line in lines))
            lines = [line for line, data in zip(lines, heard, strict=True) if b"pong" in data]
            await asyncio.sleep(0.1)
    return lines


async def logged_in(target: Target, number: str) -> Line:
    """Return the connection of a device that is logged in."""
    async with aiohttp.ClientSession(target.network_url) as http:
        headers = {"Authorization": f"Bearer {target.registration_key}"}
        async with http.post("/v1/registrations", json=registration(number), headers=headers) as response:
            token = (await response.json())["token"]
    (line,) = await dial_all(target, TCP, 1)
    line.writer.write(line.frame(device.Login(1, number, token)))
    size = int.from_bytes(await line.reader.readexactly(4), "big")
    assert isinstance(msgspec.msgpack.decode(await line.reader.readexactly(size), type=device.FromNetwork), device.Ok)
    return line


async def test_unauthenticated_connections_that_only_ping_are_limited_and_closed(
    target: Target, attack: Attack, form: Form
) -> None:
    async with attack("connections that only ping", on="network", others=OTHERS) as strike:
        lines = await dial(target, TCP, [target.unknown_address()] * form.count(110, 400) + [""] * form.count(20, 600))
        reading = [asyncio.create_task(line.swallow()) for line in lines]
        open_at_once = await target.metric("network", "tidings_network_unauthenticated_connections")
        strike.figure("without a login at once", open_at_once, 500)
        for _ in range(form.count(1, 14)):
            for line in lines:
                if line.is_open:
                    line.writer.write(line.frame(device.Ping()))
            await asyncio.sleep(1)
        if form.long:
            strike.figure("left after 10 s", sum(line.is_open for line in lines), 0)
        for task in reading:
            task.cancel()


@both
async def test_unauthenticated_acknowledgements_delay_no_other_client(
    target: Target, attack: Attack, form: Form, carrier: str
) -> None:
    acks = device.Ack(n=[1] * 4_000_000)
    async with attack(f"4 MB of acknowledgements, {carrier}", on="network", others=OTHERS) as strike:
        lines = await dial_all(target, carrier, 4)
        await asyncio.gather(*(line.pour(line.frame(acks), form.pick(1.0, 10.0)) for line in lines))
        await strike.last(form.pick(0.6, 15.0))


@both
async def test_unfinished_frames_use_little_memory(target: Target, attack: Attack, form: Form, carrier: str) -> None:
    async with attack(f"unfinished frames, {carrier}", on="network", others=OTHERS) as strike:
        lines = await dial(target, carrier, [""] * form.count(60, 300))
        for line in lines:
            line.writer.write(line.start_of(4 * 2**20) + bytes(2**20))
            line.writer.write(line.start_of(4000) + bytes(3000))
        await strike.last(form.pick(0.8, 20.0))


@both
async def test_unread_pongs_do_not_accumulate(target: Target, attack: Attack, form: Form, carrier: str) -> None:
    async with attack(f"pongs that nobody reads, {carrier}", on="network", others=OTHERS):
        (line,) = await dial_all(target, carrier, 1)
        await line.pour(line.frame(device.Ping()) * 10_000, form.pick(0.6, 30.0))


async def test_unread_pongs_of_a_device_do_not_accumulate(target: Target, attack: Attack, form: Form) -> None:
    async with attack("pongs that a device does not read", on="network", others=OTHERS):
        line = await logged_in(target, "15550190101")
        await line.pour(line.frame(device.Ping()) * 10_000, form.pick(0.6, 30.0))


async def test_stray_acknowledgements_of_a_device_are_rate_limited(target: Target, attack: Attack, form: Form) -> None:
    """The first thousand are handled at once and weigh too much in a single second, so the limit is 20 % of a
    core."""
    async with attack("stray acknowledgements of a device", on="network", others=OTHERS, cpu=20):
        line = await logged_in(target, "15550190102")
        reading = asyncio.create_task(line.swallow())
        await line.pour(line.frame(device.Ack(n=[1] * 100_000)), form.pick(0.6, 30.0))
        reading.cancel()


@both
async def test_wrong_logins_and_pings_use_few_resources(
    target: Target, attack: Attack, form: Form, carrier: str
) -> None:
    async with attack(f"wrong logins, {carrier}", on="network", others=OTHERS) as strike:
        lines = await dial(target, carrier, [target.unknown_address()] * 20 + [""] * 20)
        reading = [asyncio.create_task(line.swallow()) for line in lines]
        await asyncio.gather(
            *(
                line.pour(
                    line.frame(device.Login(1, f"1555019{n:04}", "x" * 43)) * 100 + line.frame(device.Ping()) * 100,
                    form.pick(0.6, 20.0),
                )
                for n, line in enumerate(lines)
            )
        )
        await strike.last(form.pick(0.6, 20.0))
        for task in reading:
            task.cancel()


async def test_repeated_connections_use_few_resources(target: Target, attack: Attack, form: Form) -> None:
    seconds = form.pick(0.6, 20.0)

    async def connect(addresses: Sequence[str]) -> int:
        tried = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(OSError):
                        host, port = target.places["connections"]
                        address = (addresses[tried % len(addresses)], 0)
                        _, writer = await asyncio.open_connection(host, port, local_addr=address)
                        writer.transport.abort()
                    tried += 1
        return tried

    async with attack("connecting again and again", on="network", others=OTHERS) as strike:
        one, many = [target.unknown_address()], [target.unknown_address() for _ in range(100)]
        tried = await asyncio.gather(connect(one), connect(many))
    strike.figure("connections tried in a second", sum(tried) / strike.seconds, None)


@pytest.mark.parametrize("kind", ["pings", "empty fragments"])
async def test_websocket_control_frames_and_fragments_use_few_resources(
    target: Target, attack: Attack, form: Form, kind: str
) -> None:
    async with attack(f"{kind} of WebSockets", on="network", others=OTHERS):
        lines = await dial_all(target, WEBSOCKET, 4)
        data = message(PING, b"x" * 100) if kind == "pings" else message(0, b"", last=False)
        for line in lines:
            line.writer.write(message(BINARY, b"", last=False) if kind != "pings" else b"")
        await asyncio.gather(*(line.pour(data * 5000, form.pick(0.6, 20.0)) for line in lines))


async def test_registration_code_requests_and_attempts_are_rate_limited(
    target: Target, attack: Attack, form: Form
) -> None:
    seconds = form.pick(0.6, 20.0)
    responses: dict[int, int] = {}
    number = registration("15550190103", prekeys=0, kyber=False)

    async def post(connector: aiohttp.TCPConnector, path: str) -> None:
        async with aiohttp.ClientSession(target.network_url, connector=connector) as http:
            for i in range(10**6):
                body = {"number": f"15559{i:06}"} if path == "/v1/codes" else {**number, "code": f"{i:06}"}
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.post(path, json=body) as response:
                        responses[response.status] = responses.get(response.status, 0) + 1

    # Within one second most of the cost comes from the token buckets, which are full at first.
    cpu = CPU_PERCENT if form.long else None
    async with attack("codes and tries of them", on="network", others=OTHERS, cpu=cpu) as strike:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for path in ("/v1/codes", "/v1/registrations") * 10:
                    group.create_task(post(aiohttp.TCPConnector(local_addr=(target.unknown_address(), 0)), path))
    # 64 tokens and 16 more in each second; a request may wait 5 s for its first token and costs four.
    handled = responses.get(202, 0) + responses.get(401, 0)
    strike.figure("codes issued and tried", handled, 64 + 5 * 16 + strike.seconds * 16 / 4)
    assert 500 not in responses
