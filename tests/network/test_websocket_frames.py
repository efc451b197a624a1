"""WebSocket frames, byte by byte, and the responses to a peer that breaks the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from typing import Any

import aiohttp
import msgspec
import pytest
import websockets
from websockets.frames import Frame, Opcode

from harness import polling
from network.connections import websocket_connection, websocket_frames
from network.connections.websocket_connection import PING as PING_SECONDS
from network.connections.websocket_connection import SUBPROTOCOLS, WebSocketConnection
from network.connections.websocket_frames import Violation
from network.connections.websocket_handshake import WebSocketHandshake
from tests.live_objects import live_objects
from tests.network.conftest import Network
from tidings.wire import connection, device
from tidings.wire.unfinished import IncompleteFrames

ALICE = "15550000001"
LIMIT = 1 << 20
PING = b'{"t":"ping"}'


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """Return the bytes of a frame as the most common client library sends them."""
    return Frame(Opcode(opcode), payload, fin).serialize(mask=True)


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 127, 65_535, 65_536, 100_001])
def test_payloads_of_every_length_encoded_by_another_library_are_read(size: int) -> None:
    payload = os.urandom(size)
    data = b"before" + masked(websocket_frames.BINARY, payload)
    head = websocket_frames.read_head(memoryview(data), 6, limit=LIMIT)
    assert head is not None
    assert (head.opcode, head.is_last, head.end) == (websocket_frames.BINARY, True, len(data))
    assert websocket_frames.unmask(memoryview(data)[head.start : head.end], head.key) == payload


@pytest.mark.parametrize("size", [5, 300, 70_000])
def test_an_incomplete_frame_head_is_none(size: int) -> None:
    data = masked(websocket_frames.TEXT, bytes(size))
    for end in range(len(data) - size):
        assert websocket_frames.read_head(memoryview(data)[:end], 0, limit=LIMIT) is None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xc2\x80\0\0\0\0", websocket_frames.PROTOCOL_ERROR),
        (b"\x83\x80\0\0\0\0", websocket_frames.PROTOCOL_ERROR),
        (b"\x82\x00", websocket_frames.PROTOCOL_ERROR),
        (b"\x09\x80\0\0\0\0", websocket_frames.PROTOCOL_ERROR),
        (b"\x89\xfe\x00\x7e", websocket_frames.PROTOCOL_ERROR),
        (b"\x82\xff" + struct.pack(">Q", LIMIT + 1), websocket_frames.TOO_BIG),
        (b"\x82\xff" + struct.pack(">Q", 2**63 - 1), websocket_frames.TOO_BIG),
        (b"\x82\xff" + struct.pack(">Q", 2**63), websocket_frames.PROTOCOL_ERROR),
        (b"\x82\xff" + struct.pack(">Q", 2**63 + 5), websocket_frames.PROTOCOL_ERROR),
        (b"\x82\xfe" + struct.pack(">H", 0), websocket_frames.PROTOCOL_ERROR),
        (b"\x82\xfe" + struct.pack(">H", 125), websocket_frames.PROTOCOL_ERROR),
        (b"\x81\xff" + struct.pack(">Q", 5), websocket_frames.PROTOCOL_ERROR),
        (b"\x80\xff" + struct.pack(">Q", 65_535), websocket_frames.PROTOCOL_ERROR),
    ],
    ids=[
        *("reserved bit", "reserved opcode", "no mask", "fragmented ping", "long ping", "too long", "2^63 - 1"),
        *("high bit", "high bit and a short length", "0 in two bytes", "125 in two bytes", "5 in eight bytes"),
        "65,535 in eight bytes",
    ],
)
def test_a_protocol_violation_is_detected_as_early_as_possible(data: bytes, code: int) -> None:
    with pytest.raises(Violation) as raised:
        websocket_frames.read_head(memoryview(data), 0, limit=LIMIT)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 1000),
        (b"\x03\xe8", 1000),
        (b"\x03\xe9away", 1001),
        (b"\x0f\xa0", 4000),
        (b"\x03", 1002),
        (b"\x03\xee", 1002),
        (b"\x00\x05", 1002),
        (b"\x13\x88", 1002),
        (b"\x03\xe8\xff", 1007),
    ],
    ids=["nothing", "normal", "away", "its own", "half a code", "never sent", "too low", "too high", "not UTF-8"],
)
def test_a_close_frame_is_returned_with_its_code_or_an_error_code(payload: bytes, code: int) -> None:
    assert websocket_frames.response_to_closing(payload) == code


class Line(asyncio.Transport):
    """Transport whose peer reads nothing, or everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_paused = False
        self.gone = asyncio.Event()
        self.cut = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.gone.is_set()

    def close(self) -> None:
        self.gone.set()

    def abort(self) -> None:
        self.gone.set()
        self.cut.set()


class Closer:
    """Handler that closes its connection on the first frame."""

    def __init__(self) -> None:
        self.received_now = 0

    def opened(self, connection: connection.Connection) -> None:
        pass

    def received(self, connection: connection.Connection, frame: Any) -> None:
        self.received_now += 1
        connection.close(device.IDLE)

    def closed(self, connection: connection.Connection, reason: str) -> None:
        pass


def connected(handler: connection.Handler) -> tuple[WebSocketConnection, Line]:
    made = WebSocketConnection(
        SUBPROTOCOLS["tidings.v1.json"], handler, "", max_write_buffer=2**20, unfinished=IncompleteFrames()
    )
    line = Line()
    made.connection_made(line)
    return made, line


def goodbyes(written: bytes) -> int:
    return written.count(websocket_frames.closing(websocket_frames.NORMAL, device.IDLE))


async def test_a_close_frame_behind_more_frames_than_one_iteration_reads_is_found() -> None:
    handler = Closer()
    made, line = connected(handler)
    many = masked(websocket_frames.TEXT, PING) * (3 * connection.FRAMES_PER_ITERATION)
    made.data_received(many + masked(websocket_frames.CLOSE, b"\x03\xe8"))
    assert not line.gone.is_set()
    await asyncio.wait_for(line.gone.wait(), 10)
    assert handler.received_now == goodbyes(line.written) == 1
    assert not line.cut.is_set()


async def test_frames_left_unread_by_rate_limiting_are_read_at_close() -> None:
    made, line = connected(Closer())
    made.pause(connection.PACED)
    assert line.is_paused
    made.data_received(masked(websocket_frames.CLOSE, b""))
    made.close(device.IDLE)
    await asyncio.wait_for(line.gone.wait(), 10)
    assert not line.cut.is_set()


async def test_a_peer_that_keeps_sending_after_a_close_frame_is_cut_off() -> None:
    made, line = connected(Closer())
    made.limit(frame=4096, unread=4096)
    made.data_received(masked(websocket_frames.TEXT, PING))
    ping = masked(websocket_frames.TEXT, PING) * 10
    for _ in range(4 * 4096 // len(ping)):
        made.data_received(ping)
        assert not line.cut.is_set()
    made.data_received(ping)
    assert line.cut.is_set()


@pytest.mark.parametrize("who", ["we", "peer"])
async def test_a_peer_that_does_not_return_a_close_frame_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(websocket_connection, "CLOSE_GRACE", 0.01)
    made, line = connected(Closer())
    if who == "we":
        made.close(device.IDLE)
    else:
        made.data_received(masked(websocket_frames.CLOSE, b""))
    await asyncio.wait_for(line.cut.wait(), 10)


@pytest.mark.parametrize("answer", ["", "pong", "a message"])
async def test_a_peer_that_sends_nothing_after_a_ping_is_cut_off(answer: str) -> None:
    class Listener(Closer):
        def received(self, connection: connection.Connection, frame: Any) -> None:
            pass

    made, line = connected(Listener())
    began = asyncio.get_running_loop().time()
    made.ping(began + PING_SECONDS - 1)
    await asyncio.sleep(0)
    assert not line.written
    # The clock of the checks is ahead of that of messages, so the last ping is in the past.
    made.ping(began + PING_SECONDS + 1)
    await asyncio.sleep(0)
    assert line.written == b"\x89\x00"
    if answer == "pong":
        made.data_received(masked(websocket_frames.PONG, b""))
    elif answer == "a message":
        made._pinged_at = began - 1
        made.data_received(masked(websocket_frames.TEXT, PING))
    made.ping(began + 2 * PING_SECONDS + 2)
    assert line.cut.is_set() == (not answer)


async def open_socket(network: Network, protocol: str = "tidings.v1.json") -> aiohttp.ClientWebSocketResponse:
    url = "http://{}:{}/v1/connect".format(*network.addresses.http)
    return await network.http.ws_connect(url, protocols=(protocol,), autoclose=False, autoping=False)


async def write(socket: aiohttp.ClientWebSocketResponse, data: bytes) -> None:
    """Write bytes unchanged."""
    socket._writer.transport.write(data)


# Transport and database do not matter: all of these tests use WebSockets.
one_pair = pytest.mark.parametrize("pair", [("tcp", "sqlite")])


@one_pair
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(websocket_frames.CONTINUATION, b"x"), websocket_frames.PROTOCOL_ERROR),
        (masked(websocket_frames.TEXT, b"x", fin=False) + masked(websocket_frames.TEXT, b"x"), 1002),
        (masked(websocket_frames.TEXT, bytes(5000)), websocket_frames.TOO_BIG),
        (masked(websocket_frames.TEXT, bytes(3000), fin=False) + masked(0, bytes(3000)), websocket_frames.TOO_BIG),
        (masked(websocket_frames.TEXT, b"{"), websocket_frames.INCONSISTENT),
        (masked(websocket_frames.TEXT, b'{"t":"\xff"}'), websocket_frames.INCONSISTENT),
        (b"\x81\x0c" + PING, websocket_frames.PROTOCOL_ERROR),
        (masked(websocket_frames.CLOSE, b"\x03\xee"), websocket_frames.PROTOCOL_ERROR),
        (b"\x81\xfe\x00\x0c\0\0\0\0" + PING, websocket_frames.PROTOCOL_ERROR),
        (b"\x81\xff" + struct.pack(">Q", 12) + b"\0\0\0\0" + PING, websocket_frames.PROTOCOL_ERROR),
        (b"\x81\xff" + struct.pack(">Q", 300) + b"\0\0\0\0" + PING.ljust(300), websocket_frames.PROTOCOL_ERROR),
        (b"\x81\xff" + struct.pack(">Q", 2**63 + 12) + b"\0\0\0\0" + PING, websocket_frames.PROTOCOL_ERROR),
    ],
    ids=[
        *("continues nothing", "two at once", "too long", "too long together", "no frame", "not UTF-8", "no mask"),
        *("a code that is never sent", "12 in two bytes", "12 in eight bytes", "300 in eight bytes", "high bit"),
    ],
)
async def test_a_websocket_that_violates_the_protocol_is_closed_with_the_matching_code(
    network: Network, data: bytes, code: int
) -> None:
    await network.start()
    socket = await open_socket(network)
    await write(socket, data)
    while (message := await socket.receive(timeout=10)).type is aiohttp.WSMsgType.TEXT:
        assert msgspec.json.decode(message.data)["t"] == "closing"
    assert message.data == code
    await socket.close()


@one_pair
async def test_fragments_around_a_ping_form_one_message_and_the_ping_gets_a_pong(network: Network) -> None:
    await network.start()
    socket = await open_socket(network)
    parts = [masked(websocket_frames.TEXT, PING[:3], fin=False), masked(websocket_frames.PING, b"are you there")]
    parts += [masked(websocket_frames.CONTINUATION, PING[3:7], fin=False), masked(0, PING[7:])]
    for part in parts:
        # The same byte by byte.
        for start in range(len(part)):
            await write(socket, part[start : start + 1])
    pong = await socket.receive(timeout=10)
    assert (pong.type, bytes(pong.data)) == (aiohttp.WSMsgType.PONG, b"are you there")
    assert msgspec.json.decode((await socket.receive(timeout=10)).data) == {"t": "pong"}
    await socket.close()


@one_pair
async def test_a_closing_websocket_receives_a_close_frame(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    url = "ws://{}:{}/v1/connect".format(*network.addresses.http)
    async with websockets.connect(url, subprotocols=[websockets.Subprotocol("tidings.v1.json")]) as socket:
        login = device.Login(n=1, number=ALICE, token=network.tokens[ALICE])
        await socket.send(msgspec.json.encode(login).decode())
        assert msgspec.json.decode(await socket.recv())["t"] == "ok"
        await socket.close(4000, "enough")
        assert socket.close_code == 4000


async def upgrade(network: Network, **headers: str) -> tuple[int, bytes]:
    """Send a handshake with these headers. Returns status and body of the response."""
    reader, writer = await asyncio.open_connection(*network.addresses.http)
    lines = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
    lines |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Protocol": "tidings.v1.json"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"GET /v1/connect HTTP/1.1\r\n{head}\r\n".encode())
    async with asyncio.timeout(30):
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split()[1])
        body = b"" if status == 101 else await reader.read()
    writer.transport.abort()
    return status, body


@one_pair
async def test_handshakes_require_a_configured_host_name(network: Network) -> None:
    await network.start(http_hosts=frozenset({"chat.example.com"}))
    assert (await upgrade(network, Host="chat.example.com"))[0] == 101
    assert (await upgrade(network, Host="chat.example.com", Origin="https://chat.example.com"))[0] == 101
    assert (await upgrade(network, Host="127.0.0.1", Origin="http://localhost:3000"))[0] == 101
    status, body = await upgrade(network, Host="rebound.example")
    assert (status, msgspec.json.decode(body)["error"]["reason"]) == (421, "wrong_host")
    assert (await upgrade(network))[0] == 421
    for origin in ("https://rebound.example", "null"):
        status, body = await upgrade(network, Host="chat.example.com", Origin=origin)
        assert (status, msgspec.json.decode(body)["error"]["reason"]) == (403, "wrong_origin")


@one_pair
async def test_handshakes_accept_any_host_name_by_default(network: Network) -> None:
    await network.start()
    assert (await upgrade(network, Host="rebound.example", Origin="https://rebound.example"))[0] == 101


@one_pair
@pytest.mark.parametrize("protocol", ["tidings.v1.json", "something.else"], ids=["open", "denied"])
async def test_a_finished_handshake_leaves_no_object_and_no_error(
    no_collector: None, network: Network, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    await network.start()
    with contextlib.suppress(aiohttp.WSServerHandshakeError):
        await open_socket(network, protocol)
    await polling.until(lambda: not live_objects(WebSocketHandshake))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
