"""Reads of unauthenticated connections, which share a buffer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from tidings.wire.small_reads import SIZE, SmallReads


class Collector(asyncio.Protocol):
    """Handler that keeps what it receives; `done` when its connection is closed."""

    def __init__(self) -> None:
        self.data = b""
        self.most = 0
        self.done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.most = max(self.most, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(None)


async def test_connections_sharing_a_buffer_each_receive_their_own_bytes() -> None:
    collectors: list[Collector] = []

    def make() -> SmallReads:
        collectors.append(Collector())
        return SmallReads(collectors[-1])

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    sent = [os.urandom(5 * SIZE + n) for n in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        writers = []
        for _ in sent:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            stack.callback(writer.close)
            writers.append(writer)
        for start in range(0, 6 * SIZE, 1000):
            for data, writer in zip(sent, writers, strict=True):
                writer.write(data[start : start + 1000])
            await asyncio.sleep(0)
    await asyncio.gather(*(collector.done for collector in collectors))
    server.close()
    assert sorted(collector.data for collector in collectors) == sorted(sent)
    assert all(collector.most <= SIZE for collector in collectors)


async def test_event_loops_of_different_threads_use_different_buffers() -> None:
    def buffer() -> bytearray:
        return SmallReads(asyncio.Protocol()).get_buffer(-1)

    others: list[bytearray] = []
    thread = threading.Thread(target=lambda: others.append(buffer()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert buffer() is buffer()
    assert others[0] is not buffer()
