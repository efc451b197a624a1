"""Frames arrive complete and in order however the bytes are split, and a bad peer is disconnected with a reason."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.wire import connection as wire
from tidings.wire import device
from tidings.wire.unfinished import IncompleteFrames


class Recorder:
    """Handler that records its events."""

    def __init__(self) -> None:
        self.connection: wire.Connection | None = None
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        self.is_up = asyncio.Event()
        self.is_down = asyncio.Event()
        self.reason = ""
        self.fails = False

    def opened(self, connection: wire.Connection) -> None:
        self.connection = connection
        self.is_up.set()

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if self.fails:
            raise RuntimeError("the handler is broken")
        self.frames.put_nowait(frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        assert not self.is_down.is_set(), "closed twice"
        self.reason = reason
        self.is_down.set()


class Transport(asyncio.Transport):
    """Transport that records what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


Listen = Callable[..., Any]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Function that listens: `await listen(**limits)` serves one connection and returns its handler and port."""
    servers: list[asyncio.Server] = []

    async def start(**limits: Any) -> tuple[Recorder, int]:
        handler = Recorder()
        server = await wire.listen("127.0.0.1", 0, device.FromDevice, lambda: handler, **limits)
        servers.append(server)
        return handler, server.sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


def encoded(*frames: msgspec.Struct) -> bytes:
    bodies = [msgspec.msgpack.encode(frame) for frame in frames]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


SEND = device.Send(n=1, sender="15550000000", to="15550110001", id="a", kind=device.MESSAGE, body=bytes(range(256)))


async def test_frames_arrive_in_order_in_both_directions(listen: Listen) -> None:
    here, port = await listen()
    there = Recorder()
    connection = await wire.connect("127.0.0.1", port, device.FromNetwork, there)
    sent = [SEND, device.Ack(n=[1, 2]), device.Ping()]
    for frame in sent:
        connection.send(frame)
    assert [await here.frames.get() for _ in sent] == sent
    here.connection.send(device.Accepted(n=[1]))
    assert await there.frames.get() == device.Accepted(n=[1])
    connection.close("done")
    await asyncio.gather(here.is_down.wait(), there.is_down.wait())
    assert there.reason == "done"
    assert here.reason == "closed by peer"


async def test_writes_of_one_event_loop_iteration_leave_as_one_segment() -> None:
    transport = Transport()
    connection = wire.Connection(device.FromNetwork, Recorder())
    connection.connection_made(transport)
    for _ in range(100):
        connection.send(SEND)
    assert transport.writes == []
    flushed = asyncio.Event()
    asyncio.get_running_loop().call_soon(flushed.set)
    await flushed.wait()
    assert transport.writes == [encoded(SEND) * 100]


async def test_closing_flushes_queued_frames_first(listen: Listen) -> None:
    here, port = await listen()
    connection = await wire.connect("127.0.0.1", port, device.FromNetwork, Recorder())
    connection.send(SEND)
    connection.close("bye")
    connection.send(device.Ping())
    assert await here.frames.get() == SEND
    await here.is_down.wait()
    assert here.frames.empty()


async def test_a_stream_split_at_any_byte_decodes() -> None:
    frames = [device.Ping(), SEND, device.Ack(n=[7])]
    stream = encoded(*frames)
    for cut in range(len(stream) + 1):
        handler = Recorder()
        connection = wire.Connection(device.FromDevice, handler)
        connection.connection_made(Transport())
        connection.data_received(stream[:cut])
        connection.data_received(stream[cut:])
        assert [handler.frames.get_nowait() for _ in frames] == frames


@given(st.lists(st.binary(max_size=200), max_size=10), st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_a_stream_in_pieces_of_any_size_decodes(bodies: list[bytes], pieces: list[int]) -> None:
    async def scenario() -> None:
        frames = [device.Send(n=n, sender="1", to="2", id=str(n), kind="m", body=body) for n, body in enumerate(bodies)]
        stream = encoded(*frames)
        handler = Recorder()
        connection = wire.Connection(device.FromDevice, handler)
        connection.connection_made(Transport())
        position = turn = 0
        while position < len(stream):
            size = pieces[turn % len(pieces)]
            connection.data_received(stream[position : position + size])
            position, turn = position + size, turn + 1
        assert [handler.frames.get_nowait() for _ in frames] == frames
        assert handler.frames.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ((1001).to_bytes(4, "big"), "a frame of 1001 bytes is over the limit of 1000"),
        (b"\xff\xff\xff\xff", "over the limit"),
        (b"\0\0\0\0", "bad frame"),
        (b"\0\0\0\3abc", "bad frame"),
        (encoded(device.Pong()), "bad frame"),
        (b"\0\0\0\4\x81\xa1t\xff", "bad frame"),
        (b"\0\0\0\5\x81\xa1t\xa1\xff", "bad frame"),
    ],
)
async def test_a_bad_frame_closes_the_connection_with_a_reason(listen: Listen, stream: bytes, reason: str) -> None:
    here, port = await listen(max_frame=1000, closing_frame=lambda text: device.Closing(device.BAD_FRAME, detail=text))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encoded(device.Ping()) + stream)
    said = await reader.read()
    assert msgspec.msgpack.decode(said[4:], type=device.Closing).reason == device.BAD_FRAME
    await here.is_down.wait()
    assert reason in here.reason
    assert await here.frames.get() == device.Ping()
    writer.close()
    await writer.wait_closed()


async def test_an_exception_in_a_handler_closes_only_its_connection(listen: Listen) -> None:
    here, port = await listen()
    here.fails = True
    there = Recorder()
    connection = await wire.connect("127.0.0.1", port, device.FromNetwork, there)
    connection.send(device.Ping())
    await asyncio.gather(there.is_down.wait(), here.is_down.wait())
    assert "the handler is broken" in here.reason


async def test_a_slow_reader_is_disconnected_without_blocking_the_sender(listen: Listen) -> None:
    here, port = await listen(max_write_buffer=100_000)
    deaf = socket.create_connection(("127.0.0.1", port))
    await here.is_up.wait()
    large = device.Send(n=1, sender="1", to="2", id="x", kind="m", body=bytes(1_000_000))
    while here.connection.is_open:
        here.connection.send(large)
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()
    await here.is_down.wait()
    assert here.reason == "slow reader"
    deaf.close()


async def test_closing_does_not_wait_for_a_peer_that_does_not_read(listen: Listen) -> None:
    here, port = await listen(max_write_buffer=100_000_000, linger=0.01)
    deaf = socket.create_connection(("127.0.0.1", port))
    await here.is_up.wait()
    for n in range(5):
        here.connection.send(device.Send(n=n, sender="1", to="2", id="x", kind="m", body=bytes(4_000_000)))
    here.connection.close("shutdown")
    await here.is_down.wait()
    assert here.reason == "shutdown"
    deaf.close()


async def test_an_oversized_frame_is_not_sent_and_leaves_the_stream_intact(listen: Listen) -> None:
    here, port = await listen()
    connection = await wire.connect("127.0.0.1", port, device.FromNetwork, Recorder())
    with pytest.raises(wire.FrameTooLong):
        connection.send(device.Send(n=1, sender="1", to="2", id="x", kind="m", body=bytes(wire.MAX_FRAME)))
    connection.send(device.Ping())
    assert await here.frames.get() == device.Ping()
    connection.close("done")
    await here.is_down.wait()


async def test_an_unencodable_frame_leaves_the_stream_intact(listen: Listen) -> None:
    here, port = await listen()
    connection = await wire.connect("127.0.0.1", port, device.FromNetwork, Recorder())
    with pytest.raises(TypeError):
        connection.send(device.Ack(n=[object()]))  # type: ignore[list-item]
    connection.send(device.Ping())
    assert await here.frames.get() == device.Ping()
    connection.close("done")
    await here.is_down.wait()


async def test_connecting_to_a_closed_port_raises_os_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(OSError):
            await wire.connect("127.0.0.1", probe.getsockname()[1], device.FromNetwork, Recorder())


async def test_unfinished_frames_are_bounded_and_the_oldest_is_disconnected(listen: Listen) -> None:
    unfinished = IncompleteFrames(limit=1000)
    here, port = await listen(
        unfinished=unfinished, closing_frame=lambda text: device.Closing("bad_frame", detail=text)
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encoded(device.Ping()) + (2000).to_bytes(4, "big") + bytes(900))
    assert await here.frames.get() == device.Ping()
    assert unfinished.size == 904
    writer.write(bytes(200))
    assert b"incomplete frames" in await reader.read()
    await here.is_down.wait()
    assert unfinished.size == 0
    writer.close()


async def deaf_peer(listen: Listen) -> tuple[Recorder, socket.socket]:
    """Return a held connection, and the socket of its peer, which reads nothing."""
    here, port = await listen(unfinished=IncompleteFrames())
    deaf = socket.create_connection(("127.0.0.1", port))
    await here.is_up.wait()
    while not here.connection.is_held:
        here.connection.send(device.Send(n=1, sender="1", to="2", id="x", kind="m", body=bytes(500_000)))
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()
    return here, deaf


async def test_a_peer_that_stops_reading_is_held_and_then_disconnected(listen: Listen) -> None:
    here, deaf = await deaf_peer(listen)
    now = asyncio.get_running_loop().time()
    here.connection.check_reader(now)
    here.connection.check_reader(now + 29)
    assert here.connection.is_open
    here.connection.check_reader(now + 31)
    await here.is_down.wait()
    assert here.reason == "it does not read"
    deaf.close()


async def test_the_connection_itself_checks_whether_its_peer_reads(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "STALL_CHECK", 0.01)
    monkeypatch.setattr(wire, "STALL", 0.05)
    here, deaf = await deaf_peer(listen)
    await asyncio.wait_for(here.is_down.wait(), 60)
    assert here.reason == "it does not read"
    deaf.close()


async def test_frames_per_event_loop_iteration_are_limited_and_all_arrive(listen: Listen) -> None:
    here, port = await listen(unfinished=IncompleteFrames())
    turns: list[int] = []

    def count() -> None:
        turns.append(here.frames.qsize())
        if here.frames.qsize() < 5 * wire.FRAMES_PER_ITERATION:
            asyncio.get_running_loop().call_soon(count)

    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encoded(device.Ping()) * (5 * wire.FRAMES_PER_ITERATION))
    await here.is_up.wait()
    count()
    for _ in range(5 * wire.FRAMES_PER_ITERATION):
        await here.frames.get()
    assert max(after - before for before, after in itertools.pairwise(turns)) <= wire.FRAMES_PER_ITERATION
    writer.close()


async def test_a_connecting_client_sets_its_limit_of_frames_per_iteration(listen: Listen) -> None:
    here, port = await listen()
    there = Recorder()
    await wire.connect("127.0.0.1", port, device.FromDevice, there, turn=4)
    await here.is_up.wait()
    turns: list[int] = []

    def count() -> None:
        turns.append(there.frames.qsize())
        if there.frames.qsize() < 20:
            asyncio.get_running_loop().call_soon(count)

    assert here.connection is not None
    for _ in range(20):
        here.connection.send(device.Ping())
    count()
    for _ in range(20):
        await there.frames.get()
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 4
    assert there.connection is not None
    there.connection.close("done")
    await here.is_down.wait()
