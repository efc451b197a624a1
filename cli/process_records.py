"""Records of running processes, with the environment variables of each, for `tidings doctor` and the console."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from cli import known_variables, unread_variables
from tidings import __version__
from tidings.installation import process_records
from tidings.installation.process_records import ProcessRecord
from tidings.secrets import private_files

log = logging.getLogger(__name__)

# Variables not in SECRETS whose values may contain a password.
_ADDRESSES = frozenset(
    {
        "TIDINGS_BUSINESS_DB_URL",
        "TIDINGS_HANDSET_DB_URL",
        "TIDINGS_NETWORK_DB_URL",
        "TIDINGS_OUTGOING_PROXY",
        "TIDINGS_REDIS_URL",
        "TIDINGS_TRAFFIC_PASSWORD",
    }
)
# Variables that a process reads although their names have none of Tidings' prefixes.
_NODE_NAMES = frozenset({"COREAPP_HOSTNAME", "WACORE_HOSTNAME", "WEBAPP_HOSTNAME"})


@contextlib.contextmanager
def recorded(process: str, data_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Keep a record of this process while the block runs. Logs a warning if it cannot be written."""
    folder = data_dir / process_records.FOLDER
    path = folder / f"{process}-{socket.gethostname()}-{os.getpid()}.json"
    descriptor = -1
    try:
        try:
            private_files.make_directory(folder)
            for _ in _live(data_dir, process):
                pass
            # Another process that starts now would take a record without a lock for one of a killed process.
            unlocked = path.with_suffix(".new")
            descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, private_files.FILE_MODE)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, json.dumps(dataclasses.asdict(_record(process, variables))).encode())
            unlocked.rename(path)
        except OSError as error:
            log.warning("process.not_recorded", extra={"path": str(path), "error": error.strerror})
        yield
    finally:
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)


def find(process: str, data_dir: Path) -> ProcessRecord | None:
    """Return the record of the process of this kind that started last on this host; None if none is running."""
    try:
        found = list(_live(data_dir, process))
    except OSError:
        return None
    return found[-1] if found else None


def _record(process: str, variables: Mapping[str, str]) -> ProcessRecord:
    ours = {
        name: value
        for name, value in variables.items()
        if name.startswith(unread_variables.PREFIXES) or name in _NODE_NAMES
    }
    withheld = sorted(name for name in ours if is_secret(name))
    plain = {name: value for name, value in ours.items() if name not in withheld}
    return ProcessRecord(process, os.getpid(), __version__, plain, withheld)


def is_secret(name: str) -> bool:
    """Return whether the variable's value may contain a secret and is therefore not recorded."""
    return name in known_variables.SECRETS or name in _ADDRESSES or name.endswith("_COMMAND")


def _live(data_dir: Path, process: str) -> Iterator[ProcessRecord]:
    """Yield the records of running processes on this host, oldest first. Deletes stale records. Raises `OSError`."""
    for found in process_records.list_all(data_dir, process):
        if not found.is_running:
            found.path.unlink(missing_ok=True)
        elif found.record is not None:
            yield found.record
