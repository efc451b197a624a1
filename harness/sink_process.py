"""Start the webhook sink and send it requests."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec

from harness import spawn
from harness.sink import Counts, Record

ROOT = Path(__file__).parents[1]

_decode_records = msgspec.msgpack.Decoder(list[Record]).decode


class SinkProcess:
    """Process of the webhook `harness.sink`, as an asynchronous context manager."""

    def __init__(self, directory: Path, secret: str, *, verify_every: int = 100) -> None:
        self._directory = directory
        self._secret = secret
        self._verify_every = verify_every
        self._numbers = itertools.count(1)
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """URL for callbacks."""
        return f"http://127.0.0.1:{self.port}/callback"

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair()
        with theirs, (self._directory / "sink.log").open("ab") as log:
            command = [sys.executable, "-m", "harness.sink", f"--control-fd={theirs.fileno()}"]
            command += [f"--directory={self._directory}", f"--secret={self._secret}"]
            command += [f"--verify-every={self._verify_every}"]
            self._process = spawn.start(command, cwd=ROOT, stdout=log, stderr=log, pass_fds=(theirs.fileno(),))
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        greeting = self._responses[0] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(reader))
        self.port = (await greeting)["port"]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process is not None
        assert self._reading is not None
        self._writer.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        try:
            await asyncio.to_thread(self._process.wait, 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def counts(self) -> Counts:
        """Return the counts since the last `take`."""
        return msgspec.convert(await self._request("counts"), Counts)

    async def wait_complete(self, messages: int) -> Counts:
        """Wait until `messages` messages have all three statuses; without a time limit, so set one around it."""
        return msgspec.convert(await self._request("wait", complete=messages), Counts)

    async def respond_with(self, status: int, delay: float = 0.0) -> None:
        """Set the sink's response from now on. delay: seconds."""
        await self._request("set", status=status, delay=delay)

    async def expect_cloud(self, secret: str) -> None:
        """Expect events in the format of the Cloud API from now on. secret: the app secret."""
        await self._request("cloud", secret=secret)

    async def verify(self, every: int) -> None:
        """Check the signature of every n-th request from now on; 0 checks none."""
        await self._request("verify", every=every)

    async def take(self) -> list[Record]:
        """Return all records in order of arrival, and reset the sink."""
        path = (await self._request("take"))["path"]
        return await asyncio.to_thread(_read_and_remove, Path(path))

    async def _request(self, what: str, **details: Any) -> Any:
        n = next(self._numbers)
        response = self._responses[n] = asyncio.get_running_loop().create_future()
        self._writer.write(msgspec.json.encode({"n": n, "do": what, **details}) + b"\n")
        return await response

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            reply = msgspec.json.decode(line)
            future = self._responses.pop(reply["n"])
            if not future.done():
                future.set_result(reply["response"])
        for future in self._responses.values():
            if not future.done():
                future.set_exception(RuntimeError("the webhook sink is gone: see sink.log"))


def _read_and_remove(path: Path) -> list[Record]:
    records = _decode_records(path.read_bytes())
    path.unlink()
    return records
