"""Records of the processes of this host: a file of each in the data directory, which it locks while it runs.

So the record of a killed process is recognised even if its process id has been reused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "processes"


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRecord:
    """Program version and environment variables of one process."""

    process: str  # "webapp", "coreapp", "network", "robots" or "handset"
    pid: int  # process id in the process's own PID namespace
    version: str  # version of the program
    variables: Mapping[str, str]  # environment variables, without secrets
    withheld: Sequence[str]  # names of variables that were set and whose values are secret

    def environment(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables of this process, plus those of its secrets that `variables` contains."""
        secrets = {name: variables[name] for name in self.withheld if name in variables}
        return {**self.variables, **secrets}


@dataclasses.dataclass(frozen=True, slots=True)
class FoundRecord:
    """Record with the state of its process."""

    path: Path
    record: ProcessRecord | None  # None for one that cannot be read
    started_at: float  # Unix seconds
    is_running: bool  # False: the process was killed


def list_all(data_dir: Path, process: str = "*") -> Sequence[FoundRecord]:
    """List the records of this host, oldest first. Raises `OSError`.

    process: kind of process; `*` for all
    """
    found = [one for path in list_paths(data_dir, process) if (one := read(path)) is not None]
    return sorted(found, key=lambda one: one.started_at)


def list_paths(data_dir: Path, process: str = "*") -> Sequence[Path]:
    """List the files of the records of this host.

    process: as in `list_all`
    """
    return [*(data_dir / FOLDER).glob(f"{process}-{socket.gethostname()}-*.json")]


def read(path: Path) -> FoundRecord | None:
    """Read a record; None if it is deleted, or not written yet. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        state = path.stat()
        # A process locks its file before it writes, and fails if the file is locked here.
        if state.st_size:
            return FoundRecord(path, _read(path), state.st_mtime, _is_locked(path))
    return None


def _is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read(path: Path) -> ProcessRecord | None:
    with contextlib.suppress(ValueError, TypeError):
        return ProcessRecord(**json.loads(path.read_text()))
    return None
