"""The record of what robots have shown: one JSON line for each message, appended with one write for each batch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from handset.behaviours import Message
from tidings.runtime.clock import Clock


class Line(msgspec.Struct, gc=False):
    """attempt: 1 for a message that came once. time: Unix seconds when it was shown. sha256: of the UTF-8 text, hex."""

    number: str
    id: str
    attempt: int
    time: float
    sha256: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class ShownLog:
    """An append-only file that this process alone writes.

    A line that a crash tore off is removed when the file is opened, so that its message is shown again in full.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._clock = clock
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        _remove_torn_line(self._file)

    def append(self, messages: Sequence[Message]) -> None:
        now = round(self._clock.now(), 3)
        lines = bytearray()
        for message in messages:
            digest = hashlib.sha256(message.text.encode()).hexdigest()
            lines += _encoder.encode(Line(message.number, message.id, message.attempt, now, digest))
            lines += b"\n"
        view = memoryview(bytes(lines))
        while view:
            view = view[os.write(self._file, view) :]

    def list_shown(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        """Which of these are in the file, as (number, id). Reads the whole file."""
        wanted = {(message.number, message.id) for message in messages}
        found = set()
        with self._path.open("rb") as file:
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
