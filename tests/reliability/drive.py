"""A drive that loses its power: whatever was not synced is gone, what the file system had promised is there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

# ext4: stop at once, and write out nothing that is still in memory, its journal included. What the Linux file systems'
# own tests use for a power cut.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)


class Drive:
    """An ext4 of its own in a file, on a loop device. Needs root."""

    def __init__(self, directory: Path, size: int) -> None:
        """directory: where it is mounted, made when it is not there; size: bytes."""
        self.directory = directory
        self._image = directory.with_name(directory.name + ".img")
        self._size = size

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Drive]:
        with self._image.open("wb") as image:
            image.truncate(self._size)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)
        self.directory.mkdir()
        self._mount()
        try:
            yield self
        finally:
            # A process that is just ending may still hold a file.
            subprocess.run(["umount", "--lazy", self.directory], check=True)
            self._image.unlink()

    def cut(self) -> None:
        """From now on nothing reaches the drive."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """The power is back. Nobody may hold a file of it."""
        subprocess.run(["umount", self.directory], check=True)
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.directory], check=True)
