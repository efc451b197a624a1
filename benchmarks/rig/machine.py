"""The machine of a run: CPU used by other programs, and a description."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import subprocess
from pathlib import Path

import cryptography
import psutil
import sqlalchemy

import tidings
from harness.mariadb import MariaDB
from tidings.observability import interpreter

# Fraction of the machine's CPU used by other programs, above which a run is marked.
MARK = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """CPU seconds of the machine since its start."""

    at: float  # time of the reading, seconds
    # All work, including time stolen by the host, without interrupts, which are not attributed to processes.
    busy: float
    stolen: float  # by the host
    own: float  # of this process and all its descendants, whether or not they still run


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Fractions of the machine's CPU time between two readings."""

    others: float  # of other programs; at least the stolen time
    stolen: float
    own: float

    @property
    def is_marked(self) -> bool:
        """Return whether other programs used too much CPU for the run to be a measurement."""
        return self.others > MARK


def read(at: float) -> Clock:
    """Read the machine's CPU times.

    at: present time of a monotonic clock, seconds
    """
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + getattr(times, "steal", 0.0)
    return Clock(at, busy, getattr(times, "steal", 0.0), _own())


def _own() -> float:
    """Return the CPU seconds of this process tree. Ended children are counted by the parents that waited for them."""
    used = 0.0
    root = psutil.Process()
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def shares(before: Clock, after: Clock) -> Shares:
    """Return how the CPU time between two readings was used."""
    whole = max(after.at - before.at, 1e-9) * (os.cpu_count() or 1)
    own = after.own - before.own
    stolen = after.stolen - before.stolen
    # Processes are also charged for interrupts, so our usage hides a part of that of other programs.
    others = max(stolen, after.busy - before.busy - own)
    return Shares(round(others / whole, 4), round(stolen / whole, 4), round(own / whole, 4))


def database_of(version: str) -> tuple[str, str]:
    """Return (`mariadb` or `mysql`; the number) of the version that a server reports. Only MariaDB adds its name."""
    number, _, rest = version.partition("-")
    return ("mariadb" if rest.startswith("MariaDB") else "mysql"), number


def describe(server: MariaDB | None = None) -> dict[str, str]:
    """Return the machine's size and the versions of its software, without anything that identifies the machine."""
    build = interpreter.read()
    found = {
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": f"{build.number} ({build.compilation})",
        "tidings": tidings.__version__,
        "sqlalchemy": sqlalchemy.__version__,
        "cryptography": cryptography.__version__,
    }
    if server is not None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("",)
        name, number = database_of(str(version))
        found[name] = number
    return found


def commit(root: Path = Path(__file__).parents[2]) -> str:
    """Return the revision of a checkout, with `+` if tracked files differ from it, other than results of earlier runs;
    `unknown` without git.
    """
    describe = ["git", "describe", "--always", "--exclude=*", "--abbrev=12"]
    differs = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"]
    try:
        found, changed = (
            subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
            for command in (describe, differs)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + ("+" if changed else "")
