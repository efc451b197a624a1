"""Drive that loses power: unsynced data is lost, data that the file system has promised to keep is kept."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

# ext4 ioctl: shut down at once, and write nothing that is still in memory, the journal included. The Linux file system
# tests use it for a power cut.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("I", 2)


class Drive:
    """Separate ext4 file system in a file, on a loop device. Needs root."""

    def __init__(self, directory: Path, size: int) -> None:
        """Create the drive.

        directory: mount point, created when it does not exist. size: bytes.
        """
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
            # A process that is about to end may still hold a file.
            subprocess.run(["umount", "--lazy", self.directory], check=True)
            self._image.unlink()

    def cut(self) -> None:
        """Let nothing reach the drive from now on."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Restore the power. No process may have a file of the drive open."""
        subprocess.run(["umount", self.directory], check=True)
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.directory], check=True)
