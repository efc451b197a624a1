"""TCP proxy that a test can shut or redirect, and that cuts an exchange: the server behind it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from urllib.parse import urlsplit


class Cut(enum.Enum):
    """Moment of an exchange of request and response at which a proxy closes the connection."""

    BEFORE_REQUEST = "before the request"  # the server receives nothing of it
    AFTER_FIRST_BYTE = "after the first byte of the request"
    BEFORE_RESPONSE = "before the response"  # the server has sent it, and the client receives nothing of it


class Proxy:
    """Forwards connections to an address. While it is shut, open connections hang and new ones get no response."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._record: bytearray | None = None
        self._next_cut: tuple[Cut, asyncio.Future[None]] | None = None
        self.address = ("127.0.0.1", 0)

    @classmethod
    def to(cls, url: str) -> Proxy:
        """Return a proxy to an HTTP server."""
        there = urlsplit(url)
        return cls(str(there.hostname), int(there.port or 80))

    @property
    def url(self) -> str:
        """URL of the server through this proxy."""
        return f"http://127.0.0.1:{self.address[1]}"

    async def start(self) -> None:
        """Listen; after a `stop`, on the same port again."""
        self.open()
        self._server = await asyncio.start_server(self._serve, *self.address)
        self.address = self._server.sockets[0].getsockname()[:2]

    def set_target(self, host: str, port: int) -> None:
        """Forward new connections to another address; open ones stay."""
        self._target = (host, port)

    def shut(self) -> None:
        """Stop forwarding, as if a cable was unplugged."""
        self._open.clear()

    def cut(self) -> None:
        """Stop forwarding, and close all connections."""
        self.shut()
        for task in self._tasks:
            task.cancel()

    def open(self) -> None:
        """Forward again, including the data that was held back."""
        self._open.set()

    def cut_next(self, cut: Cut) -> asyncio.Future[None]:
        """Cut the next exchange at this moment, on whichever connection it is. The result is set when it is cut, and
        can be cancelled before.
        """
        done = asyncio.get_running_loop().create_future()
        self._next_cut = (cut, done)
        return done

    def record(self) -> bytearray:
        """Record all data from now on, in both directions; returns the growing record."""
        self._record = bytearray()
        return self._record

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        self.cut()
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            upstream, there = await asyncio.open_connection(*self._target)
            ways = [
                asyncio.create_task(self._forward(reader, there, is_request=True)),
                asyncio.create_task(self._forward(upstream, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        """Forward data until the end of one side, or a cut."""
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._open.wait()
                cut = self._take_cut(is_request=is_request)
                if cut is Cut.AFTER_FIRST_BYTE:
                    writer.write(data[:1])
                    await writer.drain()
                if cut is not None:
                    return
                if self._record is not None:
                    self._record += data
                writer.write(data)
                await writer.drain()

    def _take_cut(self, *, is_request: bool) -> Cut | None:
        """Return the cut that concerns data in this direction, once; None to forward the data."""
        if self._next_cut is None:
            return None
        cut, done = self._next_cut
        if done.cancelled() or (cut is not Cut.BEFORE_RESPONSE) is not is_request:
            return None
        self._next_cut = None
        done.set_result(None)
        return cut
