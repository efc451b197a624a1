"""Load balancer in front of a cluster, for clients that know only one address."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from harness.galera import Node
from harness.proxy import Proxy

CHECK_SECONDS = 0.25


class Balancer:
    """Balancer that leads all connections to one node, and to another when that is not ready: an async context
    manager."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Create the balancer. The first ready node is used."""
        self._nodes = nodes
        self.node = nodes[0]
        self._proxy = Proxy("127.0.0.1", self.node.port)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Port on which it listens on loopback."""
        return self._proxy.address[1]

    async def __aenter__(self) -> Self:
        await self._proxy.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._proxy.stop()

    async def _run(self) -> None:
        while True:
            if not await asyncio.to_thread(lambda: self.node.is_ready):
                await self._move()
            await asyncio.sleep(CHECK_SECONDS)

    async def _move(self) -> None:
        for node in self._nodes:
            if await asyncio.to_thread(lambda node=node: node.is_ready):
                self.node = node
                self._proxy.set_target("127.0.0.1", node.port)
                # Clients of the former node must reconnect.
                self._proxy.cut()
                self._proxy.open()
                return
