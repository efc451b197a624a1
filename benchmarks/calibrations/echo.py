"""Echo over loopback: 64 connections get back the 4 KB that they sent, between two processes with uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from benchmarks.calibrations import bare
from benchmarks.rig.calibration import RATE, Calibration, CalibrationResources

SIZE = 4096


class _Client(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        self._left = 0

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if not self._left:
            self._back.set_result(None)

    async def exchange(self, data: bytes) -> None:
        self._left, self._back = len(data), asyncio.get_running_loop().create_future()
        self.transport.write(data)
        await self._back


async def calibrate(_ground: CalibrationResources) -> Calibration:
    """Measure the rate of echoes. Raises `RunFailed`."""
    loop, data = asyncio.get_running_loop(), bytes(SIZE)
    async with bare.server("echo") as port:
        made = [await loop.create_connection(_Client, "127.0.0.1", port) for _ in range(bare.CLIENTS)]
        clients = [client for _, client in made]
        found = await bare.rate([_exchange(client, data) for client in clients])
        for client in clients:
            client.transport.close()
    return Calibration(f"echo of {SIZE} B over loopback, {bare.CLIENTS} connections", found, RATE)


def _exchange(client: _Client, data: bytes) -> Callable[[], Awaitable[None]]:
    return lambda: client.exchange(data)
