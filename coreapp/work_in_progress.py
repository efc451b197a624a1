"""The item that this process is handling, in a file that survives the process.

If handling an item kills the process, by a crash of native code or by the system's lack of memory, nothing in the
process can record it. The file is mapped into memory, so that naming an item costs no system call. The next process
on this machine finds the file without an owner, and counts an attempt for the item.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from coreapp.crash_suspects import attach_suspects
from tidings.aio import crashpoints
from tidings.secrets import private_files
from tidings.storage.business import quarantine
from tidings.storage.business.quarantine import Item

log = logging.getLogger(__name__)

FOLDER = ".in-hand"
# One byte for the length of the text, then `kind id`. An id has at most 64 characters.
_SIZE = 256
_LONGEST = _SIZE - 1
_LENGTHS = [bytes([size]) for size in range(_SIZE)]


class WorkInProgress:
    """Name of the item that is being handled. One at a time: no other task may run while an item is named.

    Use `with work.handling(kind, item_id): …`. An error that leaves the block carries the item's name
    (`coreapp.crash_suspects`).
    """

    def __init__(
        self, buffer: mmap.mmap | bytearray | None = None, path: Path | None = None, descriptor: int = -1
    ) -> None:
        """Create it without a file, for a process whose directories are read-only, or in tests.

        buffer, path, descriptor: set by `open`
        """
        self._buffer = buffer if buffer is not None else bytearray(_SIZE)
        self._path = path
        self._descriptor = descriptor
        self._kind = self._id = ""

    @classmethod
    def open(cls, directories: Sequence[Path]) -> WorkInProgress:
        """Create the file in the first of the directories that is writable. Logs a warning if none is."""
        problem = ""
        for directory in directories:
            path = directory / FOLDER / f"{os.getpid()}-{secrets.token_hex(8)}"
            try:
                private_files.make_directory(path.parent)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_files.FILE_MODE)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.truncate(descriptor, _SIZE)
                return cls(mmap.mmap(descriptor, _SIZE), path, descriptor)
            except OSError as error:
                problem = f"{directory}: {error.strerror}"
        log.warning("work_in_progress.not_kept", extra={"error": problem})
        return cls()

    def handling(self, kind: str, item_id: str, of: str = "") -> Self:
        """Name the item until the end of the `with` block.

        of: recipient or sender, for crash points in tests
        """
        self._kind, self._id = kind, item_id
        text = f"{kind} {item_id}".encode("utf-8", "replace")
        size = len(text)
        if size > _LONGEST:
            text, size = text[:_LONGEST], _LONGEST
        self._buffer[: size + 1] = _LENGTHS[size] + text
        crashpoints.reach(crashpoints.ITEM_IN_PROGRESS, of)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._buffer[0] = 0
        if error is not None and isinstance(error, Exception):
            attach_suspects(error, (quarantine.name(self._kind, self._id),))

    def close(self) -> None:
        """Remove the file."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._path = None


@contextlib.contextmanager
def items_of_crashed(directories: Sequence[Path]) -> Iterator[Sequence[Item]]:
    """Provide the items that dead processes were handling. Their files are removed when the block succeeds."""
    with contextlib.ExitStack() as files:
        found = [entry for directory in directories for entry in _dead(directory / FOLDER, files)]
        yield [item for _, item in found if item is not None]
        for path, _ in found:
            path.unlink(missing_ok=True)


def _dead(folder: Path, files: contextlib.ExitStack) -> Iterator[tuple[Path, Item | None]]:
    """Yield the files of dead processes, with their items. Each is locked until `files` is closed, so that no other
    process counts it too.
    """
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        try:
            file = files.enter_context(path.open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = file.read(_SIZE)
            # Another process may have removed the file before this one locked it.
            if os.fstat(file.fileno()).st_nlink:
                yield path, _read(content)
        except OSError:
            # The process that named the item is alive, or the file is gone.
            continue


def _read(content: bytes) -> Item | None:
    """Return the item that the content of a file names; None for none."""
    text = content[1 : 1 + content[0]].decode("ascii", "replace") if content else ""
    kind, _, item_id = text.partition(" ")
    return quarantine.name(kind, item_id) if kind in list(quarantine.ItemKind) and item_id else None
