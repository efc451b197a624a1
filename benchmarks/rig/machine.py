"""The machine of a run: what others took of it, and what it is."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform

import cryptography
import psutil
import sqlalchemy

import tidings
from harness.mariadb import MariaDB

# The part of the machine's time beyond which a run that shared it with others is marked.
MARK = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """CPU seconds of the machine since it was started.

    busy:  of everything, what the host took of us (stolen) included. Without interrupts, which nobody is charged for.
    own:   of this process and all that it has started, whether they still run or not.
    """

    at: float
    busy: float
    stolen: float
    own: float


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the machine's time between two readings. others: what the host took is the least of it."""

    others: float
    stolen: float
    own: float

    @property
    def is_marked(self) -> bool:
        """Others had too much for the run to be a measurement."""
        return self.others > MARK


def read(at: float) -> Clock:
    """at: by any clock that goes on evenly, in seconds."""
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + getattr(times, "steal", 0.0)
    return Clock(at, busy, getattr(times, "steal", 0.0), _own())


def _own() -> float:
    """What children that have ended used is kept by those that waited for them."""
    used = 0.0
    root = psutil.Process()
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def shares(before: Clock, after: Clock) -> Shares:
    """What became of the time between."""
    whole = max(after.at - before.at, 1e-9) * (os.cpu_count() or 1)
    own = after.own - before.own
    stolen = after.stolen - before.stolen
    # Processes are charged for interrupts, too: what they used hides a part of what others had.
    others = max(stolen, after.busy - before.busy - own)
    return Shares(round(others / whole, 4), round(stolen / whole, 4), round(own / whole, 4))


def describe(server: MariaDB | None = None) -> dict[str, str]:
    """Versions of what runs here, and its size; nothing that names the machine."""
    found = {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "tidings": tidings.__version__,
        "sqlalchemy": sqlalchemy.__version__,
        "cryptography": cryptography.__version__,
    }
    if server is not None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("",)
        found["mariadb"] = str(version).split("-")[0]
    return found
