"""Faults that a test has requested, in a file that the processes of one data directory share."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

FILE = "faults.json"
MAX_FAULTS = 100
_MODE = 0o600


class FaultTarget(enum.Enum):
    """Calls that a fault applies to."""

    MESSAGES = "messages"
    MEDIA = "media"
    TEMPLATES = "templates"
    WEBHOOKS = "webhooks"
    ALL = "all"


class Fault(msgspec.Struct, kw_only=True):
    """Failure of the next calls of one target."""

    id: int  # number of the fault, from 1
    target: FaultTarget
    left: int  # calls that are still to fail
    every: int  # only each call with a multiple of this number fails; 0 or 1 for each call
    http: int  # HTTP status
    code: int  # error code of the Cloud API; v1 responds with its translation
    retry_after_s: int  # seconds in the header `Retry-After`; 0 for no header
    calls: int = 0  # calls counted since the fault was added


class _Content(msgspec.Struct):
    """Content of the file."""

    last_id: int = 0
    faults: list[Fault] = []


class TooManyFaults(Exception):
    """`MAX_FAULTS` faults exist. Delete one before another is added."""


_decode = msgspec.json.Decoder(_Content).decode
_encode = msgspec.json.Encoder().encode


class FaultFile:
    """The faults of one data directory. Every change holds a lock on the file, which takes some 50 µs.

    A file that cannot be read as faults counts as empty.
    """

    def __init__(self, directory: Path) -> None:
        """directory: data directory of the installation"""
        self._path = directory / FILE

    def take(self, target: FaultTarget) -> Fault | None:
        """Count a call, and return the fault that it meets; `None` for none. Without faults it costs one `stat`."""
        try:
            if not self._path.stat().st_size:
                return None
        except OSError:
            return None
        with self._changing() as content:
            for fault in content.faults:
                if fault.target not in (target, FaultTarget.ALL):
                    continue
                fault.calls += 1
                if fault.every > 1 and fault.calls % fault.every:
                    continue
                fault.left -= 1
                content.faults = [kept for kept in content.faults if kept.left > 0]
                return fault
        return None

    def add(
        self, target: FaultTarget, times: int, *, every: int = 0, http: int, code: int, retry_after_s: int = 0
    ) -> Fault:
        """Add a fault. Raises `TooManyFaults`. The parameters are those of `Fault`.

        times: calls that are to fail
        """
        with self._changing() as content:
            if len(content.faults) >= MAX_FAULTS:
                raise TooManyFaults
            content.last_id += 1
            fault = Fault(
                id=content.last_id,
                target=target,
                left=times,
                every=every,
                http=http,
                code=code,
                retry_after_s=retry_after_s,
            )
            content.faults.append(fault)
        return fault

    def list_all(self) -> list[Fault]:
        """Return the faults, oldest first."""
        try:
            with self._path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return _read(file.read()).faults
        except OSError:
            return []

    def left(self, target: FaultTarget) -> int:
        """Return the calls that are still to fail by the faults of exactly this target."""
        return sum(fault.left for fault in self.list_all() if fault.target is target)

    def delete(self, fault_id: int) -> bool:
        """Delete a fault. Returns whether it existed."""
        with self._changing() as content:
            before = len(content.faults)
            content.faults = [fault for fault in content.faults if fault.id != fault_id]
            return len(content.faults) < before

    def clear(self) -> None:
        """Delete all faults."""
        with self._changing() as content:
            content.faults = []

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Content]:
        """Provide the content of the file, and write it at the end of the block unless an error is raised."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            content = _read(os.pread(file, os.fstat(file).st_size, 0))
            yield content
            written = _encode(content)
            # In this order, `take` in another process never finds an empty file while there are faults.
            os.pwrite(file, written, 0)
            os.ftruncate(file, len(written))
        finally:
            os.close(file)


def _read(raw: bytes) -> _Content:
    try:
        return _decode(raw) if raw else _Content()
    except msgspec.MsgspecError:
        return _Content()
