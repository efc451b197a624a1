"""Actions of `tidings traffic`: record shapes, replay them, and copy some live requests to another installation."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from cli.traffic import shapes
from cli.traffic.shapes import NumberRange, RecipientIndexes, Shape
from cli.traffic.target import RequestStatistics, TrafficTarget
from tidings.wire import tap
from tidings.wire.tap import CopiedRequest

# Maximum bytes of a record: its body, and 4 KiB for the other fields.
_MOST = tap.MAX_BODY + 4096


class CopiedRequestReader(asyncio.Protocol):
    """Reads copied requests from the connection of one Webapp."""

    def __init__(self, take: Callable[[CopiedRequest], None]) -> None:
        self._take = take
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= tap.LENGTH:
            size = int.from_bytes(self._data[: tap.LENGTH], "big")
            if size > _MOST:
                self._transport.close()
                return
            if len(self._data) < tap.LENGTH + size:
                return
            record = bytes(self._data[tap.LENGTH : tap.LENGTH + size])
            del self._data[: tap.LENGTH + size]
            try:
                self._take(tap.decode(record))
            except msgspec.DecodeError:
                self._transport.close()
                return


@contextlib.asynccontextmanager
async def listening(path: Path, take: Callable[[CopiedRequest], None]) -> AsyncIterator[None]:
    """Listen on a Unix socket at `path` with mode 0600, and pass each copied request to `take`.

    A stale socket at the path is replaced. Raises `OSError`, `FileExistsError` when another listener uses the path.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        await loop.create_unix_connection(asyncio.Protocol, str(path))
        raise FileExistsError(errno.EEXIST, "another process listens there", str(path))
    _remove(path)
    try:
        server = await loop.create_unix_server(lambda: CopiedRequestReader(take), str(path))
    except OSError as error:
        # The event loop's error does not name the path.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    _keep_private(path)
    try:
        yield
    finally:
        server.close()
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_socket():
        path.unlink()


def _keep_private(path: Path) -> None:
    path.chmod(0o600)


# Seconds between two lines of progress.
INTERVAL = 5.0

Show = Callable[[dict[str, Any]], object]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Shape).decode


class Recorder:
    """Writes the shapes of copied requests to a file, one line of JSON each, at most `limit` lines."""

    def __init__(self, file: TextIO, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._recipients = RecipientIndexes()
        self._since = 0.0
        self.count = 0
        self.error: OSError | None = None  # of the file, as on a full disk
        self.full = asyncio.Event()

    def take(self, copied: CopiedRequest) -> None:
        """Record one request; requests beyond the limit are ignored."""
        if self.count >= self._limit:
            return
        self._since = self._since or copied.at
        shape = shapes.shape_of(copied, self._since, self._recipients)
        try:
            self._file.write(_encode(shape).decode() + "\n")
        except OSError as error:
            self.error, self._limit = error, self.count
        else:
            self.count += 1
        if self.count == self._limit:
            self.full.set()


class Tee:
    """Sends a part of the requests to another installation.

    Requests are selected by recipient, so that a conversation is sent as a whole or not at all. Requests without a
    recipient are selected individually.

    share: part of the recipients, from 0 to 1.
    with_contents: send the bodies with only the numbers replaced, instead of generated bodies of the same shape.
    """

    def __init__(self, target: TrafficTarget, share: float, numbers: NumberRange, *, with_contents: bool) -> None:
        self._target = target
        self._share = share
        self._numbers = numbers
        self._with_contents = with_contents
        self._recipients = RecipientIndexes()
        self._chosen: dict[int, bool] = {}
        self.seen = 0

    def take(self, copied: CopiedRequest) -> None:
        """Send one request if its recipient is selected."""
        self.seen += 1
        shape = shapes.shape_of(copied, copied.at, self._recipients)
        if not self._is_chosen(shape):
            return
        request = shapes.request_of(shape, self._numbers)
        if self._with_contents:
            request = shapes.redirected(copied, shape.to, self._numbers) or request
        self._target.send(*request)

    def _is_chosen(self, shape: Shape) -> bool:
        if not shape.to:
            return secrets.randbelow(1_000_000) < self._share * 1_000_000
        if shape.to not in self._chosen:
            self._chosen[shape.to] = secrets.randbelow(1_000_000) < self._share * 1_000_000
        return self._chosen[shape.to]


async def record(socket: Path, path: Path, *, seconds: float, limit: int, stop: asyncio.Event) -> int:
    """Record shapes to a file for `seconds` seconds, until `limit` requests or `stop`. Returns the number recorded.

    Raises `OSError`; the file is unchanged if another process listens at the socket.
    """
    async with listening(socket, lambda copied: recorder.take(copied)):
        with path.open("w", encoding="utf-8") as file:
            recorder = Recorder(file, limit)
            await _first((stop, recorder.full), seconds)
            if recorder.error is not None:
                raise recorder.error
    return recorder.count


async def tee(
    socket: Path, tee: Tee, stats: RequestStatistics, *, seconds: float, stop: asyncio.Event, show: Show
) -> None:
    """Copy requests for `seconds` seconds or until `stop`, with a line of progress every `INTERVAL` seconds.

    Raises `OSError`.
    """
    async with listening(socket, tee.take):
        until = time.monotonic() + seconds
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            await _first((stop,), min(INTERVAL, left))
            show({"seen": tee.seen, **stats.describe()})


async def replay(
    recorded: Iterable[Shape], target: TrafficTarget, numbers: NumberRange, *, speed: float, stop: asyncio.Event
) -> float:
    """Send recorded requests at their recorded times, without waiting for responses.

    Returns the longest delay after a request's due time, in seconds.

    speed: factor by which the times are shortened.
    """
    loop = asyncio.get_running_loop()
    began, latest = loop.time(), 0.0
    for shape in recorded:
        due = began + shape.at / speed
        if (wait := due - loop.time()) > 0:
            await _first((stop,), wait)
        else:
            # Requests that are behind their times start too.
            await asyncio.sleep(0)
        if stop.is_set():
            break
        latest = max(latest, loop.time() - due)
        target.send(*shapes.request_of(shape, numbers))
    return latest


def read(path: Path) -> Iterator[Shape]:
    """Yield the shapes in a file, in order. Raises `OSError`, and `msgspec.DecodeError` for an invalid line."""
    with path.open("rb") as file:
        for line in file:
            yield _decode(line)


async def _first(events: Sequence[asyncio.Event], seconds: float) -> bool:
    """Wait at most `seconds` seconds until one of the events is set. Returns whether one was set."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    return bool(done)
