"""Requests to a child process and its responses, one JSON object per line on a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import spawn

ROOT = Path(__file__).parents[1]
# Bytes of one line: 100,000 numbers with their tokens.
MAX_LINE = 64 * 1024 * 1024

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class ChildFailed(Exception):
    """The child failed to respond, or has ended; `str()` contains its error or the end of its log."""


class Child:
    """Child process that handles requests until `close`: `python -m <module> --control-fd=…`."""

    def __init__(self, name: str, module: str, directory: Path) -> None:
        self.name = name
        self._module = module
        self._log_path = directory / f"{name}.log"
        self._numbers = itertools.count(1)
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, arguments: Sequence[str] = ()) -> None:
        """Start the process. The first request waits until it is ready."""
        ours, theirs = socket.socketpair()
        with theirs, self._log_path.open("ab") as log:
            command = [sys.executable, "-m", self._module, f"--control-fd={theirs.fileno()}", *arguments]
            self._process = spawn.start(command, cwd=ROOT, stdout=log, stderr=log, pass_fds=(theirs.fileno(),))
        await self.connect(ours)

    async def connect(self, ours: socket.socket) -> None:
        """Use this end of a socket pair for requests."""
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        self._reading = asyncio.create_task(self._read(reader))

    async def request(self, what: str, **details: Any) -> Any:
        """Send a request and return its response. Raises `ChildFailed`."""
        if self._reading is None or self._reading.done():
            raise ChildFailed(self._failure())
        n = next(self._numbers)
        response = self._responses[n] = asyncio.get_running_loop().create_future()
        self._writer.write(msgspec.json.encode({"n": n, "do": what, **details}) + b"\n")
        return await response

    async def close(self) -> None:
        """Close the socket, at which the child ends, and wait for it; kill it after 20 s."""
        if self._process is None or self._reading is None:
            return
        self._writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        try:
            await asyncio.to_thread(self._process.wait, 20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        # If the child dies during a request, the connection is reset.
        with contextlib.suppress(ConnectionError):
            async for line in reader:
                self._receive_response(msgspec.json.decode(line))
        for future in self._responses.values():
            if not future.done():
                future.set_exception(ChildFailed(self._failure()))

    def _receive_response(self, reply: dict[str, Any]) -> None:
        future = self._responses.pop(reply["n"])
        if future.done():
            return
        if "error" in reply:
            future.set_exception(ChildFailed(f"{self.name}: {reply['error']}"))
        else:
            future.set_result(reply["response"])

    def _failure(self) -> str:
        return f"{self.name} is gone: {self._log_path.read_text()[-2000:]}"


async def serve(control_fd: int, respond: Handler) -> None:
    """Handle requests, each in a separate task, until the socket closes. Runs in the child."""
    ours = socket.socket(fileno=control_fd)
    ours.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
    tasks: set[asyncio.Task[None]] = set()

    async def reply(request: dict[str, Any]) -> None:
        n = request.pop("n")
        try:
            message: dict[str, Any] = {"n": n, "response": await respond(request)}
        except Exception:
            message = {"n": n, "error": traceback.format_exc()[-2000:]}
        writer.write(msgspec.json.encode(message) + b"\n")

    async for line in reader:
        task = asyncio.create_task(reply(msgspec.json.decode(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
