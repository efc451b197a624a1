"""Keeps what a child process says in a file of bounded size, and repeats its warnings on the console."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

# Both styles of `tidings.runtime.log`.
_WORTH_REPEATING = re.compile(
    rb'^(?:\d\d:\d\d:\d\d\.\d{3} (?:WARNING|ERROR  |CRITICAL)|\{.*"level": "(?:warning|error|critical)").*$',
    re.MULTILINE,
)
# Said by the command line itself just before it exits, without a time.
_LAST_WORD = re.compile(rb"^tidings ([a-z]+: .*)$", re.MULTILINE)


class ChildLog:
    """Appends to `path`; at `limit` bytes the file becomes `path.1` and a new one starts.

    repeat: called with each line that is a warning or worse.
    """

    def __init__(self, path: Path, repeat: Callable[[str], None], *, limit: int = 20_000_000) -> None:
        self.path = path
        self._repeat = repeat
        self._limit = limit
        self._rest = b""
        self.last_word = ""
        if path.exists():
            path.replace(path.with_name(path.name + ".1"))
        self._open()

    def _open(self) -> None:
        self._file = self.path.open("wb", buffering=0)
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Take what came, in pieces of any size."""
        self._file.write(chunk)
        self._size += len(chunk)
        lines, newline, rest = (self._rest + chunk).rpartition(b"\n")
        # A line without an end is cut at 64 KiB, so that it cannot fill the memory.
        self._rest = rest[:65536]
        if newline:
            for match in _WORTH_REPEATING.finditer(lines):
                self._repeat(match[0].decode(errors="replace"))
            for match in _LAST_WORD.finditer(lines):
                self.last_word = match[1].decode(errors="replace")
        if self._size > self._limit:
            self._file.close()
            self.path.replace(self.path.with_name(self.path.name + ".1"))
            self._open()

    def close(self) -> None:
        """No more comes."""
        self._file.close()
