"""Lock that lets only one process run a fleet, because two would break each other's sessions."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from handset.errors import AlreadyRunning


@contextlib.contextmanager
def only_one(directory: Path, fleet: str) -> Iterator[None]:
    """Hold the fleet's lock. It is released when the process ends, however it ends. Raises `AlreadyRunning`."""
    path = directory / f"{fleet}.lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"{fleet} is already running (it holds {path})") from error
        yield
    finally:
        os.close(file)
