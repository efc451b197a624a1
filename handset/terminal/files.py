"""Files of a conversation in a terminal: numbered when they are shown, saved and sent by commands."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

from handset import reading
from handset.application import ReceivedMessage
from handset.attachments import pointers, transfer
from handset.attachments.pointers import AttachmentPointer
from handset.composing import Content
from handset.devices.device import Device
from handset.terminal.commands import CommandUsageError
from handset.terminal.console import Write
from tidings.aio.lru import LRU
from tidings.client.http import NetworkApi

KEPT = 1000  # files; older ones cannot be saved
# Seconds after which a transfer first reports its progress, and seconds between two reports.
FIRST_REPORT = 1.0
REPORT = 3.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class ConversationFiles:
    """Files by the number under which they were shown. Numbers start at 1 when the terminal starts."""

    api: NetworkApi
    device: Device
    _: dataclasses.KW_ONLY
    folder: Path  # directory in which files are saved
    write: Write
    _files: LRU[int, AttachmentPointer] = dataclasses.field(default_factory=lambda: LRU(KEPT), init=False)
    _last: int = dataclasses.field(default=0, init=False)

    def put(self, message: ReceivedMessage) -> list[int]:
        """Add the files of a message, and return their numbers."""
        first = self._last + 1
        for pointer in pointers.find(message.type, message.raw):
            self._last += 1
            self._files.put(self._last, pointer)
        return list(range(first, self._last + 1))

    async def save(self, argument: str) -> None:
        """Execute `/save [N]`: download file N, or the last one that was received.

        Raises `CommandUsageError` and `HandsetError`.
        """
        if not self._last:
            raise CommandUsageError("There is no file to save.")
        number = self._last if not argument else 0
        if argument.isascii() and argument.isdigit() and len(argument) < 10:
            number = int(argument)
        pointer = self._files.get(number)
        if pointer is None:
            raise CommandUsageError(f"Use /save N, from {max(1, self._last - KEPT + 1)} to {self._last}.")
        path = await transfer.save(
            self.api, self.device, pointer, self.folder, progress=TransferProgress(pointer.name, self.write)
        )
        self.write(f"Saved {path} ({reading.bytes_of(pointer.size)}).")

    async def compose(self, command: str, argument: str) -> Content:
        """Execute `/send FILE [CAPTION]` or `/voice FILE`: upload a file and compose its message.

        Raises `CommandUsageError` and `HandsetError`.
        """
        kind = transfer.VOICE if command == "/voice" else ""
        path, caption = split(argument)
        if not path or (kind and caption):
            raise CommandUsageError(
                f"Use {command} FILE{'' if kind else ' [CAPTION]'}; put a name with spaces in quotes."
            )
        file = _file(path)
        progress = TransferProgress(file.name, self.write)
        return await transfer.upload(self.api, self.device, file, caption=caption, kind=kind, progress=progress)


class TransferProgress:
    """Reports the progress of a transfer from time to time. A quick transfer reports nothing."""

    def __init__(self, name: str, write: Write, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._write = write
        self._now = now
        self._due = now() + FIRST_REPORT

    def __call__(self, done: int, total: int) -> None:
        if self._now() >= self._due:
            self._due = self._now() + REPORT
            self._write(f"  {self._name}: {reading.bytes_of(done)} of {reading.bytes_of(total)}")


def split(argument: str) -> tuple[str, str]:
    """Split an argument into a path and the rest. The path ends at the first space, or stands in quotes."""
    text = argument.strip()
    quote = text[:1]
    if quote and quote in "\"'" and quote in text[1:]:
        path, _, rest = text[1:].partition(quote)
    else:
        path, _, rest = text.partition(" ")
    return path, rest.strip()


def _file(path: str) -> Path:
    # Unlike `Path.expanduser`, this leaves the name of an unknown user unchanged.
    return Path(path if "\0" in path else os.path.expanduser(path))
