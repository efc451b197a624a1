"""File store in a directory: files have random names and appear complete or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import stat
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreUnavailable
from tidings.media.reading import open_ahead, to_the_end
from tidings.objects import store
from tidings.objects.store import BLOCK, Check, Marker, OpenFile, StoredObject
from tidings.secrets import private_files

# Suffix of unfinished files.
UNFINISHED = ".part"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PAGE = 1000


class DirectoryStore:
    """Files of an installation in a directory that all its processes share.

    While a file is written, one block of 256 KiB is in memory.
    """

    is_local = True

    def __init__(self, directory: Path, *, reserve: int = 0) -> None:
        """Create the store.

        reserve: bytes that stay free on the disk for others, above all the database.
        """
        self.directory = directory
        # Marker that the directory must have; `None` until `tidings.objects.identity` has compared it.
        self.expected: Marker | None = None
        self._reserve = reserve

    @property
    def location(self) -> str:
        """Path of the directory, for error texts."""
        return str(self.directory)

    def prepare(self) -> None:
        """Make the directory if it does not exist. Raises `OSError`.

        An existing directory may have been made for several users: its group gets the same access to the files as it
        has to the directory.
        """
        private_files.make_directory(self.directory)
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not writable")
        private_files.warn_of_world_access(self.directory)

    def free(self) -> int:
        """Return the bytes that may still be written. Raises `OSError`."""
        found = os.statvfs(self.directory)
        return max(found.f_bavail * found.f_frsize - self._reserve, 0)

    async def write(self, chunks: AsyncIterable[bytes], *, limit: int, check: Check | None = None) -> StoredObject:
        """Store a file with one block in memory at a time; it is on disk when this returns.

        Raises `FileTooLarge`, `FileEmpty`, `DiskFull`, `StoreUnavailable`, and the errors of `chunks` and `check`;
        nothing is left then.

        limit: bytes.
        check: receives the first block (256 KiB, or all of a smaller file) before anything is written.
        """
        # One step of the draft at a time, even if this task is cancelled: it waits for a thread that writes.
        draft = self.draft(limit=limit, check=check)
        stored: StoredObject | None = None
        try:
            async for chunk in chunks:
                if draft.buffer(chunk):
                    await to_the_end(draft.flush)
            stored = await to_the_end(draft.keep)
            return stored
        finally:
            # A caller that was cancelled during `keep` does not know the name of the file.
            if stored is None:
                await to_the_end(draft.discard)

    def draft(self, *, limit: int, check: Check | None = None) -> Draft:
        """Return a file to be written step by step in a thread. Use it as a context manager, kept or not."""
        return Draft(self, limit, check)

    async def open(self, name: str) -> OpenFile:
        """Open a file for reading. Raises `FileGone`; `StoreUnavailable` when the directory is not the recorded one."""
        return await asyncio.to_thread(self._open, name)

    def open_file(self, name: str) -> BinaryIO:
        """Open a file for reading, in a thread. Raises as `open`.

        Only regular files are opened. In a shared directory, other users may create a symbolic link to a file that only
        this process may read, or a pipe, which would block its reader.
        """
        try:
            descriptor = os.open(self.path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                raise
            # Nothing is known of the file while the directory is another one.
            self.require()
            raise FileGone from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileGone
        return os.fdopen(descriptor, "rb")

    async def delete(self, names: Iterable[str]) -> int:
        """Remove files; returns how many existed."""
        return await asyncio.to_thread(self._delete, list(names))

    async def list_old(self, before: float) -> AsyncIterator[list[str]]:
        """Yield pages of names of files, including unfinished ones, last written before a time (Unix seconds).

        Raises `StoreUnavailable`.
        """
        await asyncio.to_thread(self.require)
        names = self._old(before)
        while page := await asyncio.to_thread(lambda: list(itertools.islice(names, _PAGE))):
            yield page

    async def has_room(self) -> bool:
        """Return whether anything may be written. Raises `OSError`."""
        return await asyncio.to_thread(self.free) > 0

    def location_of(self, name: str) -> str:
        """Return the path of a file as text."""
        return str(self.path(name))

    async def close(self) -> None:
        """Do nothing: a directory needs no connections."""

    def path(self, name: str) -> Path:
        """Return the path of a file. Raises `FileGone` for text that cannot be the name of one."""
        if not name or not name.removesuffix(UNFINISHED).isalnum():
            raise FileGone
        return self.directory / name

    async def read_marker(self) -> Marker | None:
        """Return the marker; `None` when there is none. Raises `OSError`."""
        return await asyncio.to_thread(self._read_marker)

    async def write_marker(self, content: Marker) -> None:
        """Write a marker, or replace it; it is on disk when this returns. Raises `OSError`."""
        mode = private_files.shared_mode(self.directory)
        await asyncio.to_thread(
            private_files.replace, self.directory / store.MARKER, store.encode_marker(content), mode
        )

    async def has_any(self, names: Sequence[str]) -> bool:
        """Return whether one of these files exists. Raises `OSError`."""
        return await asyncio.to_thread(lambda: any((self.directory / name).exists() for name in names))

    def require(self) -> None:
        """Raise `StoreUnavailable` if the directory does not have the marker that the database records, once that is
        known.
        """
        if self.expected is not None and self._read_marker() != self.expected:
            raise StoreUnavailable

    def _read_marker(self) -> Marker | None:
        try:
            return store.decode_marker((self.directory / store.MARKER).read_bytes())
        except FileNotFoundError:
            return None

    def sync(self) -> None:
        """Sync the directory, with the names of its files, to disk."""
        private_files.sync_directory(self.directory)

    def _open(self, name: str) -> OpenFile:
        file = self.open_file(name)
        try:
            size = os.fstat(file.fileno()).st_size
        except OSError:
            # A network file system may fail here.
            file.close()
            raise
        return OpenFile(size, open_ahead(file))

    def _delete(self, names: list[str]) -> int:
        deleted = 0
        for name in names:
            with contextlib.suppress(FileGone, FileNotFoundError):
                self.path(name).unlink()
                deleted += 1
        return deleted

    def _old(self, before: float) -> Iterator[str]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.name == store.MARKER:
                        continue
                    if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < before:
                        yield entry.name


class Draft:
    """A file that is being written. All methods except `buffer` may access the disk.

    Call `write` for each chunk, then `keep`; without `keep` nothing is left. Raises as `DirectoryStore.write`.
    """

    def __init__(self, files: DirectoryStore, limit: int, check: Check | None) -> None:
        self._files = files
        self._limit = limit
        self._check = check
        self._name = secrets.token_hex(16)
        self._finished = files.directory / self._name
        self._unfinished = files.directory / (self._name + UNFINISHED)
        self._file: BinaryIO | None = None
        self._block = bytearray()
        self._hash = hashlib.sha256()
        self._size = 0
        self.is_kept = False

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if not self.is_kept:
            self.discard()

    def write(self, chunk: bytes) -> None:
        if self.buffer(chunk):
            self.flush()

    def buffer(self, chunk: bytes) -> bool:
        """Buffer the next bytes; returns whether `flush` is due. Raises `FileTooLarge`."""
        self._size += len(chunk)
        if self._size > self._limit:
            raise FileTooLarge(self._limit)
        self._block += chunk
        return len(self._block) >= BLOCK

    def flush(self) -> None:
        """Write the buffer to the file. Raises `DiskFull`, `StoreUnavailable` and the errors of `check`."""
        if self._check is not None:
            self._check(bytes(self._block[:BLOCK]))
            self._check = None
        with _room():
            if self._files.free() < len(self._block):
                raise DiskFull
            if self._file is None:
                self._files.require()
                descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(descriptor, "wb", buffering=0)
                # Independent of the umask.
                os.fchmod(descriptor, private_files.shared_mode(self._files.directory))
            view = memoryview(self._block)
            try:
                self._hash.update(view)
                while view:
                    view = view[self._file.write(view) :]
            finally:
                view.release()
        self._block = bytearray()

    def keep(self) -> StoredObject:
        """Complete the file: it is on disk under its name when this returns. Raises `FileEmpty`."""
        if not self._size:
            raise FileEmpty
        if self._block:
            self.flush()
        assert self._file is not None
        with _room():
            os.fsync(self._file.fileno())
            self._file.close()
            self._files.require()
            os.rename(self._unfinished, self._finished)
            self._files.sync()
        self.is_kept = True
        store.WRITTEN.inc(self._size)
        return StoredObject(self._name, self._size, self._hash.hexdigest())

    def discard(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._unfinished.unlink(missing_ok=True)
            self._finished.unlink(missing_ok=True)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFull from None
        if isinstance(error, StoreUnavailable):
            raise
        raise StoreUnavailable(repr(error)) from error
