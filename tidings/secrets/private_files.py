"""Files and directories that only their owner may read, created so whatever the umask is.

Those with wider permissions, left by an earlier release or set by hand, are restricted at start.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Folders of the data directory in which every file is ours, and files are few.
_WHOLE = ("logs", "secrets")
_FOLDERS = (*_WHOLE, "media", "blobs", "files")
_OURS = (".db", ".db-wal", ".db-shm", ".jsonl", ".jsonl.1", ".lock", ".json")


def opener(path: str, flags: int) -> int:
    """Open a file with private permissions if it is new; for `open(opener=…)`."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_directory(path: Path) -> None:
    """Make a private directory, and its parents with the umask; an existing one is unchanged. Raises `OSError`."""
    try:
        path.mkdir(mode=DIRECTORY_MODE)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


def replace(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """Write or replace a file atomically; it is on disk when this returns. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb", opener=opener) as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # Errors of writing name no file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync the list of a directory's files to disk. Raises `OSError`."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restrict(path: Path) -> bool:
    """Remove the permissions of group and others; returns whether there were any. Raises `OSError`.

    Symbolic links and shared directories (with the sticky bit, such as `/tmp`) are unchanged.
    """
    found = path.lstat().st_mode
    if not found & _OTHERS or stat.S_ISLNK(found) or (stat.S_ISDIR(found) and found & stat.S_ISVTX):
        return False
    path.chmod(stat.S_IMODE(found) & ~_OTHERS)
    return True


def restrict_all(data_dir: Path) -> None:
    """Restrict the data directory and our files in it to their owner; logs a warning for each that was not."""
    for path in _kept(data_dir):
        try:
            if restrict(path):
                log.warning("permissions.mended", extra={"path": str(path)})
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("permissions.loose", extra={"path": str(path), "error": error.strerror})


def _kept(data_dir: Path) -> Iterator[Path]:
    yield data_dir
    try:
        entries = sorted(data_dir.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(_OURS) or entry.name in _FOLDERS:
            yield entry
            if entry.name in _WHOLE and entry.is_dir():
                yield from sorted(entry.iterdir())


def shared_mode(directory: Path) -> int:
    """Return the mode of new files in a directory that an operator may have made for several users.

    The group may read and write the files if it may read and write the directory; others have no access. Raises
    `OSError`.
    """
    found = directory.stat().st_mode
    return FILE_MODE | (stat.S_IRGRP if found & stat.S_IRGRP else 0) | (stat.S_IWGRP if found & stat.S_IWGRP else 0)


def warn_of_world_access(directory: Path) -> None:
    """Log a warning for a directory that every user may access, and whose permissions are not ours to change."""
    try:
        loose = directory.stat().st_mode & stat.S_IRWXO
    except OSError:
        return
    if loose:
        log.warning("permissions.loose", extra={"path": str(directory), "error": "every user may access it"})
