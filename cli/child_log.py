"""Log file of a child process, of bounded size, with its warnings repeated on the console."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from tidings.secrets import private_files

# Lines at warning level or above, in both styles of `tidings.observability.log`.
_WARNING = re.compile(
    rb'^(?:\d\d:\d\d:\d\d\.\d{3} (?:WARNING|ERROR  |CRITICAL)|\{.*"level": "(?:warning|error|critical)").*$',
    re.MULTILINE,
)
# Line without a time that the command line prints just before it exits with an error.
_EXIT_ERROR = re.compile(rb"^tidings ([a-z]+: .*)$", re.MULTILINE)
RETRY_SECONDS = 5.0


@dataclasses.dataclass(eq=False, repr=False)
class ChildLog:
    """Log file that is rotated by size: above `limit` bytes it is renamed to `path.1` and a new file is opened.

    Never raises. While the file cannot be written (a full disk, a read-only directory), lines are counted and dropped,
    and writing is retried every 5 seconds. The count is written to the file as soon as it can be written again.

    repeat: called with each line at warning level or above, and when writing the file starts to fail or to work again.
    limit: bytes.
    """

    path: Path
    repeat: Callable[[str], None]
    _: dataclasses.KW_ONLY
    limit: int = 20_000_000
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._rest = b""
        self.exit_error = ""
        self._file: io.FileIO | None = None
        self._size = 0
        # Lines dropped since writing failed; None while the file can be written.
        self._missing: int | None = None
        self._retry_at = 0.0
        try:
            private_files.make_directory(self.path.parent)
            if self.path.exists():
                self._put_aside()
            self._open()
        except OSError as error:
            self._fail(error)

    def write(self, chunk: bytes) -> None:
        """Append a chunk of the child's output, of any size."""
        self._keep(chunk)
        lines, newline, rest = (self._rest + chunk).rpartition(b"\n")
        # An unterminated line is cut at 64 KiB, which bounds memory.
        self._rest = rest[:65536]
        if newline:
            for match in _WARNING.finditer(lines):
                self.repeat(match[0].decode(errors="replace"))
            for match in _EXIT_ERROR.finditer(lines):
                self.exit_error = match[1].decode(errors="replace")

    def close(self) -> None:
        """Close the file; calling it again is harmless."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _keep(self, chunk: bytes) -> None:
        if self._missing is not None and self.monotonic() < self._retry_at:
            self._missing += chunk.count(b"\n")
            return
        try:
            if self._missing is not None:
                # The leading newline ends a line that the failed write may have cut.
                self._append(f"\n({self._missing} lines are missing here: the file could not be written)\n".encode())
                self.repeat(f"{self.path} can be written again; {self._missing} lines are missing")
                self._missing = None
            self._append(chunk)
            if self._size > self.limit:
                self._put_aside()
                self.close()
                self._open()
        except OSError as error:
            self._fail(error, chunk.count(b"\n"))

    def _append(self, chunk: bytes) -> None:
        if self._file is None:
            self._open()
        assert self._file is not None
        left = memoryview(chunk)
        while left:
            left = left[self._file.write(left) or 0 :]
        self._size += len(chunk)

    def _open(self) -> None:
        descriptor = private_files.opener(str(self.path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._file = io.FileIO(descriptor, "ab")
        self._size = self._file.tell()

    def _put_aside(self) -> None:
        self.path.replace(self.path.with_name(self.path.name + ".1"))

    def _fail(self, error: OSError, lines: int = 0) -> None:
        if self._missing is None:
            self._missing = 0
            self.repeat(f"{self.path} cannot be written: {error.strerror}; the process continues without it")
        self._missing += lines
        self._retry_at = self.monotonic() + RETRY_SECONDS
        self.close()
