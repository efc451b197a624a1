"""Checks of this machine: its Python, free space and speed of its disks, and the limit on open files."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cli.doctor.findings import Finding, error, fine, warning
from tidings.config import env
from tidings.observability import interpreter
from tidings.observability.interpreter import InterpreterBuild

# A warning is given when less than this part of the disk and less than this number of bytes are free.
FREE_PART, FREE_BYTES = 0.1, 1024 * env.MIB
WRITTEN = 16 * env.MIB  # bytes written to measure the rate
SYNCS = 20  # small writes to measure their latency
SLOW_SYNC_MS = 20.0
SLOW_MIB = 20.0  # MiB per second
# File descriptors that a process needs in addition to its connections: database, files, link, listeners.
OTHER_FILES = 512


class InterpreterCheck:
    """Check of the version and build of Python."""

    name = "python"

    async def run(self) -> Sequence[Finding]:
        return [self.evaluate(interpreter.read())]

    def evaluate(self, build: InterpreterBuild) -> Finding:
        """Return the finding for a build."""
        if not build.is_tested:
            remedy = "use Python {}.{} to {}.{}: the tests run on these".format(
                *interpreter.OLDEST, *interpreter.NEWEST
            )
            return warning(self.name, str(build), remedy)
        if not build.is_optimised:
            remedy = "use one that was built with PGO, as Debian's and the image's: each message costs less CPU"
            return warning(self.name, str(build), remedy)
        if build.jit == "JIT on":
            return warning(self.name, str(build), "unset PYTHON_JIT: with the JIT, processes crash")
        return fine(self.name, str(build))


class DiskSpaceCheck:
    """Check of the free space for a directory."""

    def __init__(self, directory: Path, *, reserve: int = 0) -> None:
        """reserve: free bytes below which nothing more is stored in the directory."""
        self.name = f"space of {directory}"
        self._directory = directory
        self._reserve = reserve

    async def run(self) -> Sequence[Finding]:
        path = existing(self._directory)
        return [self.evaluate(*shutil.disk_usage(path)[::2])]

    def evaluate(self, total: int, free: int) -> Finding:
        """Return the finding for the total and free bytes of the disk."""
        text = f"{free / env.MIB:,.0f} of {total / env.MIB:,.0f} MiB free"
        if free < max(self._reserve, 16 * env.MIB):
            return error(self.name, text, "free space: writes to it are refused now")
        if free < FREE_BYTES and free < total * FREE_PART:
            return warning(self.name, text, "free space, or use a larger disk")
        return fine(self.name, text)


class DiskSpeedCheck:
    """Measurement of a directory's write rate, and of the latency of a small write with fsync."""

    def __init__(self, directory: Path) -> None:
        self.name = f"speed of {directory}"
        self._directory = directory

    async def run(self) -> Sequence[Finding]:
        return [self.evaluate(*await asyncio.to_thread(self._measure))]

    def _measure(self) -> tuple[float, float]:
        # It has no name, so that nothing is left after a kill.
        with tempfile.TemporaryFile(dir=existing(self._directory), buffering=0) as file:
            started = time.perf_counter()
            block = os.urandom(env.MIB)
            for _ in range(WRITTEN // len(block)):
                file.write(block)
            os.fsync(file)
            rate = WRITTEN / env.MIB / (time.perf_counter() - started)
            started = time.perf_counter()
            for _ in range(SYNCS):
                file.write(block[:4096])
                os.fsync(file)
            return rate, (time.perf_counter() - started) * 1000 / SYNCS

    def evaluate(self, rate: float, sync_ms: float) -> Finding:
        """Return the finding for a measurement.

        rate: MiB per second.
        sync_ms: milliseconds per small write.
        """
        text = f"{rate:,.0f} MiB/s, {sync_ms:.1f} ms to write 4 KiB to the disk"
        if rate < SLOW_MIB or sync_ms > SLOW_SYNC_MS:
            return warning(self.name, text, "use a faster disk: every SQLite commit and every file waits for this one")
        return fine(self.name, text)


class OpenFilesCheck:
    """Check of the limit on file descriptors against a process's maximum number of connections."""

    def __init__(self, process: str, connections: int) -> None:
        self.name = f"open files of {process}"
        self._connections = connections

    async def run(self) -> Sequence[Finding]:
        # Processes raise their soft limit to the hard limit.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return [self.evaluate(hard)]

    def evaluate(self, limit: int) -> Finding:
        """Return the finding for a limit.

        limit: hard limit on file descriptors; -1 for no limit.
        """
        wanted = self._connections + OTHER_FILES
        if limit == resource.RLIM_INFINITY or limit >= wanted:
            return fine(self.name, f"{'no limit' if limit < 0 else limit}, {wanted} are recommended")
        remedy = f"raise it to {wanted} (LimitNOFILE=, ulimits:, ulimit -n); until then fewer connections are accepted"
        return warning(self.name, f"{limit}, {wanted} are recommended for {self._connections} connections", remedy)


def disk_of(path: Path) -> int:
    """Return the number of the device that holds the path, or would hold it."""
    return existing(path).stat().st_dev


def existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())
