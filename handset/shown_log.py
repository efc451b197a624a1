"""Record of the messages that robots have shown: one JSON line per message, written once per batch."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from handset import reading
from handset.application import ReceivedMessage
from tidings.aio.clock import Clock
from tidings.secrets import private_files

LIMIT = 16 * 1024 * 1024  # bytes


class Line(msgspec.Struct, gc=False):
    """Line about one message."""

    number: str
    id: str
    attempt: int  # number of deliveries; 1 in the normal case
    time: float  # time at which it was shown, Unix seconds
    sha256: str  # hex, of the text in UTF-8; for other types, of the lines that a person would read


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class ShownLog:
    """Append-only file that only this process writes.

    Beyond `limit` bytes it is renamed to `<path>.1`, and a new file starts. Lookups concern messages much younger
    than the older file. A line that a crash left incomplete is removed when the file is opened, so that its
    message is shown again.
    """

    def __init__(self, path: Path, clock: Clock, *, limit: int = LIMIT) -> None:
        """Open the file.

        limit: bytes; 0 for no limit
        """
        private_files.make_directory(path.parent)
        self._path = path
        self._before = path.with_name(path.name + ".1")
        self._clock = clock
        self._limit = limit
        self._file = self._open()
        _remove_torn_line(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, private_files.FILE_MODE)

    def append(self, messages: Sequence[ReceivedMessage]) -> None:
        """Record messages. Raises `OSError`; then none of them is recorded."""
        now = round(self._clock.now(), 3)
        lines = bytearray()
        for message in messages:
            text = message.text or (reading.describe(message.type, message.raw) if message.raw else "")
            digest = hashlib.sha256(text.encode()).hexdigest()
            lines += _encoder.encode(Line(message.number, message.id, message.attempt, now, digest))
            lines += b"\n"
        view, size = memoryview(bytes(lines)), os.fstat(self._file).st_size
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            # Without this the next line would continue the incomplete one.
            os.ftruncate(self._file, size)
            raise
        if self._limit and os.fstat(self._file).st_size > self._limit:
            self._path.replace(self._before)
            # Opened first: if that fails, the descriptor of a closed file could become that of another one.
            new = self._open()
            os.close(self._file)
            self._file = new

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        """Return those messages that are recorded, as (number, id). Reads both files."""
        wanted = {(message.number, message.id) for message in messages}
        found = set()
        for path in (self._before, self._path):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                for raw in file:
                    try:
                        line = _decoder.decode(raw)
                    except msgspec.MsgspecError:
                        continue
                    if (line.number, line.id) in wanted:
                        found.add((line.number, line.id))
        return found

    def close(self) -> None:
        os.close(self._file)


def _remove_torn_line(file: int) -> None:
    end = size = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(file, end)
