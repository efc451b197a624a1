"""Start the bare server in place of the Cloud API, and send it requests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from harness.cloud_client import VERSION
from harness.control import Child
from harness.mariadb import free_port


@dataclasses.dataclass(frozen=True, slots=True)
class Posts:
    """Posts that the server received."""

    times: Mapping[str, float]  # Unix seconds of the first post of each message, by the sender's id
    repeated: int  # further posts of them
    throttled: int  # refused with 130429


class GraphProcess(Child):
    """Process of `harness.graph_sink`, as an asynchronous context manager."""

    def __init__(self, directory: Path, *, delay: float = 0.001, rate: float = 0.0) -> None:
        """delay: seconds until a response. rate: messages per second, more are refused; 0 for no limit."""
        super().__init__("graph", "harness.graph_sink", directory)
        self._port = free_port()
        self._arguments = [f"--port={self._port}", f"--delay={delay}", f"--rate={rate}"]

    @property
    def base_url(self) -> str:
        """URL of its Cloud API."""
        return f"http://127.0.0.1:{self._port}/{VERSION}"

    async def __aenter__(self) -> Self:
        await self.start(self._arguments)
        # It responds when it listens.
        await self.request("wait", messages=0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def wait_posted(self, messages: int, *, seconds: float) -> None:
        """Wait until this number of messages was accepted since the last `take`. Raises `TimeoutError`."""
        async with asyncio.timeout(seconds):
            await self.request("wait", messages=messages)

    async def take(self) -> Posts:
        """Return the posts since the last call."""
        return Posts(**await self.request("take"))
